"""Progress of long loops: a bar in a terminal and in JupyterLab, a line now and then in a log.

A loop writes lines where standard error is a file, and into the file that FEDLIB_PROGRESS names, if any: so does what runs in a batch or in
worker processes, which show nothing otherwise. A loop of a few seconds writes none. What worker processes have done so far moves the bar of
the process that waits for them: each writes to a small file of its own.
"""

import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm as live_bar
from tqdm.std import tqdm as text_bar

from fedlib.stages.workers import end_workers
from fedlib.tools.lifeline import follow

SECONDS = 15  # between two lines of a log
REPORT_SECONDS = 1.0  # between two looks at what the workers have done
TEXT = "{desc}: {n:.4g} of {total_fmt} {unit}s, {elapsed} so far, {remaining} left{postfix}"


class _Lines:
    """What tqdm writes to, one line with the time for each of its updates; opened anew every time, as processes may share the file."""

    def __init__(self, path: str | None):
        self.path = path

    def write(self, text: str) -> None:
        # A bar within another moves the cursor up a line.
        if not (text := text.replace("\x1b[A", "").strip("\r\n ")):
            return
        if self.path is None:
            sys.stderr.write(f"{text}\n")
            return
        # Work never stops because its log cannot be written.
        with contextlib.suppress(OSError), Path(self.path).open("a", encoding="utf-8") as log:
            log.write(f"{time.strftime('%H:%M:%S')} {text}\n")

    def flush(self) -> None:
        sys.stderr.flush()


class _Job:
    """A job in a worker process: the file it reports to, and the loops it is in, as [done, in all]."""

    def __init__(self, path: Path):
        self.path, self.loops, self.finished, self.written = path, [], 0, 0.0
        self.in_all = 2

    def fraction(self) -> float:
        """How much of the job is done, if it consists of two loops (training, unless that is there already, and methods), and every pass of
        a loop takes the same time."""
        part = 0.0
        for done, total in reversed(self.loops):
            part = min(1.0, (done + part) / total) if total else 0.0
        return min(1.0, (self.finished + part) / self.in_all)

    def tell(self, what: str, done: int, total: int) -> None:
        if time.monotonic() - self.written < REPORT_SECONDS / 2:
            return
        self.written = time.monotonic()
        # Replaced as a whole. On a cluster the file may be out of reach, and the bar then moves job by job.
        with contextlib.suppress(OSError):
            temporary = self.path.with_suffix(".new")
            temporary.write_text(f"{self.fraction():.4f} {what} {done}/{total}", encoding="utf-8")
            temporary.replace(self.path)


_job: _Job | None = None


class _Reported(text_bar):
    """A bar that also tells the waiting process how far the loop is."""

    def __iter__(self):
        job = _job
        loop = [self.initial, self.total]
        if self.unit == "method" and not (job.finished or job.loops):
            job.in_all = 1
        job.loops.append(loop)
        try:
            for loop[0], item in enumerate(super().__iter__(), self.initial):
                job.tell(self.desc, *loop)
                yield item
        finally:
            job.loops[:] = [other for other in job.loops if other is not loop]
            job.finished += not job.loops


def _in_jupyter() -> bool:
    """Whether IPython runs this, which what needs no notebook does without."""
    return "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None


def bar(items: Iterable, what: str, *, shown: bool = True, **options) -> live_bar:
    """``items``, with their progress under the name ``what``. shown: False leaves all but a log out; options: those of ``tqdm``."""
    log = os.environ.get("FEDLIB_PROGRESS")
    if _job or log or not (sys.stderr.isatty() or _in_jupyter()):
        kind = _Reported if _job else text_bar
        options = (
            {"unit": "step", "miniters": 1}
            | options
            | {"mininterval": SECONDS, "maxinterval": SECONDS, "delay": SECONDS, "bar_format": TEXT}
        )
        bar = kind(items, file=_Lines(log), disable=not (shown or log), leave=False, **options)
        # tqdm leaves the name, the unit and the first count unset where nothing is shown.
        bar.desc, bar.unit, bar.initial = what, options["unit"], options.get("initial", 0)
        return bar
    return live_bar(items, what, disable=not shown, leave=False, **options)


@contextlib.contextmanager
def reports(jobs: int) -> Iterator[list[Path]]:
    """A file for each of the ``jobs`` to report to, for as long as the block runs."""
    with tempfile.TemporaryDirectory(prefix="fedlib-", ignore_cleanup_errors=True) as folder:
        yield [Path(folder) / str(i) for i in range(jobs)]


def reported(report: Path, parent: int, function: Callable, *arguments: Any) -> tuple[Path, Any]:
    """``report`` and ``function(*arguments)``, as a job of the process ``parent``: its loops report to ``report``, and it ends with that
    process."""
    global _job
    follow(parent)
    _job = _Job(report)
    try:
        return report, function(*arguments)
    finally:
        _job = None
        end_workers()
        with contextlib.suppress(OSError):
            report.unlink(missing_ok=True)


def joint_bar(results: Iterable, what: str, files: list[Path], *, total: int, initial: int = 0) -> Iterator:
    """``results`` of jobs that report to ``files``, with one bar that moves with their loops."""
    # smoothing: what is left follows from the mean pace, since tqdm's recent one leaves out the looks that saw nothing new.
    with bar(range(total), what, total=total, initial=initial, unit="training", miniters=0, smoothing=0) as one:
        ended, done = threading.Event(), [initial]

        def look() -> None:
            while not ended.wait(REPORT_SECONDS):
                told = [report for report in map(_report, files) if report]
                one.set_postfix_str("; ".join(text for _, text in told), refresh=False)
                # A job's report goes when it ends, a moment before its result is here: the bar does not move back for it.
                one.update(max(0.0, round(done[0] + sum(fraction for fraction, _ in told), 2) - one.n))

        watcher = threading.Thread(target=look, daemon=True)
        watcher.start()
        try:
            for result in results:
                done[0] += 1
                yield result
        finally:
            ended.set()
            watcher.join()
            # The last reports may be older than the last results: a bar that stops short looks like a failure.
            one.set_postfix_str("", refresh=False)
            one.update(max(0.0, done[0] - one.n))


def _report(path: Path) -> tuple[float, str] | None:
    """What a job reported last: how much of it is done, and which loop it is in."""
    with contextlib.suppress(OSError, ValueError):
        fraction, text = path.read_text(encoding="utf-8").split(" ", 1)
        return float(fraction), text
    return None
