"""Execute the notebooks in one profile: ``python -m fedlib.reproduce --profile smoke [--paper fedthe] [-p name value ...]``.

Each notebook of ``notebooks/`` runs through papermill; its executed copy goes as an HTML page beside its results, and the claims of all
papers to ``figures/<profile>/claims.csv``. Several notebooks run at once, each with its share of the processes. Stages that the cache
holds are read, so a second run takes seconds. Parameters given with -p are YAML values; their names and values are checked for all
notebooks before the first one starts.
"""

import argparse
import ast
import importlib
import os
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

import nbconvert
import nbformat
import papermill
import yaml
from joblib import Parallel, delayed

from fedlib.files import atomic
from fedlib.names import check_name
from fedlib.notebook import PROFILES, PROJECT, output_folder
from fedlib.results import gather_claims

NOTEBOOKS = PROJECT / "notebooks"
# Notebooks whose parameters have a class, in an order in which two processes end together; the comparison reads what others cached.
PAPERS = ("fedthe", "upfl", "btfl", "fedicon", "atp", "comparison")
WIDGET = "application/vnd.jupyter.widget-view+json"


def names() -> list[str]:
    """Papers that have a notebook, in the order in which they start: new ones first, the comparison last."""
    stems = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
    return sorted(stems, key=lambda name: (name == "comparison", PAPERS.index(name) if name in PAPERS else -1))


def check_parameters(paper: str, given: dict) -> None:
    """Raise ValueError for a parameter that the notebook of ``paper`` does not declare, naming the closest one it does, and for a value
    that its parameters refuse."""
    declared = papermill.inspect_notebook(NOTEBOOKS / f"{paper}.ipynb")
    for name in given:
        check_name(name, declared, f"parameter of {paper}")
    if paper in PAPERS:
        defaults = {name: ast.literal_eval(about["default"]) for name, about in declared.items()}
        importlib.import_module(f"fedlib.papers.{paper}").parameters(defaults | given)


def execute(paper: str, given: dict) -> Path:
    """Run one notebook and write its page ``notebook.html`` into its output folder, which is returned.

    Meanwhile ``progress.log`` there tells how far it is; a notebook that fails leaves it, and ``notebook.ipynb`` up to the failure.
    """
    folder = output_folder(given.get("output"), given.get("profile", "smoke"), paper)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "progress.log"
    os.environ["FEDLIB_PROGRESS"] = str(log)
    print(f"{paper}: progress in {_shown(log)}", file=sys.stderr, flush=True)
    # A file of its own, since two of these may run at once.
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "notebook.ipynb"
        try:
            papermill.execute_notebook(
                NOTEBOOKS / f"{paper}.ipynb", target, given, cwd=NOTEBOOKS, progress_bar=sys.stderr.isatty(), kernel_name="python3"
            )
        except papermill.PapermillExecutionError:
            shutil.copy(target, folder)
            raise
        exporter = nbconvert.HTMLExporter(exclude_input_prompt=True, exclude_output_prompt=True)
        html, _ = exporter.from_notebook_node(still(nbformat.read(target, 4)), {"metadata": {"name": paper}})
    # Folders shown relative to the project, others by their parameter, so that the page does not depend on where it was made.
    for name in ("data_root", "cache", "output"):
        if Path(given.get(name) or "").is_absolute():
            html = html.replace(str(given[name]), name)
    with atomic(folder / "notebook.html") as page:
        page.write_text(html.replace(f"{PROJECT}/", ""), encoding="utf-8")
    log.unlink(missing_ok=True)
    return folder


def still(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """``notebook`` without widgets, which need a kernel: a picture displayed with one stays, progress bars go."""
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if set(output.get("data", ())) != {WIDGET, "text/plain"}]
    return notebook


def _shown(path: Path) -> Path:
    """``path`` relative to the project where it lies inside."""
    return path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path


def attempt(paper: str, given: dict) -> tuple[str, str]:
    """The paper, and "" or the traceback of what stopped its notebook: one that fails does not take the others with it."""
    try:
        print(f"{paper}: {_shown(execute(paper, given))}", flush=True)
        return paper, ""
    except Exception:
        return paper, traceback.format_exc()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="smoke", help=f"one of {', '.join(PROFILES)} (default smoke)")
    parser.add_argument("--paper", action="append", help="one notebook; may be repeated (default all)")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="in all, with one thread each (default: the cores)")
    parser.add_argument("-p", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"), help="a notebook parameter, YAML value")
    options = parser.parse_args(arguments)
    try:
        given = {"profile": check_name(options.profile, PROFILES, "profile")} | {name: yaml.safe_load(value) for name, value in options.p}
        papers = [check_name(paper, names(), "paper") for paper in options.paper or names()]
        for paper in papers:
            check_parameters(paper, given)
        if "output" in given and len(papers) > 1:
            raise ValueError(f"parameter output is one folder, but {len(papers)} notebooks would write to it: give one --paper with it")
        if options.processes < 1:
            raise ValueError(f"--processes must be at least 1, got {options.processes}")
    except (ValueError, yaml.YAMLError) as error:
        sys.exit(f"error: {error}")
    # One thread per process: two busy threads on a shared machine cost several times what they gain.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # A GPU serves one notebook at a time.
    at_once = 1 if str(given.get("device", "cpu")).startswith("cuda") else min(options.processes, len(papers))
    given = {"jobs": max(1, options.processes // at_once)} | given
    attempts = Parallel(n_jobs=at_once, return_as="generator_unordered")(delayed(attempt)(paper, given) for paper in papers)
    failures = {paper: failure for paper, failure in attempts if failure}
    if "output" not in given:
        claims = gather_claims(output_folder(None, given["profile"], ""))
        print("claims:", ", ".join(f"{count} {verdict}" for verdict, count in claims["ours"].value_counts().items()) or "none")
    if failures:
        print(*failures.values(), sep="\n", file=sys.stderr)
        sys.exit(f"error: {', '.join(failures)} stopped, see above; what was computed is cached, and the same command continues")


if __name__ == "__main__":
    main()
