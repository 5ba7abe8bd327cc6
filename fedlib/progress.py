"""Progress of long loops: a bar in a terminal and in JupyterLab, a line now and then in a log.

A loop writes lines where standard error is a file, and into the file that FEDLIB_PROGRESS names, if any: so does what runs under papermill
or in worker processes, which show nothing otherwise. A loop under half a minute writes none.
"""

import contextlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from IPython import get_ipython
from tqdm.auto import tqdm as live_bar
from tqdm.std import tqdm as text_bar

SECONDS = 30  # between two lines of a log


class _Lines:
    """What tqdm writes to, one line for each of its updates; opened anew every time, as processes may share the file."""

    def __init__(self, path: str | None):
        self.path = path

    def write(self, text: str) -> None:
        if not (text := text.strip("\r\n ")):
            return
        if self.path is None:
            sys.stderr.write(f"{text}\n")
            return
        # Work never stops because its log cannot be written.
        with contextlib.suppress(OSError), Path(self.path).open("a", encoding="utf-8") as log:
            log.write(f"{text}\n")

    def flush(self) -> None:
        sys.stderr.flush()


def bar(items: Iterable, what: str, *, shown: bool = True, **options) -> live_bar:
    """``items``, with their progress under the name ``what``. shown: False leaves all but a log out; options: those of ``tqdm``."""
    log = os.environ.get("FEDLIB_PROGRESS")
    if log or not (sys.stderr.isatty() or get_ipython()):
        options |= {"mininterval": SECONDS, "maxinterval": SECONDS, "delay": SECONDS, "miniters": 1}
        return text_bar(items, what, file=_Lines(log), disable=not (shown or log), leave=False, ncols=100, **options)
    return live_bar(items, what, disable=not shown, leave=False, **options)
