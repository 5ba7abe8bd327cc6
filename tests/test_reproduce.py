import nbformat
import pytest

from fedlib import reproduce


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with two small notebooks."""
    source = '# Parameters\nprofile = "smoke"  # profile\nrounds = 1  # rounds\noutput = None  # folder\n'
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
