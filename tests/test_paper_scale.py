import json
import os

import pytest
from papermill.exceptions import PapermillExecutionError

from fedlib import paper_scale, reproduce


@pytest.fixture
def executed(monkeypatch):
    """What would be executed; BTFL's notebook fails."""
    calls = []

    def execute(paper, given):
        calls.append((paper, given))
        if paper == "btfl":
            raise PapermillExecutionError(1, 1, "", "ValueError", "no such images", [])
        return given["output"]

    monkeypatch.setattr(reproduce, "execute", execute)
    return calls


def test_a_failed_run_leaves_the_others_alone(executed, capsys):
    with pytest.raises(SystemExit, match="1 of 5 runs failed: btfl"):
        paper_scale.main(["-p", "seeds", "[0]"])
    assert [paper for paper, _ in executed] == ["fedthe", "fedthe", "btfl", "atp", "upfl"]
    assert [given.get("split") for _, given in executed] == [None, "resplit", None, None, None]
    assert all(given["profile"] == "paper" and given["seeds"] == [0] for _, given in executed)
    assert len({given["output"] for _, given in executed}) == 5
    assert "btfl: failed, ValueError: no such images" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--run", "fedth"], "Did you mean 'fedthe'"),
        (["--profile", "papers"], "Did you mean 'paper'"),
        (["--run", "upfl", "-p", "split", "resplit"], "unknown parameter of upfl 'split'"),
    ],
)
def test_wrong_names_stop_before_any_work(executed, arguments, message):
    with pytest.raises(SystemExit, match=message):
        paper_scale.main(arguments)
    assert executed == []


def test_what_is_given_wins_over_the_run(executed):
    paper_scale.main(["--run", "upfl", "--run", "fedthe", "-p", "dataset", "cifar10_jpeg", "-p", "output", "here"])
    assert [(given["dataset"], given["output"]) for _, given in executed] == [("cifar10_jpeg", "here")] * 2
    paper_scale.main(["--run", "upfl", "--profile", "smoke"])
    assert "dataset" not in executed[-1][1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("run", "short"),
    [
        ("fedthe-resplit", {"rounds": 1, "tables": ["T1"], "alphas": [0.1], "methods": ["FedAvg", "FedTHE"], "clients": 4}),
        ("upfl", {"rounds": 5, "methods": ["FedAvg", "FedTTA"]}),
    ],
)
def test_a_run_on_digits_and_again_from_its_cache(tmp_path, monkeypatch, run, short):
    """End to end with tiny schedules; the second call reads what the first one computed."""
    monkeypatch.setenv("PYTHONPATH", str(reproduce.PROJECT) + os.pathsep + os.environ.get("PYTHONPATH", ""))
    given = short | {"seeds": [0], "cache": str(tmp_path / "cache"), "output": str(tmp_path / run), "jobs": 1}
    arguments = ["--profile", "smoke", "--run", run, *(word for n, v in given.items() for word in ("-p", n, json.dumps(v)))]
    hits = []
    for _ in range(2):
        paper_scale.main(arguments)
        hits.append(json.loads((tmp_path / run / "run.json").read_text())["cache_hits"])
    assert hits[1] > hits[0]
    assert (tmp_path / run / "claims.csv").exists()
