import nbformat
import pandas as pd
import pytest

from fedlib import reproduce
from fedlib.results import CLAIM_COLUMNS


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
    monkeypatch.setattr(reproduce, "PROJECT", tmp_path)
    monkeypatch.setattr(reproduce, "PAPERS", ())
    monkeypatch.setenv("FEDLIB_PROGRESS", "")  # set anew by every run, and back to what it was by this
    monkeypatch.setattr(reproduce, "output_folder", lambda output, profile, paper: tmp_path / (output or f"figures/{profile}/{paper}"))
    return tmp_path


def test_the_comparison_comes_last(project):
    assert reproduce.names() == ["fedthe", "comparison"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--profile", "smok"], "Did you mean 'smoke'"),
        (["--paper", "fedth"], "Did you mean 'fedthe'"),
        (["-p", "output", "here"], "2 notebooks would write to it"),
        (["--paper", "fedthe", "--processes", "0"], "--processes must be at least 1, got 0"),
        (["--paper", "fedthe", "-p", "round", "3"], "unknown parameter of fedthe 'round'. Did you mean 'rounds'"),
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
    assert capsys.readouterr().out.endswith("fedthe: here\n")
    assert "small 42" in (project / "here" / "notebook.html").read_text()
    assert [path.name for path in (project / "here").iterdir()] == ["notebook.html"]


@pytest.mark.filterwarnings("ignore")
def test_claims_of_all_papers_are_gathered(project, capsys):
    for paper, ours in (("atp", "holds"), ("btfl", "not run")):
        (project / "figures" / "smoke" / paper).mkdir(parents=True)
        row = {"claim": paper[0].upper() + "1", "text": "t", "published": "holds", "ours": ours, "verdict": ours, "evidence": "e"}
        pd.DataFrame([row]).to_csv(project / "figures" / "smoke" / paper / "claims.csv", index=False)
    reproduce.main(["--paper", "fedthe"])
    assert capsys.readouterr().out.endswith("claims: 1 holds, 1 not run\n")
    gathered = pd.read_csv(project / "figures" / "smoke" / "claims.csv")
    assert list(gathered.columns) == ["paper", *CLAIM_COLUMNS]
    assert gathered[["paper", "claim", "ours"]].to_numpy().tolist() == [["atp", "A1", "holds"], ["btfl", "B1", "not run"]]


@pytest.mark.filterwarnings("ignore")
def test_a_notebook_that_stops_leaves_the_others_their_results(project, capsys):
    with pytest.raises(SystemExit, match="comparison stopped"):
        reproduce.main(["--processes", "1"])
    written = capsys.readouterr()
    assert "ZeroDivisionError" in written.err
    assert "fedthe: figures/smoke/fedthe" in written.out
    assert (project / "figures" / "smoke" / "fedthe" / "notebook.html").exists()
    assert (project / "figures" / "smoke" / "comparison" / "notebook.ipynb").exists()


def test_an_exported_page_has_the_picture_of_a_widget_and_no_progress_bar():
    bar, picture = {reproduce.WIDGET: {}, "text/plain": "0%"}, {reproduce.WIDGET: {}, "text/plain": "VBox()", "image/png": "cGl4ZWxz"}
    outputs = [nbformat.v4.new_output("display_data", data) for data in (bar, picture, {"text/plain": "12"})]
    outputs.append(nbformat.v4.new_output("stream", text="printed"))
    cells = [nbformat.v4.new_markdown_cell("Text"), nbformat.v4.new_code_cell("run()", outputs=outputs)]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"widgets": {"state": {}}})
    page = reproduce.still(notebook)
    assert page.cells[1].outputs == outputs[1:]
    assert "widgets" not in page.metadata


@pytest.mark.filterwarnings("ignore")
def test_a_page_does_not_show_where_it_was_made(project, tmp_path):
    reproduce.main(["--paper", "fedthe", "-p", "cache", str(tmp_path / "elsewhere"), "-p", "output", str(tmp_path / "mine")])
    page = (tmp_path / "mine" / "notebook.html").read_text()
    assert "elsewhere" not in page
    assert "mine" not in page
    assert str(tmp_path) not in page
