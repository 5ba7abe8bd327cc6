import json
import os
import time

import pytest

from fedlib import campaign, reproduce
from fedlib.campaign import DONE, ENTRIES, OTHER, WAITING, state_of
from fedlib.paper import paper_of
from fedlib.tools.parameters import declared


class Calls(list):
    """What was executed, and beside it which folders have an account, and of which folders and caches trained federations were exported."""

    def __init__(self):
        super().__init__()
        self.accounts = []
        self.exported = []


@pytest.fixture
def executed(monkeypatch, tmp_path):
    """What would be executed; BTFL's notebook with all methods fails. Results and status go to a folder of the test."""
    calls = Calls()

    def execute_all(runs, at_once, *, verbose):
        (run,) = runs
        paper, given = run.notebook.stem, run.given
        calls.append((paper, given))
        if paper == "btfl" and "methods" not in given:
            return runs
        folder = tmp_path / given["output"]
        folder.mkdir(parents=True)
        p = paper_of(paper).read(declared(run.notebook) | given)
        run = {"profile": p.profile, "seeds": p.seeds, "parameters": p.facts()}
        (folder / "run.json").write_text(json.dumps(run))
        (folder / "progress.log").write_text("12:00:01 FedAvg: 1/9\n12:00:02 GMA: 2/9\n12:00:03 FedAvg: 3/9\n")
        return []

    monkeypatch.setattr(campaign, "PROJECT", tmp_path)
    monkeypatch.setattr(campaign, "write_account", lambda folder: calls.accounts.append(folder.name))
    monkeypatch.setattr(campaign, "export", lambda run, cache: calls.exported.append((run, cache)))
    monkeypatch.setattr(campaign, "execute_all", execute_all)
    return calls


def states(status):
    """The first two words of every line: an entry and its state."""
    return [line.split()[:2] for line in status.read_text().splitlines()]


def test_a_failed_entry_leaves_the_others_alone_and_a_repeat_runs_it_alone(executed, tmp_path):
    with pytest.raises(SystemExit, match=f"1 of {len(ENTRIES)} entries failed: btfl"):
        campaign.main([])
    assert len(executed) == len(ENTRIES)
    assert all(given["profile"] == "paper" for _, given in executed)
    assert len({given["output"] for _, given in executed}) == len(ENTRIES)
    with pytest.raises(SystemExit, match="btfl"):
        campaign.main([])
    assert [paper for paper, _ in executed[len(ENTRIES) :]] == ["btfl"]
    assert ["fedthe", "done"] in states(tmp_path / "cache" / "campaign.txt")


def test_what_ends_well_leaves_its_trained_federations(executed, tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit, match="btfl"):
        campaign.main(["--entry", "fedthe", "--entry", "btfl", "-p", "cache", "there"])
    assert executed.exported == [(campaign.prepared("fedthe", executed[0][1]).folder, tmp_path / "there")]

    def refuse(run, cache):
        raise FileNotFoundError("nothing is left of it")

    monkeypatch.setattr(campaign, "export", refuse)
    campaign.main(["--entry", "atp"])
    assert "nothing is left of it" in capsys.readouterr().out


def test_what_has_a_print_leaves_an_account_and_the_comparison_none(executed):
    campaign.main(["--entry", "comparison-pacs", "--entry", "atp"])
    assert (len(executed), executed.accounts) == (2, ["atp"])


def test_other_numbers_are_another_run_and_more_seeds_or_tables_serve(executed, capsys):
    campaign.main(["--entry", "fedthe-seeds-all"])
    values = campaign.parameters("fedthe-seeds-all", "paper", {})
    for same in ({}, {"seeds": [1]}, {"tables": ["T1"]}, {"jobs": 7, "cache": "elsewhere"}):
        assert state_of("fedthe", values | same) == DONE
    for other in ({"seeds": [3]}, {"tables": ["T1", "T2"]}, {"tables": "all"}, {"rounds": 6}):
        assert state_of("fedthe", values | other) == OTHER
    assert state_of("fedthe", values | {"output": "nowhere"}) == WAITING
    message = "left out, as another run is there: figures/cifar10-jpeg/fedthe-seeds-all"
    with pytest.raises(SystemExit, match=f"error: {message}. Move it"):
        campaign.main(["--entry", "fedthe-seeds-all", "-p", "rounds", "6"])
    assert len(executed) == 1
    with pytest.raises(SystemExit, match="btfl"):  # the whole list goes on
        campaign.main(["-p", "rounds", "6"])
    assert len(executed) == len(ENTRIES)
    assert f"{message}. Move it" in capsys.readouterr().out
    campaign.main(["--entry", "fedthe-seeds-all", "-p", "rounds", "6", "--list"])
    assert capsys.readouterr().out.endswith("other run: the folder holds a run with other parameters, which is left as it is\n")


