"""Execute the notebooks in one profile: ``python -m fedlib.reproduce --profile smoke [--paper fedthe] [-p name value ...]``.

Each notebook of ``notebooks/`` runs through papermill; its executed copy goes as an HTML page beside its results, and the claims of all
papers to ``figures/<profile>/claims.csv``. Stages that the cache holds are read, so a second run takes seconds. Parameters given with -p
are YAML values and are checked against the notebook's own names before any notebook starts.
"""

import argparse
import os
import sys
from pathlib import Path

import nbconvert
import papermill
import yaml

from fedlib.names import check_name
from fedlib.notebook import PROFILES, PROJECT, output_folder
from fedlib.results import gather_claims

NOTEBOOKS = PROJECT / "notebooks"


def names() -> list[str]:
    """Papers that have a notebook, the comparison last."""
    return sorted((path.stem for path in NOTEBOOKS.glob("*.ipynb")), key=lambda name: (name == "comparison", name))


def check_parameters(paper: str, given: dict) -> None:
    """Raise ValueError for a parameter that the notebook of ``paper`` does not declare, naming the closest one it does."""
    declared = papermill.inspect_notebook(NOTEBOOKS / f"{paper}.ipynb")
    for name in given:
        check_name(name, declared, f"parameter of {paper}")


def execute(paper: str, given: dict) -> Path:
    """Run one notebook and write ``notebook.html`` into its output folder, which is returned."""
    folder = output_folder(given.get("output"), given.get("profile", "smoke"), paper)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "notebook.ipynb"
    papermill.execute_notebook(
        NOTEBOOKS / f"{paper}.ipynb", target, given, cwd=NOTEBOOKS, progress_bar=sys.stderr.isatty(), kernel_name="python3"
    )
    html, _ = nbconvert.HTMLExporter(exclude_input_prompt=True, exclude_output_prompt=True).from_filename(str(target))
    # Folders shown relative to the project, so that the page does not depend on where it was made.
    (folder / "notebook.html").write_text(html.replace(f"{PROJECT}/", ""), encoding="utf-8")
    target.unlink()
    return folder


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
    if "output" not in given:
        claims = gather_claims(output_folder(None, given["profile"], ""))
        print("claims:", ", ".join(f"{count} {verdict}" for verdict, count in claims["ours"].value_counts().items()) or "none")


if __name__ == "__main__":
    main()
