"""The server's own contents manager, with the configuration that `make lab` gives it."""

import asyncio
import json
import runpy
from types import SimpleNamespace

import nbformat
import pytest
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from traitlets.config import Config

from fedlib.commands import lab
from fedlib.tools.parameters import PROJECT

SOURCE = PROJECT / "notebooks" / "quickstart.ipynb"


def configuration():
    """The traits that the file sets."""
    given = Config()
    runpy.run_path(str(PROJECT / "jupyter_server_config.py"), {"c": given})
    return given


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "mine").mkdir()
    monkeypatch.setattr(lab, "PROJECT", tmp_path)
    return tmp_path


def save(project, path):
    """Save a notebook that was executed, as JupyterLab does it."""
    content = nbformat.read(SOURCE, 4)
    content.metadata["widgets"] = {"state": {}}
    content.metadata["kernelspec"]["display_name"] = "Python 3 (ipykernel)"
    content.metadata["language_info"]["version"] = "3.11.7"
    for number, cell in enumerate(content.cells):
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [nbformat.v4.new_output("stream", text="x" * 10_000)], number
            cell.metadata["execution"] = {"iopub.status.busy": "now"}
    manager = AsyncLargeFileManager(root_dir=str(project), config=configuration())
    asyncio.run(manager.save({"type": "notebook", "format": "json", "content": content}, path))


@pytest.mark.filterwarnings("ignore")
def test_saving_one_of_the_kits_notebooks_changes_nothing(project):
    save(project, "notebooks/one.ipynb")
    assert json.loads((project / "notebooks" / "one.ipynb").read_text()) == json.loads(SOURCE.read_text())


@pytest.mark.filterwarnings("ignore")
def test_a_copy_elsewhere_keeps_its_outputs(project):
    save(project, "mine/one.ipynb")
    assert (project / "mine" / "one.ipynb").stat().st_size > 30_000


def test_other_files_pass(project):
    model = {"type": "file", "content": "text"}
    lab.without_outputs(model, "notebooks/a.txt", SimpleNamespace(root_dir=str(project)))
    assert model == {"type": "file", "content": "text"}


def test_kernels_need_no_open_port():
    assert configuration().KernelManager.transport == "ipc"
