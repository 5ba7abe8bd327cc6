"""What JupyterLab saves of the kit's notebooks (``jupyter_server_config.py``)."""

from pathlib import Path
from typing import Any

from fedlib.tools.parameters import PROJECT

# What the kit's notebooks say of their kernel; JupyterLab would write the name and version of the one that is running.
KERNEL = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def without_outputs(model: dict[str, Any], path: str, contents_manager: Any, **_) -> None:
    """A hook that runs before a file is saved: of a notebook in ``notebooks/`` the outputs, counts, the widgets' state and
    the kernel's version are left out.

    What is on the screen stays there. A notebook under another folder is saved as it is: that is where to keep one with its outputs.
    """
    folder = (Path(contents_manager.root_dir) / path.strip("/")).resolve().parent
    if model["type"] != "notebook" or folder != PROJECT / "notebooks":
        return
    model["content"]["metadata"].pop("widgets", None)
    model["content"]["metadata"] |= KERNEL
    for cell in model["content"]["cells"]:
        for kind in ("execution", "collapsed", "scrolled"):
            cell["metadata"].pop(kind, None)
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
