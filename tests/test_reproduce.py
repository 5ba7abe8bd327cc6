import re
import shutil
import signal
import subprocess
import sys
import time

import nbformat
import numpy as np
import pandas as pd
import pytest

from fedlib import reproduce
from fedlib.cache.trim import LIMITS
from fedlib.results import CLAIM_COLUMNS, write_claims, write_run
from fedlib.tools import batch, parameters
from fedlib.tools.parameters import PROJECT


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with two small notebooks."""
    source = '# Parameters\nprofile = "smoke"  # profile\nrounds = 1  # rounds\noutput = None  # folder\ncache = "cache"  # folder\n'
    for name, more in (("fedthe", "print(profile, 2 * rounds)"), ("comparison", "1 / 0")):
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source), nbformat.v4.new_code_cell(more)])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        notebook.cells[0].metadata["tags"] = ["parameters"]
        (tmp_path / "notebooks").mkdir(exist_ok=True)
        nbformat.write(notebook, tmp_path / "notebooks" / f"{name}.ipynb")
    monkeypatch.setattr(reproduce, "NOTEBOOKS", tmp_path / "notebooks")
    for module in (reproduce, batch, parameters):
        monkeypatch.setattr(module, "PROJECT", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reproduce, "ORDER", ())
    monkeypatch.setattr(reproduce, "output_folder", lambda output, profile, paper: tmp_path / (output or f"figures/{profile}/{paper}"))
    return tmp_path


def test_a_new_notebook_comes_first_and_the_comparison_last(project, monkeypatch):
    monkeypatch.setattr(reproduce, "ORDER", ("fedthe", "comparison"))
    (project / "notebooks" / "sixth.ipynb").write_text("{}")
    assert reproduce.names() == ["sixth", "fedthe", "comparison"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--profile", "smok"], "Did you mean 'smoke'"),
        (["--paper", "fedth"], "Did you mean 'fedthe'"),
        (["-p", "output", "here"], "2 notebooks would write to it"),
        (["--paper", "fedthe", "--processes", "0"], "--processes must be at least 1, got 0"),
        (["--paper", "fedthe", "-p", "round", "3"], "unknown parameter of fedthe 'round'. Did you mean 'rounds'"),
        (["--paper", "fedthe", "-p", "rounds", "1:30"], "'1:30' has more than one meaning"),
        (["--paper", "fedthe", "-p", "rounds", "3", "-p", "rounds", "4"], "parameter rounds is given twice"),
    ],
)
def test_wrong_names_stop_before_any_work(project, arguments, message):
    with pytest.raises(SystemExit) as stopped:
        reproduce.main(arguments)
    assert str(stopped.value).startswith("error: ")
    assert message in str(stopped.value)
    assert not (project / "figures").exists()


@pytest.mark.filterwarnings("ignore")
def test_a_notebook_is_executed_with_its_parameters(project, capsys):
    reproduce.main(["--paper", "fedthe", "--profile", "small", "-p", "rounds", "21", "-p", "output", "here"])
    written = capsys.readouterr()
    assert re.fullmatch(r"fedthe: done in \d+:\d\d, see here/notebook\.html\n", written.out)
    assert written.err == ""
    assert "small 42" in (project / "here" / "notebook.html").read_text()
    assert [path.name for path in (project / "here").iterdir()] == ["notebook.html"]


@pytest.mark.filterwarnings("ignore")
def test_claims_of_all_papers_are_gathered(project, capsys):
    for paper, ours in (("atp", "holds"), ("btfl", "not run")):
        row = {"claim": paper[0].upper() + "1", "text": "t", "published": "holds", "ours": ours, "verdict": ours, "evidence": "e"}
        write_claims(pd.DataFrame([row]), project / "figures" / "smoke" / paper)
        write_run(
            project / "figures" / "smoke" / paper, profile="smoke", seeds=[0], device="cpu", duration_seconds=1, cache_hits=0, accounts=[]
        )
    reproduce.main(["--paper", "fedthe"])
    ending = "claims of all papers in this folder: 1 holds, 1 not run, see figures/smoke/claims.csv\neverything: figures/smoke/index.html\n"
    assert capsys.readouterr().out.endswith(ending)
    assert "1 holds" in (project / "figures" / "smoke" / "index.html").read_text()
    gathered = pd.read_csv(project / "figures" / "smoke" / "claims.csv")
    assert list(gathered.columns) == ["paper", *CLAIM_COLUMNS]
    assert gathered[["paper", "claim", "ours"]].to_numpy().tolist() == [["atp", "A1", "holds"], ["btfl", "B1", "not run"]]


@pytest.mark.filterwarnings("ignore")
def test_a_run_of_all_notebooks_begins_with_the_quickstart(project, capsys):
    """It has no parameters, and is done in seconds."""
    notebook = nbformat.read(project / "notebooks" / "fedthe.ipynb", as_version=4)
    notebook.cells = [nbformat.v4.new_code_cell("print(6 * 7)")]
    nbformat.write(notebook, project / "notebooks" / "quickstart.ipynb")
    reproduce.main(["--paper", "fedthe", "-p", "rounds", "2"])
    assert "quickstart" not in capsys.readouterr().out
    reproduce.main(["--paper", "quickstart"])
    assert capsys.readouterr().out.startswith("quickstart: done in 0:")
    with pytest.raises(SystemExit, match="comparison stopped"):
        reproduce.main(["--processes", "1", "-p", "rounds", "2"])
    assert capsys.readouterr().out.startswith("quickstart: done in 0:")
    assert "42" in (project / "figures" / "smoke" / "quickstart" / "notebook.html").read_text()
    assert 'href="quickstart/notebook.html"' in (project / "figures" / "smoke" / "index.html").read_text()


@pytest.mark.filterwarnings("ignore")
def test_a_notebook_that_stops_leaves_the_others_their_results(project, capsys):
    """And, of one that stopped before, nothing beside its results."""
    before = project / "figures" / "smoke" / "fedthe" / "notebook.ipynb"
    before.parent.mkdir(parents=True)
    before.touch()
    with pytest.raises(SystemExit, match="comparison stopped"):
        reproduce.main(["--processes", "1"])
    written = capsys.readouterr()
    assert written.err.count("ZeroDivisionError") == 1
    assert "in cell 3 of 3" in written.err
    assert "  | 1 / 0\n  ZeroDivisionError: division by zero\n" in written.err
    assert "Traceback" not in written.err
    assert "--verbose shows the traceback" in written.err
    assert "see figures/smoke/fedthe/notebook.html" in written.out
    assert (project / "figures" / "smoke" / "fedthe" / "notebook.html").exists()
    assert (project / "figures" / "smoke" / "comparison" / "notebook.ipynb").exists()
    assert not before.exists()


@pytest.mark.filterwarnings("ignore")
def test_a_page_does_not_show_where_it_was_made(project, tmp_path):
    reproduce.main(["--paper", "fedthe", "-p", "cache", str(tmp_path / "elsewhere"), "-p", "output", str(tmp_path / "mine")])
    page = (tmp_path / "mine" / "notebook.html").read_text()
    assert "elsewhere" not in page
    assert "mine" not in page
    assert str(tmp_path) not in page


@pytest.mark.filterwarnings("ignore")
def test_the_whole_traceback_comes_where_it_is_asked_for(project, capsys):
    with pytest.raises(SystemExit):
        reproduce.main(["--paper", "comparison", "--verbose"])
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_paths_start_where_one_is(tmp_path, monkeypatch):
    """Notebooks run in a folder of their own, beside which another file may have the same name."""
    for name in ("mine.npz", "methods.py"):
        (tmp_path / name).touch()
    (tmp_path / "digits").mkdir()
    monkeypatch.chdir(tmp_path)
    given = reproduce.given_values(
        [("dataset", "mine.npz"), ("extra", "methods.py:RECIPES"), ("start", "digits/fedthe"), ("output", "results")]
    )
    own = {"dataset": f"{tmp_path}/mine.npz", "extra": f"{tmp_path}/methods.py:RECIPES", "output": f"{tmp_path}/results"}
    assert given == own | {"start": "digits/fedthe"}
    assert reproduce.given_values([("cache", "stages")]) == {"cache": f"{tmp_path}/stages"}
    assert reproduce.given_values([("dataset", "digits")]) == {"dataset": "digits"}


def test_committed_results_stop_before_any_work(monkeypatch):
    monkeypatch.setattr(reproduce, "execute_all", lambda *_, **__: pytest.fail("a notebook was started"))
    folder = PROJECT / "figures" / "cifar10-jpeg" / "fedthe"
    with pytest.raises(SystemExit, match="error: parameter output: figures/cifar10-jpeg/fedthe holds committed results"):
        reproduce.main(["--paper", "fedthe", "-p", "output", str(folder)])


def test_in_the_project_folders_are_as_given(monkeypatch):
    monkeypatch.chdir(PROJECT)
    assert reproduce.given_values([("output", "figures/mine")]) == {"output": "figures/mine"}


def test_wrong_data_files_stop_before_any_work(tmp_path, monkeypatch):
    """A file without one of its arrays, and one with images of another shape."""
    monkeypatch.setattr(reproduce, "execute_all", lambda *_, **__: pytest.fail("a notebook was started"))
    images, labels = np.zeros((10, 32, 32, 3), np.uint8), np.arange(10)
    command = ["--paper", "fedthe", "-p", "dataset", "cifar10_jpeg", "-p", "data_root", str(tmp_path)]
    np.savez(tmp_path / "cifar10.npz", x_train=images, y_train=labels, x_test=images)
    with pytest.raises(SystemExit, match=r"cifar10\.npz: no y_test; the file must hold"):
        reproduce.main(command)
    np.savez(tmp_path / "cifar10.npz", x_train=images[:, :28], y_train=labels, x_test=images[:, :28], y_test=labels)
    with pytest.raises(SystemExit, match=r"its images must have the shape \(32, 32, 3\), got \(28, 32, 3\)"):
        reproduce.main(command)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("arguments", "trimmed"),
    [
        ([], True),
        (["--profile", "small", "-p", "cache", "mine"], True),
        (["--keep-rounds"], False),
        (["--profile", "paper"], False),
        (["-p", "rounds", "3"], False),
    ],
)
def test_only_a_whole_run_of_a_small_profile_trims_the_cache(project, monkeypatch, capsys, arguments, trimmed):
    calls = []
    monkeypatch.setattr(reproduce, "execute_all", lambda *_, **__: [])
    monkeypatch.setattr(reproduce, "trim", lambda *given: calls.append(given) or 5e6)
    before = time.time()
    reproduce.main(["--paper", "fedthe", *arguments])
    assert len(calls) == trimmed
    assert ("cache: 5 MB of states" in capsys.readouterr().out) == trimmed
    for root, since, limit in calls:
        assert root == project / ("mine" if "cache" in arguments else "cache")
        assert before <= since <= time.time()
        assert limit == LIMITS["small" if "small" in arguments else "smoke"]


def test_a_run_that_stopped_trims_nothing(project, monkeypatch):
    monkeypatch.setattr(reproduce, "execute_all", lambda runs, *_, **__: runs)
    monkeypatch.setattr(reproduce, "trim", lambda *_: pytest.fail("trimmed"))
    with pytest.raises(SystemExit, match="stopped"):
        reproduce.main(["--paper", "fedthe"])


def test_a_trained_federation_without_its_states_stops_before_any_work(tmp_path):
    folder = shutil.copytree(PROJECT / "figures" / "digits" / "fedthe" / "pretrained", tmp_path / "pretrained")
    next(folder.glob("*.safetensors")).unlink()
    with pytest.raises(SystemExit, match=r"error: .*safetensors is missing: restore it"):
        reproduce.main(["--paper", "fedthe", "-p", "start", str(folder)])


HANGS = """import atexit, time
from fedlib import reproduce
reproduce.SECONDS_TO_END = 0.5
reproduce.end_on_signals()
atexit.register(time.sleep, 100)
print("ready", flush=True)
time.sleep(100)"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_clean_up_that_hangs_does_not_keep_a_command_that_was_told_to_end(number):
    heard = {"preexec_fn": lambda: signal.signal(number, signal.SIG_DFL), "cwd": PROJECT}
    with subprocess.Popen([sys.executable, "-c", HANGS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **heard) as command:
        assert command.stdout.readline() == "ready\n"
        command.send_signal(number)
        told = command.communicate(timeout=30)[1]
    assert "Timeout" in told
    assert (reproduce.CONTINUES in told) == (number != signal.SIGINT), "Ctrl-C is told where it arrives"
    assert command.returncode != 0


def test_what_a_program_was_told_to_ignore_is_still_ignored():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        reproduce.end_on_signals()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) not in before.values()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
