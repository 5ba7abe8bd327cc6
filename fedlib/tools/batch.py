"""Notebooks executed side by side, each in a kernel of its own, with a line for each that says what it is doing.

The kernels are children of this process and end with it, however it ends: they look for their parent every second, and so do their
workers (``fedlib.tools.lifeline``).
"""

import asyncio
import contextlib
import json
import os
import queue
import re
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import nbconvert
import nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from fedlib.tools.files import atomic
from fedlib.tools.parameters import PROJECT, from_here

PAGE, FAILED = "notebook.html", "notebook.ipynb"  # a notebook that is done, and how far one came that failed: never both
WIDGET = "application/vnd.jupyter.widget-view+json"
LINE_SECONDS = 60  # between two lines about a notebook where output is no terminal
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Run:
    """One notebook to execute, and how far it is. name: what it is called on the screen; given: its parameters; folder: of its results."""

    name: str
    notebook: Path
    given: dict
    folder: Path
    cell: int = 0
    cells: int = 0
    section: str = ""
    started: float = 0.0
    entered: float = 0.0
    said: float = 0.0
    ended: float = 0.0
    failure: str = ""
    details: str = ""
    executed: nbformat.NotebookNode | None = field(default=None, repr=False)

    @property
    def seconds(self) -> float:
        return (self.ended or time.monotonic()) - self.started

    @property
    def log(self) -> Path:
        return self.folder / "progress.log"

    def line(self) -> str:
        """What it is doing, how far it is, and roughly how long it will take if the cells to come are like those that are done.

        They are not where a notebook trains for hours in one cell: nothing is guessed in the first quarter, nor once the current cell has
        taken longer than was left when it began.
        """
        done, before = self.cell - 1, self.entered - self.started
        left = before * (self.cells - done) / done - (self.seconds - before) if done and done >= self.cells / 4 else 0
        guess = f", about {clock(left)} left" if left > 0 and self.seconds > 20 else ""
        return f"{self.name}: {clock(self.seconds)}{self._place(guess)}{_last_line(self.log, time.monotonic() - self.entered)}"

    def _place(self, guess: str = "") -> str:
        """The cell and its section, as far as it has come to one."""
        cell = f", cell {self.cell} of {self.cells}{guess}" if self.cell else ""
        return cell + (f", {self.section}" if self.section else "")

    def outcome(self) -> str:
        """One line for a notebook that is done; for one that failed the error and its cell."""
        if self.failure:
            place = self._place().replace(", ", " in ", 1)
            return f"{self.name}: stopped after {clock(self.seconds)}{place}\n{self.failure}"
        lacking = "".join(f"\n  {name} was not made: {reason}" for name, reason in self.not_made().items())
        return f"{self.name}: done in {clock(self.seconds)}, see {from_here(self.folder / PAGE)}{lacking}"

    def not_made(self) -> dict[str, str]:
        """What was asked for by name and could not be made, as ``run.json`` tells."""
        record = self.folder / "run.json"
        return json.loads(record.read_text(encoding="utf-8")).get("not_made", {}) if record.exists() else {}


def execute_all(runs: Sequence[Run], at_once: int, *, verbose: bool = False) -> list[Run]:
    """Execute ``runs``, ``at_once`` at a time, and return those that failed; one that fails does not stop the others."""
    waiting: queue.SimpleQueue[Run] = queue.SimpleQueue()
    for run in runs:
        waiting.put(run)
    ended: queue.SimpleQueue[Run] = queue.SimpleQueue()

    def work() -> None:
        while True:
            try:
                run = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                _attempt(run)
            finally:
                ended.put(run)

    # Daemons, so that Ctrl-C does not wait for them.
    for _ in range(at_once):
        threading.Thread(target=work, daemon=True).start()
    screen = _Screen(runs)
    for _ in runs:
        while True:
            try:
                run = ended.get(timeout=1)
                break
            except queue.Empty:
                screen.show()
        screen.say(run.outcome(), error=bool(run.failure))
        if run.failure:
            screen.say(run.details if verbose else "  --verbose shows the traceback", error=True)
    return [run for run in runs if run.failure]


