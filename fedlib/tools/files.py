"""Where data lie, and writing files so that no reader ever sees half of one."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def data_folder(root: str | Path | None = None) -> Path:
    """The folder of real data sets and published weights: ``root``, else the environment variable FEDLIB_DATA, else ``data``."""
    return Path(root or os.environ.get("FEDLIB_DATA") or "data").expanduser()


@contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` to write to; rename it to ``path`` when the block ends well, remove it when it raises.

    The folder is created if it is absent. The temporary name keeps the suffix and belongs to this call alone, so that processes
    writing the same file replace it one after the other. Raises FileNotFoundError if the block has written nothing.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}-{uuid.uuid4().hex}{path.suffix}")
    try:
        yield temporary
        if not temporary.exists():
            raise FileNotFoundError(f"nothing was written to {temporary}, so {path} is left as it was")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
