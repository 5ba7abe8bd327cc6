from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from fedlib.adapt import fedicon
from fedlib.adapt.fedicon import Contrastive, ContrastiveOnline, online_loss
from fedlib.core import Local, NoAdapt, Stream
from fedlib.models import state_of
from fedlib.train.contrastive import Contrast
from tests import tiny

FAST = Contrast(lr=0.01)


def stream(n=13, client=0):
    return Stream(tiny.samples(n, 5).images, "original", client)


def problem(dtype=torch.float32):
    task = tiny.task("batchnorm", dtype=dtype, local=Local(lr=0.1, momentum=0.9, batch_size=4, epochs=1))
    state = state_of(task.model)
    personal = {"model.head.weight": state["head.weight"].flip(0), "memory": tiny.samples(6, 8).images}
    return task, state, personal


def test_no_epoch_is_the_personal_model():
    """To rounding: training leaves convolution weights in another memory layout, for which some processors add up in another order."""
    task, state, personal = problem(torch.float64)
    scores = Contrastive(epochs=0).run(task, state, personal, stream()).scores
    torch.testing.assert_close(scores, NoAdapt().run(task, state, personal, stream()).scores, rtol=1e-12, atol=1e-12)


def test_an_image_alone_moves_nothing():
    task, state, personal = problem(torch.float64)
    scores = Contrastive(FAST).run(task, state, personal, stream(1)).scores
    torch.testing.assert_close(scores, NoAdapt().run(task, state, personal, stream(1)).scores, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", [Contrastive(FAST, epochs=2), ContrastiveOnline(FAST)])
def test_given_states_stay_and_answers_move(method):
    task, state, personal = problem()
    copies = [{name: t.clone() for name, t in s.items()} for s in (state, personal)]
    scores = method.run(task, state, personal, stream()).scores
    assert not torch.allclose(scores, NoAdapt().run(task, state, personal, stream()).scores, atol=1e-3)
    assert torch.equal(scores, method.run(task, state, personal, stream()).scores)
    for given, copy in zip((state, personal), copies, strict=True):
        assert all(torch.equal(given[name], copy[name]) for name in copy)


@pytest.mark.parametrize("method", [Contrastive(FAST, epochs=1), ContrastiveOnline(FAST)])
def test_the_classifier_stays(method):
    """Classifiers that are negatives of each other give negative scores, so nothing but the encoder has moved."""
    task, state, personal = problem()
    zero = {"model.head.bias": torch.zeros(3)}
    scores = [method.run(task, state, personal | zero | {"model.head.weight": s * state["head.weight"]}, stream()).scores for s in (1, -1)]
    torch.testing.assert_close(scores[0], -scores[1])


@pytest.mark.parametrize(("fields", "used"), [({}, 0.0), ({"momentum": 0.5}, 0.5)])
def test_offline_is_the_self_supervised_training_of_the_encoder(fields, used):
    """By plain SGD unless told otherwise, whatever the momentum of training (0.9 here)."""
    task, state, personal = problem()
    method = Contrastive(FAST, epochs=2, **fields)
    scores = method.run(task, state, personal, stream()).scores
    samples = tiny.samples(13, 5)
    model = state | {"head.weight": personal["model.head.weight"]}
    generator = task.generator("fedicon", 0, "original", 0)
    local = Local(lr=FAST.lr, momentum=used, batch_size=4, epochs=2)
    (adapted,) = FAST.train(task, [model], [samples], local=local, generators=[generator], supervised=False)
    torch.testing.assert_close(scores, task.predict(adapted, samples.images)[1])


def test_online_loss_equals_the_loop():
    draws = torch.Generator().manual_seed(0)
    view, other = torch.randn(2, 5, generator=draws, dtype=torch.float64)
    memory = torch.randn(7, 5, generator=draws, dtype=torch.float64)
    unit = [v / np.linalg.norm(v) for v in (view.numpy(), other.numpy(), *memory.numpy())]
    likeness = [np.exp(unit[0] @ u / 0.2) for u in unit[1:]]
    expected = -np.log(likeness[0] / sum(likeness))
    assert online_loss(view, other, memory, temperature=0.2, base=None).item() == pytest.approx(expected)
    assert online_loss(3 * view, other, memory, temperature=0.2, base=0.1).item() == pytest.approx(2 * expected)


def test_online_carries_over_the_stream_and_looks_back_only():
    task, state, personal = problem()
    method = ContrastiveOnline(FAST)
    whole, head = (method.run(task, state, personal, Stream(stream().images[:n], "original", 0)).scores for n in (13, 5))
    torch.testing.assert_close(whole[:5], head)
    second = Stream(stream().images[1:2], "original", 0)
    assert not torch.allclose(method.run(task, state, personal, second).scores[0], whole[1], atol=1e-3)


def test_online_forgets_training_images_first_in_drawn_order(monkeypatch):
    """Eight arrivals in a memory of six: the six that were there in the order of a draw, then the oldest test image."""
    task, state, personal = problem()
    seen = []
    monkeypatch.setattr(fedicon, "online_loss", lambda view, other, memory, **how: seen.append(memory.detach()) or 0 * view.sum())
    still = replace(task, schedule=replace(task.schedule, local=replace(task.schedule.local, weight_decay=0.0)))
    ContrastiveOnline(FAST).run(still, state, personal, stream(8))
    places = [int((old != new).any(1).nonzero().squeeze()) for old, new in pairwise(seen)]
    order = torch.randperm(6, generator=task.generator("fedicon online", 0, "original", 0)).tolist()
    assert places == [*order, order[0]]


def test_online_the_encoder_feels_the_schedules_weight_decay(monkeypatch):
    """Rate times decay is one and the loss is flat: the first step leaves an encoder of zeros, and answers that are the head's bias."""
    task, state, personal = problem(torch.float64)
    monkeypatch.setattr(fedicon, "online_loss", lambda view, other, memory, **how: 0 * view.sum())
    strong = replace(task, schedule=replace(task.schedule, local=replace(task.schedule.local, weight_decay=1 / FAST.lr)))
    scores = ContrastiveOnline(FAST).run(strong, state, personal, stream(3)).scores
    torch.testing.assert_close(scores, state["head.bias"].expand(3, -1), rtol=0, atol=1e-12)


def test_online_needs_a_memory():
    task, state, _ = problem()
    with pytest.raises(ValueError, match="OwnClassifier"):
        ContrastiveOnline().run(task, state, {}, stream())


@pytest.mark.parametrize("fields", [{"epochs": -1}, {"momentum": -0.1}, {"momentum": 1.0}])
def test_bad_fields(fields):
    with pytest.raises(ValueError, match="epochs must be at least 0"):
        Contrastive(**fields)


@pytest.mark.parametrize("method", [Contrastive(FAST, epochs=2), ContrastiveOnline(FAST)])
def test_the_optimiser_of_training_does_not_matter(method):
    task, state, personal = problem()
    local = task.schedule.local
    others = [replace(local, optimizer="adam"), replace(local, milestone=1), replace(local, clip=1e-6)]
    tasks = [replace(task, schedule=replace(task.schedule, local=other)) for other in (local, *others)]
    answers = [method.run(one, state, personal, stream()).scores for one in tasks]
    assert all(torch.equal(answers[0], scores) for scores in answers[1:])
