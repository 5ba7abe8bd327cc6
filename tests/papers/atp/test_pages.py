import json
from dataclasses import replace

import pandas as pd
import papermill
import pytest

from fedlib.notebook import PROJECT
from fedlib.papers.atp import pages as atp_pages
from fedlib.papers.atp import settings as atp
from fedlib.papers.atp import studies as atp_studies
from fedlib.papers.atp.pages import readme
from fedlib.published import cells
from tests.papers.atp.test_settings import parameters


@pytest.fixture(scope="module")
def p(tmp_path_factory):
    """Ten clients and two rounds of everything, one cache for all."""
    folders = {name: str(tmp_path_factory.mktemp(name)) for name in ("cache", "output")}
    return parameters(clients=10, domain_clients=2, rounds=2, rate_rounds=2, rate_lr=0.1, images=400, targets=0, **folders)


def test_what_is_not_asked_for_is_named_and_not_run(p):
    some = replace(p, tables=["F9"], cache="/nowhere/to/be/written")
    for name in (*atp_pages.PRINTED, *atp_pages.STUDIES):
        table = atp_pages.table(some, name)
        assert set(table["status"]) == {f"not run: {atp.NOT_ASKED}"}
        assert atp_pages.publish(some, table, "") == f"not run: {atp.NOT_ASKED}"
    for name in atp_pages.FIGURES:
        frame = atp_pages.figure(some, name)
        assert len(frame) == 0 or name == "F9"
    assert atp_pages.hyperparameters(some).empty
    assert atp_pages.beside_readme(some).empty


@pytest.mark.parametrize("name", ["T1", "T3", "T7", "F2", "F4", "F8"])
def test_an_exhibit_alone_with_one_method(p, name):
    """Whatever a single method leaves of an exhibit is shown, and the rest says why it was not run."""
    for methods in (["Tent"], ["ATP-batch"]):
        one = replace(p, tables=[name], methods=methods)
        if name.startswith("T"):
            table = atp_pages.table(one, name)
            atp_pages.publish(one, table, "about")
            assert set(table.loc[table["mean"].notna(), "method"]) <= set(methods)
            assert table["mean"].notna().any() == (name == "T1" or methods == ["ATP-batch"])
        else:
            text = atp_pages.draw(one, name, atp_pages.figure(one, name), "about")
            absent = name != "F2" and methods == ["Tent"]
            assert text == f"not run: {atp.LEFT_OUT}" if absent else text.startswith(f"Figure {name[1:]}")


def test_captions_say_how_much_of_a_stream_was_read(p):
    assert "first 60 images of each stream" in atp_pages.caption(p, "F3", "about")
    assert "first 60 images of each stream" in atp_pages.caption(p, "F8", "about")
    assert "all images of each stream" in atp_pages.caption(replace(p, costly_samples=0), "F3", "about")
    assert "of each stream" not in atp_pages.caption(p, "F5", "about")


def test_hyperparameters_are_filed_with_every_candidate(p):
    some = replace(p, tables=["T1"], methods=["Tent", "EM", "ATP-batch"])
    atp_pages.table(some, "T1")
    frame = atp_pages.hyperparameters(some)
    assert set(frame["method"]) == {"Tent", "EM"}
    assert sorted(frame[(frame["method"] == "Tent") & (frame["setting"] == "label shift")]["candidate"]) == [
        "lr=0.001",
        "lr=0.01",
        "lr=0.1",
    ]
    by = frame.groupby(["setting", "method", "seed", "state"])
    assert (by["chosen"].sum() == 1).all()
    picked = frame[frame["chosen"]].set_index(["setting", "method"])["validation"]
    assert (picked == by["validation"].max().droplevel(["seed", "state"]).reindex(picked.index)).all()
    kept = pd.read_csv(some.folder("atp") / "hyperparameters.csv")
    assert kept["candidate"].tolist() == frame["candidate"].tolist()
    assert atp_pages.chosen(frame).loc[("cifar10", "resnet18", "Tent"), "label shift"].startswith("lr=")


def test_authors_own_run_stands_beside_seed_0_only(p):
    two = replace(p, tables=["T1"], methods=["NoAdapt"], seeds=[0, 1])
    both = atp_pages.beside_readme(two)
    rows = atp.measure(two, "cifar10", ["NoAdapt"])
    own = atp.average(rows[rows["seed"] == 0]).set_index("setting")["mean"]
    assert both.set_index("setting")["ours"].tolist() == own.reindex(both["setting"]).tolist()
    assert both["authors"].tolist() == [69.62, 72.58, 63.55]
    assert set(both["status"]) == {"stand-in"}
    assert atp_pages.beside_readme(replace(two, seeds=[1])).empty


def test_authors_own_run_is_no_printed_table():
    frame = readme()
    assert len(frame) == 18
    assert set(frame["table"]) == {"README"}
    assert "README" not in set(cells("atp")["table"])
    place = ["dataset", "model", "setting", "method", "column"]
    printed = pd.concat([cells("atp", "T1"), cells("atp", "T5")])
    gap = frame.merge(printed, on=place, suffixes=("", "_printed"))
    # One run lies within a point of the printed means of five.
    assert len(gap) == 18
    assert (gap["mean_value"] - gap["mean_value_printed"]).abs().max() < 1


def test_notebook_asks_for_every_exhibit_by_a_name_that_exists():
    cells_ = json.loads((PROJECT / "notebooks" / "atp.ipynb").read_text())["cells"]
    source = "".join("".join(cell["source"]) for cell in cells_ if cell["cell_type"] == "code")
    for name in atp.SECTIONS:
        call = "pages.corruptions(p" if name == "F7" else f'pages.{"table" if name.startswith("T") else "figure"}(p, "{name}")'
        assert call in source, name
    assert set(atp.SECTIONS) == {*atp_pages.PRINTED, *atp_pages.STUDIES, *atp_pages.FIGURES, "F7"}
    assert set(atp_studies.OWN) < set(parameters().recipes())


@pytest.mark.slow
@pytest.mark.parametrize("given", [{"methods": ["Tent"]}, {"tables": ["F7"]}, {"tables": ["T5"], "methods": ["ATP-batch"]}])
def test_notebook_runs_with_one_method_or_exhibit(tmp_path, given):
    tiny = {"clients": 10, "domain_clients": 2, "rounds": 2, "rate_rounds": 2, "images": 400, "jobs": 1}
    folders = {"cache": str(tmp_path / "cache"), "output": str(tmp_path / "output")}
    papermill.execute_notebook(PROJECT / "notebooks" / "atp.ipynb", tmp_path / "run.ipynb", tiny | folders | given, progress_bar=False)
    run = json.loads((tmp_path / "output" / "run.json").read_text())
    assert run["parameters"]["methods"] == given.get("methods")
    claims = pd.read_csv(tmp_path / "output" / "claims.csv")
    assert (claims["ours"] == "not run").any()