def test_hours_add_up_over_restarts_and_the_file_says_how_far_it_is(tmp_path):
    log = tmp_path / "progress.log"
    log.write_text("12:00:01 FedAvg: 1/9\n12:00:02 GMA: 2/9\n12:00:03 FedAvg: 3/9\n")
    for spent in (1, 2):
        status = campaign.Status(tmp_path, ["btfl", "atp"], {"btfl": "waiting", "atp": "waiting"})
        with status.running("btfl", log):
            time.sleep(0.3)
            text = (tmp_path / "campaign.txt").read_text()
            assert ["btfl", "running"] in states(tmp_path / "campaign.txt")
            assert text.rstrip().splitlines()[-2:] == ["12:00:02 GMA: 2/9", "12:00:03 FedAvg: 3/9"]
        assert status.hours["btfl"] * 3600 >= 0.2 * spent
        assert status.state == {"btfl": "done", "atp": "waiting"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--entry", "fedth"], "Did you mean 'fedthe'"),
        (["--profile", "papers"], "Did you mean 'paper'"),
        (["--entry", "atp", "-p", "split", "resplit"], "unknown parameter of atp 'split'"),
        (["--entry", "atp", "--entry", "btfl", "-p", "output", "here"], "2 entries cannot share the folder 'here'"),
    ],
)
def test_wrong_names_stop_before_any_work(executed, arguments, message):
    with pytest.raises(SystemExit, match=message):
        campaign.main(arguments)
    assert executed == []


def test_what_is_given_wins_over_the_entry(executed):
    campaign.main(["--entry", "atp", "-p", "dataset", "cifar10", "-p", "output", "here"])
    assert [(given["dataset"], given["output"]) for _, given in executed] == [("cifar10", "here")]
    campaign.main(["--entry", "atp", "--profile", "smoke"])
    assert "dataset" not in executed[-1][1]


def test_the_list_says_what_is_done(executed, capsys):
    campaign.main(["--entry", "atp"])
    capsys.readouterr()
    campaign.main(["--entry", "atp", "--entry", "btfl", "--list"])
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [["atp", "done"], ["btfl", "waiting"]]
    assert len(executed) == 1


def test_a_run_of_all_serves_whoever_asks_for_some(executed):
    campaign.main(["--entry", "atp", "-p", "tables", "all", "-p", "methods", "all"])
    values = campaign.parameters("atp", "paper", {"tables": "all", "methods": "all"})
    for same in ({}, {"tables": ["T1"]}, {"methods": ["Tent", "SHOT"]}):
        assert state_of("atp", values | same) == DONE


def test_an_entry_without_tables_has_no_account_and_stops_no_other(executed, monkeypatch, capsys):
    def refuse(folder):
        raise FileNotFoundError("it holds no table")

    monkeypatch.setattr(campaign, "write_account", refuse)
    campaign.main(["--entry", "atp", "--entry", "upfl"])
    assert "it holds no table" in capsys.readouterr().out
    assert len(executed) == len(executed.exported) == 2


def test_what_was_stopped_after_its_results_gets_its_account_and_federations(executed, monkeypatch, tmp_path):
    finish = campaign._finish
    arguments = ["--entry", "atp", "-p", "output", str(tmp_path / "run")]
    monkeypatch.setattr(campaign, "_finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(SystemExit, match="the same command continues"):
        campaign.main(arguments)
    assert ["atp", "waiting"] in states(tmp_path / "cache" / "campaign.txt")
    monkeypatch.setattr(campaign, "_finish", finish)
    campaign.main(arguments)
    assert (len(executed), executed.accounts, len(executed.exported)) == (1, ["run"], 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_entry_on_digits_and_again_from_its_cache(tmp_path, monkeypatch):
    """End to end with a tiny schedule; the account of the run lies beside its tables, and a repeat finds it done."""
    monkeypatch.setenv("PYTHONPATH", str(reproduce.PROJECT) + os.pathsep + os.environ.get("PYTHONPATH", ""))
    given = {"rounds": 1, "tables": ["T1"], "methods": ["FedAvg", "FedTHE"], "clients": 4, "jobs": 1}
    given |= {"cache": str(tmp_path / "cache"), "output": str(tmp_path / "run")}
    arguments = ["--profile", "smoke", "--entry", "fedthe-resplit", *(word for n, v in given.items() for word in ("-p", n, json.dumps(v)))]
    campaign.main(arguments)
    assert (tmp_path / "run" / "account.md").exists()
    assert (tmp_path / "run" / "pretrained" / "manifest.json").exists()
    written = (tmp_path / "run" / "run.json").read_bytes()
    campaign.main(arguments)
    assert (tmp_path / "run" / "run.json").read_bytes() == written


def test_what_an_entry_leaves_can_be_committed():
    """Of figures/ git takes the folders that are named, and no others."""
    taken = (reproduce.PROJECT / ".gitignore").read_text(encoding="utf-8")
    for name in ENTRIES:
        folder = campaign.parameters(name, "paper", {})["output"].split("/")[1]
        assert f"!/figures/{folder}/\n" in taken
