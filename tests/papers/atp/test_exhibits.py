import json

import pandas as pd
import papermill
import pytest

from fedlib.papers.atp import PAPER
from fedlib.papers.atp.exhibits import clients
from fedlib.protocols.ttpfl import TTPFL
from fedlib.published import claims_of
from fedlib.study import NOT_ASKED, NOT_HERE
from fedlib.tools.parameters import PROJECT
from tests.papers.atp.test_settings import study


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """Ten clients and two rounds of everything, one cache for all."""
    folders = {name: str(tmp_path_factory.mktemp(name)) for name in ("cache", "output")}
    return {"clients": 10, "domain_clients": 2, "rounds": 2, "rate_rounds": 2, "rate_lr": 0.1, "images": 400, "targets": 0} | folders


def test_what_is_not_asked_for_is_named_and_not_run(given):
    some = study(given, tables=["F9"], cache="/nowhere/to/be/written")
    for exhibit in PAPER.exhibits:
        if exhibit.name in ("F9", "clients"):
            continue
        assert some.show(exhibit.name) == NOT_HERE
        frame = some.frame(exhibit.name)
        assert set(frame["status"]) == {f"not run: {NOT_ASKED}"} if some.is_printed(exhibit) else frame.empty
    assert len(some.frame("F9"))


@pytest.mark.parametrize("name", ["T1", "T3", "T7", "F2", "F4", "F8"])
def test_an_exhibit_alone_with_one_method(given, name):
    """Whatever a single method leaves of an exhibit is shown, and the rest says why it was not run."""
    for methods in (["Tent"], ["ATP-batch"]):
        one = study(given, tables=[name], methods=methods)
        shown = one.show(name)
        if name.startswith("T"):
            table = one.frame(name)
            assert set(table.loc[table["mean"].notna(), "method"]) <= set(methods)
            assert table["mean"].notna().any() == (name == "T1" or methods == ["ATP-batch"])
        else:
            absent = name != "F2" and methods == ["Tent"]
            assert shown == f"not run: {PAPER.left_out}" if absent else shown.startswith(f"Figure {name[1:]}")


def test_captions_say_how_much_of_a_stream_was_read(given):
    some = study(given)
    for name in ("F3", "F8"):
        assert "all methods on the first 60 images of a stream" in some.about(PAPER.exhibit(name))
    few = study(given, methods=["NoAdapt", "MEMO"])
    assert "per-sample methods on the first 6 images of a stream" in few.about(PAPER.exhibit("T1"))
    assert "of a stream" not in study(given, costly_samples=0).about(PAPER.exhibit("F3"))
    assert "of a stream" not in some.about(PAPER.exhibit("F5"))


def test_captions_say_who_learned_what_for_how_long(given):
    images = {"dataset": "digits", "digits5": "digits5", "pacs": "digits5"}
    p = study(given, profile="paper", rate_rounds=None, last_rounds=2, tables=["T2", "T7"], **images).p
    told = {name: PAPER.who(p, PAPER.exhibit(name).blocks(p)) for name in ("T2", "T7")}
    assert told["T7"] == "8 source and 2 target clients, rates learned in 200 rounds, mean of the last 2 models saved"
    assert told["T2"] == "2 clients a domain, rates learned in 200/500 rounds, mean of the last 2 models saved"
    p = study(given, last_rounds=2, methods=["Tent"]).p
    assert "rates" not in PAPER.who(p, PAPER.exhibit("T1").blocks(p))
    assert "mean of" not in PAPER.who(p, PAPER.exhibit("F3").blocks(p))


def test_captions_count_the_clients_of_every_data_set(given):
    p = study(given).p
    protocols = [TTPFL("digits", "label", 10, targets=0), TTPFL("digits5", "hybrid", 20, targets=0)]
    assert clients(p, protocols) == "8/16 source and 2/4 target clients"
    assert clients(p, protocols[:1]) == clients(p) == "8 source and 2 target clients"


def test_every_shift_has_its_clients_in_the_picture(given):
    some = study(given, tables=["F9"])
    assert some.show("clients").startswith("Clients under three shifts")
    counts = some.frame("clients")
    assert counts.groupby("setting", sort=False).size().to_dict() == dict.fromkeys(("feature shift", "label shift", "hybrid shift"), 10)
    first = some.p.settings()[1].protocol.build(0).clients[0]
    label = counts[(counts["setting"] == "label shift") & (counts["client"] == 0)]
    assert label[[str(digit) for digit in range(10)]].sum(axis=1).item() == len(first.train)


def test_notebook_shows_every_exhibit_and_claims_have_theirs():
    cells = json.loads((PROJECT / "notebooks" / "atp.ipynb").read_text())["cells"]
    source = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    shown = {exhibit.name for exhibit in PAPER.exhibits if f'study.show("{exhibit.name}")' in source}
    assert {exhibit.name for exhibit in PAPER.exhibits} - shown == {"A16"}
    # A17 needs a GPU run.
    assert set(claims_of("atp").FIGURE_COLUMNS) - {exhibit.name for exhibit in PAPER.exhibits} == {"A17"}


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
