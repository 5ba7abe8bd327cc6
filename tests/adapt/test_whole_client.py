import math
from itertools import islice

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlib.adapt.whole_client import entropy, network_of, walk
from fedlib.core import Local, Stream
from fedlib.train.fedavg import FedAvg
from tests import tiny
from tests.oracles import fedtta as oracle


def setup(n=10, **fields):
    task = tiny.task(local=Local(**{"lr": 0.1, "weight_decay": 0.01, "batch_size": 4} | fields), augment="none")
    return task, FedAvg().init(task, [])["model"], Stream(tiny.samples(n, 3).images, "test", 5)


@given(st.lists(st.lists(st.floats(-20, 20), min_size=3, max_size=3), min_size=1, max_size=6))
@settings(deadline=None, max_examples=25)
def test_entropy_is_in_bits(logits):
    logits = torch.tensor(logits, dtype=torch.float64)
    assert entropy(logits).item() == pytest.approx(oracle.entropy(logits), abs=1e-9)


def test_entropy_of_certainty_and_of_none():
    assert entropy(torch.zeros(4, 8)).item() == pytest.approx(3)
    assert entropy(torch.tensor([[200.0, 0.0]])).item() == pytest.approx(0)


def test_what_is_yielded_holds_before_the_step():
    task, state, stream = setup()
    (logits, loss, _), (moved, _, _) = islice(walk(task, state, stream, entropy, lr=0.3), 2)
    torch.testing.assert_close(logits, task.predict(state, stream.images)[1])
    order = torch.randperm(10, generator=task.generator("whole client", 5, "test", 0))
    assert loss.item() == pytest.approx(sum(oracle.entropy(logits[index]) for index in order.split(4)) / 3)
    assert (moved - logits).abs().max() > 1e-4


def test_the_last_pass_sees_what_an_endless_walk_does():
    task, state, stream = setup()
    endless = list(islice(walk(task, state, stream, entropy, lr=0.3), 3))
    for steps in (0, 2):
        for met, there in zip(walk(task, state, stream, entropy, lr=0.3, steps=steps), endless[: steps + 1], strict=True):
            assert all(torch.equal(a, b) for a, b in zip(met, there, strict=True))


def test_a_tight_clip_bounds_the_step():
    """Without weight decay the network moves by rate times clip at most, here exactly."""
    task, state, stream = setup(weight_decay=0.0, clip=1e-3)
    (before, *_), (after, *_) = islice(walk(task, state, stream, entropy, lr=1.0), 2)
    wide = [z for z, *_ in islice(walk(*setup(weight_decay=0.0)[:2], stream, entropy, lr=1.0), 2)]
    assert 0 < (after - before).norm() < 0.1 * (wide[1] - wide[0]).norm()


def test_order_of_images_matters_to_batches_only():
    """One batch of all: shuffled images give shuffled logits."""
    task, state, stream = setup()
    backwards = Stream(stream.images.flip(0), "test", 5)
    runs = [[z for z, *_ in islice(walk(task, state, s, entropy, lr=0.3, batch_size=10), 3)] for s in (stream, backwards)]
    torch.testing.assert_close(runs[0][2], runs[1][2].flip(0), rtol=0, atol=1e-12)
    assert not math.isclose(runs[0][2][0, 0].item(), runs[0][2][9, 0].item())


def test_a_client_of_one_image():
    task, state, stream = setup(n=1)
    (logits, *_), *_ = islice(walk(task, network_of(state), stream, entropy, lr=0.1), 2)
    torch.testing.assert_close(logits, task.predict(state, stream.images)[1])


def test_the_loss_over_images_weighs_a_short_batch_less():
    """Batches of 4, 4 and 2: the mean of all ten entropies, and not that of three means."""
    task, state, stream = setup()
    order = torch.randperm(10, generator=task.generator("whole client", 5, "test", 0))
    logits = task.predict(state, stream.images)[1]
    means = [oracle.entropy(logits[index]) for index in order.split(4)]
    found = {over: next(walk(task, state, stream, entropy, lr=0.3, over=over))[1].item() for over in ("batches", "images")}
    assert found == pytest.approx({"batches": sum(means) / 3, "images": oracle.entropy(logits)})
    assert abs(found["batches"] - found["images"]) > 1e-4
    with pytest.raises(ValueError, match="unknown mean"):
        next(walk(task, state, stream, entropy, lr=0.3, over="clients"))