def execute(run: Run) -> None:
    """Execute the notebook and write its page ``notebook.html`` into its folder.

    Meanwhile ``progress.log`` there says how far it is; a notebook that fails leaves it, and ``notebook.ipynb`` up to the failure in place
    of an earlier page.
    """
    run.started = run.entered = time.monotonic()
    run.folder.mkdir(parents=True, exist_ok=True)
    run.log.unlink(missing_ok=True)
    notebook = load_notebook_node(str(run.notebook))
    # The quickstart takes no parameters, and papermill would warn of the missing cell.
    notebook = run.executed = parameterize_notebook(notebook, run.given) if run.given else notebook
    run.cells = len(notebook.cells)

    def entered(cell, cell_index: int) -> None:
        run.cell, run.entered = cell_index + 1, time.monotonic()
        heading = re.match(r"#+\s*(.+)", cell.source) if cell.cell_type == "markdown" else None
        run.section = heading.group(1).strip() if heading else run.section

    # Sockets in a folder that nobody else may read need no encryption; Jupyter has none of them on Windows.
    with tempfile.TemporaryDirectory(prefix="fedlib-") as private:
        sockets = {} if os.name == "nt" else {"transport": "ipc", "ip": f"{private}/k"}
        manager = AsyncKernelManager(kernel_name="python3", connection_file=f"{private}/kernel.json", **sockets)
        folder = {"metadata": {"path": run.notebook.parent}}
        client = NotebookClient(notebook, km=manager, timeout=None, on_cell_start=entered, resources=folder, shutdown_kernel="immediate")
        asyncio.run(client.async_execute(cleanup_kc=True, env=_environment(run)))
    _write_page(run)
    for left in (run.log, run.folder / FAILED):
        left.unlink(missing_ok=True)


def _environment(run: Run) -> dict[str, str]:
    """Of the kernel. In a checkout it imports this one's package, though another may be installed in the same Python."""
    own = {"FEDLIB_PROGRESS": str(run.log), "FEDLIB_HOME": str(PROJECT)}
    if Path(__file__).resolve().parents[2] == PROJECT:
        own["PYTHONPATH"] = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
    return os.environ | own


def _attempt(run: Run) -> None:
    try:
        execute(run)
    except CellExecutionError as error:
        source = "\n".join(f"  | {line}" for line in run.executed.cells[run.cell - 1].source.splitlines())
        run.failure, run.details = f"{source}\n  {error.ename}: {error.evalue}", error.traceback
    except DeadKernelError:
        run.failure = "  its kernel was killed; if the machine ran out of memory, take fewer jobs or --processes 1"
        run.details = traceback.format_exc()
    except Exception as error:
        run.failure, run.details = f"  {type(error).__name__}: {error}", traceback.format_exc()
    run.ended = time.monotonic()
    if run.failure and run.executed is not None:
        # A full disk may be why it failed.
        with contextlib.suppress(OSError):
            (run.folder / PAGE).unlink(missing_ok=True)
            with atomic(run.folder / FAILED) as path:
                nbformat.write(run.executed, path)


def _write_page(run: Run) -> None:
    exporter = nbconvert.HTMLExporter(exclude_input_prompt=True, exclude_output_prompt=True)
    html, _ = exporter.from_notebook_node(still(run.executed), {"metadata": {"name": run.notebook.stem}})
    # Folders shown relative to the project, others by their parameter, so that the page does not depend on where it was made.
    for name in ("data_root", "cache", "output"):
        if (folder := Path(run.given.get(name) or "").expanduser()).is_absolute():
            html = html.replace(str(folder), name)
    with atomic(run.folder / PAGE) as page:
        page.write_text(html.replace(f"{PROJECT}/", ""), encoding="utf-8")


def still(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """``notebook`` without widgets, which need a kernel: a picture displayed with one stays, progress bars go."""
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if set(output.get("data", ())) != {WIDGET, "text/plain"}]
    return notebook


class _Screen:
    """Lines that stay, and below them, in a terminal, one for each notebook that runs, written over every second."""

    def __init__(self, runs: Sequence[Run]):
        self.runs, self.live, self.below = runs, sys.stderr.isatty(), 0

    def say(self, text: str, *, error: bool) -> None:
        self._clear()
        stream = sys.stderr if error else sys.stdout
        print(text if stream.isatty() else COLOURS.sub("", text), file=stream, flush=True)

    def show(self) -> None:
        going = [run for run in self.runs if run.started and not run.ended]
        if self.live:
            self._clear()
            width = os.get_terminal_size(sys.stderr.fileno()).columns - 1
            lines = [run.line()[:width] for run in going]
            self.below = len(lines)
            sys.stderr.write("".join(f"{line}\n" for line in lines))
        else:
            for run in going:
                if time.monotonic() - max(run.said, run.started) >= LINE_SECONDS:
                    run.said = time.monotonic()
                    sys.stderr.write(f"{run.line()}\n")
        sys.stderr.flush()

    def _clear(self) -> None:
        if self.below:
            sys.stderr.write(f"\x1b[{self.below}A\x1b[J")
            self.below = 0


def clock(seconds: float) -> str:
    """Seconds as 1:05 or 1:02:03."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def _last_line(log: Path, seconds: float) -> str:
    """The last thing that the log of a notebook said within these ``seconds``, without the time: what was said before them is over."""
    try:
        fresh = time.time() - log.stat().st_mtime <= seconds
        lines = log.read_text(encoding="utf-8").splitlines() if fresh else []
    except OSError:
        return ""
    return f": {lines[-1].partition(' ')[2]}" if lines else ""
