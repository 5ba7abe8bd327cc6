"""Execute the notebooks in one profile: ``python -m fedlib.reproduce --profile smoke [--paper fedthe] [-p name value ...]``.

Each notebook of ``notebooks/`` runs through papermill; its executed copy and an HTML page go beside its results. Stages that the cache
holds are read, so a second run takes seconds. Parameters given with -p are YAML values and are checked against the notebook's own names
before any notebook starts.
"""

import argparse
import os
import sys
from pathlib import Path

import nbconvert
import nbformat
import papermill
import yaml

from fedlib.names import check_name
from fedlib.notebook import PROFILES, PROJECT, output_folder

NOTEBOOKS = PROJECT / "notebooks"
WIDGET = "application/vnd.jupyter.widget-view+json"


def names() -> list[str]:
    """Papers that have a notebook, the comparison last."""
    return sorted((path.stem for path in NOTEBOOKS.glob("*.ipynb")), key=lambda name: (name == "comparison", name))


def check_parameters(paper: str, given: dict) -> None:
    """Raise ValueError for a parameter that the notebook of ``paper`` does not declare, naming the closest one it does."""
    declared = papermill.inspect_notebook(NOTEBOOKS / f"{paper}.ipynb")
    for name in given:
        check_name(name, declared, f"parameter of {paper}")


def execute(paper: str, given: dict) -> Path:
    """Run one notebook and write ``notebook.ipynb`` and ``notebook.html`` into its output folder, which is returned."""
    folder = output_folder(given.get("output"), given.get("profile", "smoke"), paper)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "notebook.ipynb"
    papermill.execute_notebook(
        NOTEBOOKS / f"{paper}.ipynb", target, given, cwd=NOTEBOOKS, progress_bar=sys.stderr.isatty(), kernel_name="python3"
    )
    page = nbconvert.HTMLExporter(exclude_input_prompt=True, exclude_output_prompt=True)
    html, _ = page.from_notebook_node(still(nbformat.read(target, 4)), {"metadata": {"name": paper}})
    # Folders shown relative to the project, so that the page does not depend on where it was made.
    (folder / "notebook.html").write_text(html.replace(f"{PROJECT}/", ""), encoding="utf-8")
    target.unlink()
    return folder


def still(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """``notebook`` without widgets, which need a kernel: a picture displayed with one stays, progress bars go."""
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if set(output.get("data", ())) != {WIDGET, "text/plain"}]
    return notebook


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="smoke", help=f"one of {', '.join(PROFILES)} (default smoke)")
    parser.add_argument("--paper", action="append", help="one notebook; may be repeated (default all)")
    parser.add_argument("-p", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"), help="a notebook parameter, YAML value")
    options = parser.parse_args(arguments)
    try:
        given = {"profile": check_name(options.profile, PROFILES, "profile")} | {name: yaml.safe_load(value) for name, value in options.p}
        papers = [check_name(paper, names(), "paper") for paper in options.paper or names()]
        for paper in papers:
            check_parameters(paper, given)
    except ValueError as error:
        sys.exit(f"error: {error}")
    # One thread per process: two busy threads on a shared machine cost several times what they gain.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for paper in papers:
        print(f"{paper}: {execute(paper, given).relative_to(PROJECT)}", flush=True)


if __name__ == "__main__":
    main()
