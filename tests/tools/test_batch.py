import json
import os
import re
import time
from dataclasses import replace

import nbformat

from fedlib.tools import batch


def test_an_exported_page_has_the_picture_of_a_widget_and_no_progress_bar():
    bar, picture = {batch.WIDGET: {}, "text/plain": "0%"}, {batch.WIDGET: {}, "text/plain": "VBox()", "image/png": "cGl4ZWxz"}
    outputs = [nbformat.v4.new_output("display_data", data) for data in (bar, picture, {"text/plain": "12"})]
    outputs.append(nbformat.v4.new_output("stream", text="printed"))
    cells = [nbformat.v4.new_markdown_cell("Text"), nbformat.v4.new_code_cell("run()", outputs=outputs)]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"widgets": {"state": {}}})
    page = batch.still(notebook)
    assert page.cells[1].outputs == outputs[1:]
    assert "widgets" not in page.metadata


def test_what_a_notebook_is_doing(tmp_path):
    now = time.monotonic()
    run = batch.Run("atp", tmp_path / "atp.ipynb", {}, tmp_path, cell=6, cells=17, section="Table 2", started=now - 100, entered=now)
    assert re.fullmatch(r"atp: 1:4\d, cell 6 of 17, about [34]:\d\d left, Table 2", run.line())
    assert "left" not in replace(run, cell=5).line()
    assert "left" not in replace(run, entered=now - 80).line()
    run.log.write_text("12:00:01 FedAvg: 3 of 9 rounds, 00:10 so far, 00:20 left\n")
    assert run.line().endswith("Table 2: FedAvg: 3 of 9 rounds, 00:10 so far, 00:20 left")
    # What the cell before said last is over.
    os.utime(run.log, (time.time() - 60,) * 2)
    assert run.line().endswith("Table 2")
    assert [batch.clock(s) for s in (0, 59.7, 65, 3661)] == ["0:00", "1:00", "1:05", "1:01:01"]


def test_what_was_asked_for_and_not_made_is_told(tmp_path):
    run = batch.Run("atp", tmp_path / "atp.ipynb", {}, tmp_path)
    assert "\n" not in run.outcome()
    (tmp_path / "run.json").write_text(json.dumps({"not_made": {"T3": "not run: no images"}}))
    assert run.outcome().endswith("notebook.html\n  T3 was not made: not run: no images")


def test_a_notebook_that_fails_before_its_first_cell_names_none(tmp_path):
    run = batch.Run("atp", tmp_path / "atp.ipynb", {}, tmp_path, failure="  no kernel")
    assert re.fullmatch(r"atp: stopped after \d+:\d\d(:\d\d)?\n  no kernel", run.outcome())
    assert "cell" not in run.line()
    stopped = replace(run, cell=2, cells=9, section="Clients").outcome()
    assert re.fullmatch(r"atp: stopped after [\d:]+ in cell 2 of 9, Clients\n  no kernel", stopped)


def test_the_kernel_imports_this_checkout(tmp_path, monkeypatch):
    """Not one that is installed in the same Python, or that the caller's path names."""
    (tmp_path / "other" / "fedlib").mkdir(parents=True)
    (tmp_path / "other" / "fedlib" / "__init__.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "other"))
    source = "import fedlib\nprint('this one' if hasattr(fedlib, 'pretrained') else 'another')"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, tmp_path / "plain.ipynb")
    run = batch.Run("plain", tmp_path / "plain.ipynb", {}, tmp_path / "out")
    batch.execute(run)
    assert "<pre>this one\n" in (run.folder / "notebook.html").read_text()


def test_a_notebook_without_parameters_runs_without_a_word_about_them(tmp_path, capfd):
    path = tmp_path / "plain.ipynb"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("print(6 * 7)")])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, path)
    run = batch.Run("plain", path, {}, tmp_path / "out")
    batch.execute(run)
    assert "42" in (run.folder / "notebook.html").read_text()
    assert "parameters" not in capfd.readouterr().err


def test_what_cannot_be_written_after_a_failure_stops_nothing(tmp_path, monkeypatch, capsys):
    """The others are executed, and the failure is reported."""

    def execute(run):
        run.executed = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")])
        run.folder.mkdir(exist_ok=True)
        if run.name == "full":
            raise OSError("no space left on device")

    def write(notebook, path):
        raise OSError("no space left on device")

    monkeypatch.setattr(batch, "execute", execute)
    monkeypatch.setattr(batch.nbformat, "write", write)
    runs = [batch.Run(name, tmp_path / f"{name}.ipynb", {}, tmp_path / name) for name in ("full", "other")]
    assert batch.execute_all(runs, 1) == runs[:1]
    assert "no space left on device" in capsys.readouterr().err


def test_a_page_and_a_failure_never_lie_side_by_side(tmp_path):
    cells = [nbformat.v4.new_code_cell("from pathlib import Path\n1 / Path('number').read_text().count('1')")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, tmp_path / "plain.ipynb")
    for number, left in (("1", batch.PAGE), ("0", batch.FAILED), ("1", batch.PAGE)):
        (tmp_path / "number").write_text(number)
        batch.execute_all([batch.Run("plain", tmp_path / "plain.ipynb", {}, tmp_path / "out")], 1)
        assert {path.name for path in (tmp_path / "out").glob("notebook.*")} == {left}
