"""What the documents beside the code say of it: the map of the package, how the papers are cited, and where links lead."""

import os
import re
import subprocess
import sys
from collections import Counter
from importlib import import_module

import pandas as pd
import pytest
import yaml

from fedlib.commands.ledger import ledger, page
from fedlib.tools.parameters import PROJECT

PAPERS = ("fedthe", "upfl", "atp", "fedicon", "btfl")


def test_the_map_of_the_package_names_every_module_and_folder_and_no_other():
    page = (PROJECT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| (`.*?) \|", page.split("## Layout")[1], re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)(?:\.py)?`", row)}
    package = PROJECT / "fedlib"
    modules = {path.stem for path in package.glob("*.py") if not path.stem.startswith("__")}
    folders = {path.name for path in package.iterdir() if path.is_dir() and list(path.glob("*.py"))}
    assert named == modules | folders


@pytest.mark.parametrize("name", PAPERS)
def test_a_paper_is_cited_alike_in_its_folder_and_in_the_citation_file(name):
    citation = import_module(f"fedlib.papers.{name}").PAPER.citation
    entries = {entry["authors"][0]["family-names"]: entry for entry in yaml.safe_load((PROJECT / "CITATION.cff").read_text())["references"]}
    entry = entries[re.match(r"\w+", citation)[0]]
    *others, last = (author["family-names"] for author in entry["authors"])
    venue = re.search(r"\((\w+)\)$", entry["conference"]["name"])[1]
    assert citation.casefold() == f"{', '.join(others)} and {last}, {entry['title']}, {venue} {entry['year']}".casefold()


PAGES = ("README", "FINDINGS", "CLAIMS")


def anchors(page: str) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *(f"figures/{page}.md" for page in PAGES)])
def test_links_lead_somewhere(name):
    here = PROJECT / name
    for link in re.findall(r"\]\((?!https?:)([^)]*)\)", page := here.read_text()):
        path, _, anchor = link.strip("<>").partition("#")
        target = here.parent / path if path else here
        assert target.exists(), f"{name} links {link}"
        assert not anchor or anchor in anchors(target.read_text()), f"{name} links {link}"
    folders = re.findall(r"`(?:figures/)?((?:cifar10-jpeg|mnist-5k|pacs64|digits)/[\w\-/.]+)`", page)
    assert [folder for folder in folders if not (PROJECT / "figures" / folder).exists()] == []


# Those of the full schedules first.
RUNS = (
    *(f"cifar10-jpeg/{run}" for run in ("fedthe", "fedthe-two", "btfl", "btfl-times")),
    *("mnist-5k/upfl", "cifar10-jpeg/atp", "pacs64/fedicon"),
    *(f"digits/{run}" for run in ("fedthe-small", "btfl", "upfl", "atp", "fedicon")),
)
ADVISE = (
    *(f"cifar10-jpeg/comparison-{run}" for run in ("seeds-100", "upfl-120", "ttpfl-100", "ttpfl")),
    *(f"pacs64/comparison-{run}" for run in ("covariate", "domain")),
)


def test_the_advice_in_the_findings_is_what_the_committed_runs_say():
    """Row by row: shifts down, each from the first run that has it, starred as in the picture where it rests on stand-ins; situations
    across."""
    rows = {}
    for run in ADVISE:
        frame = pd.read_csv(PROJECT / "figures" / run / "advice.csv")
        answer = pd.read_csv(PROJECT / "figures" / run / "answer.csv")
        trainings = 5 if run.endswith("seeds-100") else 3
        assert {*answer["n_seeds"].dropna()} == {trainings}, "the page says how many"
        starred = {*answer.loc[answer["status"].str.contains("stand-in"), "shift"]}
        cells = frame["use"].where(frame["gain"] > 0, "–") + frame["gain"].map(lambda gain: f" {gain:.1f}" if gain > 0 else "")
        for shift, own in cells.groupby(frame["shift"], sort=False):
            rows.setdefault(shift, f"| {shift}{' *' if shift in starred else ''} | {' | '.join(own)} |")
    table = (PROJECT / "figures" / "FINDINGS.md").read_text().split("| shift | nothing is missing |")[1].split("\n\n")[0]
    assert table.splitlines()[2:] == [*rows.values()]


def test_the_page_of_claims_is_what_the_committed_runs_say():
    """Else make it anew: ``fedlib ledger``, in ``figures/``, with these runs and ``--out CLAIMS.md``."""
    figures = PROJECT / "figures"
    assert page(ledger([figures / run for run in RUNS]), figures) == (figures / "CLAIMS.md").read_text()


def test_the_front_page_counts_the_claims_as_their_page_does():
    ours = Counter()
    for verdicts in re.findall(r"^\d+ claims\. .* Ours: (.*)\.$", (PROJECT / "figures" / "CLAIMS.md").read_text(), re.MULTILINE):
        ours.update({verdict.rstrip("s"): int(n) for n, verdict in re.findall(r"(\d+) ([a-z ]+)", verdicts)})
    told = re.search(
        r"\[(\d+) claims\].*?(\d+) hold.*?(\d+) fails.*?(\d+) are undecided.*?(\d+) not run",
        " ".join((PROJECT / "README.md").read_text().split()),
    )
    verdicts = ("hold", "fail", "undecided", "not run")
    assert [int(n) for n in told.groups()] == [ours.total(), *(ours[verdict] for verdict in verdicts)]


def test_the_code_of_the_front_page_runs_from_top_to_bottom(tmp_path):
    """And the shift of one's own that it defines, which it leaves to the reader to run."""
    code = re.findall(r"^```python\n(.*?)^```", (PROJECT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    dimmed = """setting = replace(setting, protocol=Dimmed("digits", n_clients=6))
rows = fedlib.run([setting], RECIPES, seeds=[0])
assert {"original", "dimmed"} <= {*fedlib.table(rows)}
"""
    (tmp_path / "page.py").write_text("\n\n".join([*code, dimmed]))
    environment = os.environ | {"PYTHONPATH": str(PROJECT), "MPLBACKEND": "Agg"}
    subprocess.run([sys.executable, "page.py"], cwd=tmp_path, env=environment, check=True, timeout=600)
    assert (tmp_path / "shifts.png").stat().st_size > 10_000


@pytest.mark.parametrize(("paper", "run", "table"), [("FedTHE", "fedthe", "T1"), ("BTFL", "btfl", "T2"), ("ATP", "atp", "T5")])
def test_the_front_page_counts_near_cells_as_the_accounts_do(paper, run, table):
    account = pd.read_csv(PROJECT / "figures" / "cifar10-jpeg" / run / "account.csv")
    account = account[(account["table"] == table) & ~account["column"].isin(["all", "avg_rank"])]
    told = re.search(rf"^\| \[{paper}\].*?\| (\d+) of (\d+)", (PROJECT / "README.md").read_text(), re.MULTILINE)
    assert [int(n) for n in told.groups()] == account[["near", "run"]].sum().tolist()
