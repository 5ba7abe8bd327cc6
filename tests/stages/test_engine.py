import contextlib
import os

import pytest
import torch

from fedlib.cache.store import describe, key_of
from fedlib.stages import engine
from fedlib.stages.engine import Engine, running_on


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"device": "gpu"}, r"unknown device 'gpu'\. .*Valid: 'cpu', 'cuda'\.$"),
        ({"device": "cuda0"}, r"unknown device 'cuda0'\. Did you mean 'cuda'\?"),
        ({"device": "cuda:x"}, r"unknown device 'cuda:x'\. Did you mean 'cuda'\?"),
        ({"device": "cpu:1"}, r"unknown device 'cpu:1'\. Did you mean 'cpu'\?"),
        ({"dtype": "float23"}, r"unknown floating-point type 'float23'\. Did you mean 'float32'\?"),
        ({"dtype": "half"}, r"unknown floating-point type 'half'.*Valid: 'float32', 'float64'\.$"),
        ({"threads": 0}, r"out of range: .*threads=0.*\(threads >= 1, "),
        ({"processes": 0}, r"out of range: .*processes=0.*processes >= 1"),
        ({"chunk_size": 0}, r"out of range: .*chunk_size=0.*chunk_size >= 1 or None\)"),
    ],
)
def test_bad_values(wrong, message):
    with pytest.raises(ValueError, match=message):
        Engine(**wrong)


def test_the_number_of_processes_is_no_part_of_a_cache_key():
    assert key_of({"engine": Engine(processes=3)}) == key_of({"engine": Engine()})
    assert key_of({"engine": Engine(threads=3)}) != key_of({"engine": Engine()})


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_missing_gpu_is_named(device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"no usable CUDA device: use device='cpu'"):
        Engine(device=device)


def test_threads_hold_inside_only():
    before = torch.get_num_threads()
    with running_on(Engine(threads=before + 1)):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


def test_threads_are_set_back_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(FloatingPointError), running_on(Engine(threads=before + 1)):
        raise FloatingPointError
    assert torch.get_num_threads() == before


@pytest.fixture
def environment(monkeypatch):
    """The variables of this process, without a workspace that somebody chose for cuBLAS."""
    variables = {name: value for name, value in os.environ.items() if name != "CUBLAS_WORKSPACE_CONFIG"}
    monkeypatch.setattr(os, "environ", variables)
    return variables


def test_a_cpu_is_left_as_it_is(environment):
    with running_on(Engine()):
        assert not torch.are_deterministic_algorithms_enabled()
    assert "CUBLAS_WORKSPACE_CONFIG" not in environment


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
@pytest.mark.parametrize("error", [None, FloatingPointError])
def test_a_gpu_runs_deterministic_algorithms_inside_only(device, error, monkeypatch, environment):
    """cuBLAS repeats its sums only with a workspace of fixed size; torch warns, rather than stops, at what it cannot repeat."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with contextlib.suppress(FloatingPointError), running_on(Engine(device=device)):
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert environment["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
        if error:
            raise error
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_workspace_that_the_user_chose_is_kept(monkeypatch, environment):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    environment["CUBLAS_WORKSPACE_CONFIG"] = ":16:8"
    with running_on(Engine(device="cuda")):
        assert environment["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


def test_options_are_checked(monkeypatch):
    with pytest.raises(ValueError, match=r"unknown option of the engine 'graphs'\. Did you mean 'graph'\?"):
        Engine(options=("graphs",))
    with pytest.raises(ValueError, match="'graph' needs device='cuda'"):
        Engine(options=("graph",))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert Engine(device="cuda:1", chunk_size=1, options=("graph",)).form("cnn", True) == (1, ("graph",))
    monkeypatch.setattr(engine, "fastest_on_gpu", lambda: {"cnn": (1, ("graph",))})
    asked = [{}, {"chunk_size": 8}, {"options": ()}]
    assert [Engine(device="cuda", **given).form("cnn", True) for given in asked] == [(1, ("graph",)), (8, ()), (1, ())]


def test_an_engine_without_options_has_the_key_that_it_had():
    assert describe(Engine(chunk_size=1)) == {"Engine": {"chunk_size": 1}}
