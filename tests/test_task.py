import pytest
import torch

from fedlib.models import state_of
from fedlib.task import Local, Schedule, overlay, part
from tests import tiny


@pytest.mark.parametrize("kind", ["plain", "batchnorm", "dropout"])
def test_predict_is_the_module_in_evaluation_mode(kind):
    task = tiny.task(kind)
    state, images = state_of(tiny.net(kind, seed=1)), tiny.samples(7).images
    features, logits = task.predict(state, images, batch_size=3)
    module = tiny.net(kind, seed=1).eval()
    with torch.no_grad():
        inputs = task.transform.normalise(images, torch.float64)
        torch.testing.assert_close(features, module.extractor(inputs), rtol=0, atol=1e-12)
        torch.testing.assert_close(logits, module(inputs), rtol=0, atol=1e-12)
    assert not logits.requires_grad


def test_prediction_does_not_depend_on_the_memory_layout_of_the_state():
    task, images = tiny.task("convolution", dtype=torch.float32), tiny.samples(64).images
    state = state_of(task.model)
    last = {name: t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t for name, t in state.items()}
    assert torch.equal(task.predict(state, images)[1], task.predict(last, images)[1])


def test_empty_stream():
    features, logits = tiny.task("convolution").predict(state_of(tiny.net("convolution")), tiny.samples(0).images)
    assert (features.shape, logits.shape) == ((0, 5), (0, 3))


def test_frozen_features_are_computed_once_per_state_and_stream(monkeypatch):
    task, client = tiny.task(), tiny.client(0)
    first, second, stream = state_of(tiny.net()), state_of(tiny.net(seed=1)), client.stream("original")
    calls = []
    predict = type(task).predict
    monkeypatch.setattr(type(task), "predict", lambda self, state, images: calls.append(1) or predict(self, state, images))
    task.frozen(first, stream)[1].fill_(7)
    assert torch.equal(task.frozen(first, stream)[1], predict(task, first, stream.images)[1]), "what one method does to its copy is its own"
    assert not torch.equal(task.frozen(first, stream)[1], task.frozen(second, stream)[1])
    task.frozen(first, client.stream("corrupted"))
    assert len(calls) == 3


def test_generators_differ_by_purpose_and_repeat():
    task = tiny.task()
    draw = lambda *purpose: torch.rand(3, generator=task.generator(*purpose)).tolist()  # noqa: E731
    assert draw("local", 1, 2) == draw("local", 1, 2)
    assert draw("local", 1, 2) != draw("local", 2, 1)
    assert draw("local", 1, 2) != torch.rand(3, generator=tiny.task(seed=1).generator("local", 1, 2)).tolist()


def test_part_and_overlay():
    state = {"extractor.a": torch.zeros(1), "head.weight": torch.zeros(2)}
    assert list(part(state, "head.")) == ["weight"]
    mixed = overlay(state, {"model.head.weight": torch.ones(2), "descriptor": torch.ones(3)})
    assert list(mixed) == ["extractor.a", "head.weight"]
    assert mixed["head.weight"].tolist() == [1, 1]
    assert state["head.weight"].tolist() == [0, 0]


@pytest.mark.parametrize("bad", [{"optimizer": "sdg"}, {"lr": 0.0}, {"batch_size": 0}, {"epochs": -1}, {"momentum": 1.0}])
def test_bad_local_fields(bad):
    with pytest.raises(ValueError):
        Local(**bad)


@pytest.mark.parametrize("bad", [{"rounds": 0}, {"participation": 0.0}, {"participation": 1.5}])
def test_bad_schedules(bad):
    with pytest.raises(ValueError, match="participation"):
        Schedule(**bad)
