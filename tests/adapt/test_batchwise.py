import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call

from fedlib.adapt.batchwise import batch_statistics, batches, entropy, moments
from fedlib.core import Stream
from fedlib.models import state_of
from fedlib.models.net import fast, training
from tests import tiny
from tests.adapt.cases import case


@given(n=st.integers(1, 30), size=st.integers(1, 12))
@example(n=3, size=1)
@settings(deadline=None, max_examples=25)
def test_batches_are_the_stream_in_order_and_none_is_single_unless_asked(n, size):
    task, images = tiny.task(), tiny.samples(n).images
    parts = list(batches(task, Stream(images, "test", 0), size))
    assert torch.equal(torch.cat(parts), task.inputs(images))
    lengths = [len(part) for part in parts]
    assert all(length == size for length in lengths[:-1])
    if n > 1 < size:
        assert 1 < lengths[-1] <= size + 1
    assert size > 1 or lengths == [1] * n


def test_empty_batches_are_refused():
    with pytest.raises(ValueError, match="at least 1 image, got batch_size=0"):
        batches(tiny.task(), Stream(tiny.samples(3).images, "test", 0), 0)


def test_entropy_of_known_distributions():
    assert entropy(torch.zeros(4, 8)).item() == pytest.approx(torch.log(torch.tensor(8.0)).item())
    assert entropy(torch.tensor([[0.0, 200.0], [0.0, 0.0]])).item() == pytest.approx(0.5 * 0.6931472)


def test_batch_statistics_replace_the_running_ones_and_leave_them_alone():
    task, state, stream = case()
    inputs = task.inputs(stream.images)
    before = {name: tensor.clone() for name, tensor in state.items()}
    other = {name: tensor * 3 + 1 if "running" in name else tensor for name, tensor in state.items()}
    plain = functional_call(task.model.eval(), state, (inputs,))
    with batch_statistics(task.model):
        first, second = (functional_call(task.model, s, (inputs,)) for s in (state, other))
    assert torch.equal(first, second)
    assert not torch.allclose(first, plain)
    assert all(torch.equal(state[name], tensor) for name, tensor in before.items())
    assert torch.equal(functional_call(task.model, state, (inputs,)), plain)
    # And afterwards training moves them again.
    with training(task.model):
        functional_call(task.model, state, (inputs,))
    assert not torch.equal(state["extractor.1.running_mean"], before["extractor.1.running_mean"])


def test_batch_statistics_of_one_value_are_refused_with_a_remedy():
    layers = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.BatchNorm1d(3)).eval()
    with batch_statistics(layers):
        layers(torch.zeros(2, 1, 2, 2))
        with pytest.raises(ValueError, match=r"layer '2' gets one value per channel; use batches and streams of at least 2 images"):
            layers(torch.zeros(1, 1, 2, 2))
    layers(torch.zeros(1, 1, 2, 2))


def test_moments_are_over_images_and_space():
    inputs = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    mean, variance = moments(inputs, "norm")
    torch.testing.assert_close(mean, inputs.mean((0, 2, 3)))
    torch.testing.assert_close(variance, inputs.var((0, 2, 3)))
    with pytest.raises(ValueError, match="layer 'norm' gets one value per channel"):
        moments(inputs[:1, :, 0, 0], "norm")


def test_batch_statistics_need_batch_norm():
    with pytest.raises(ValueError, match="Net has none"), batch_statistics(tiny.net("plain")):
        pass


def test_fast_states_hold_the_same_numbers():
    state = state_of(tiny.net("batchnorm"))
    assert all(torch.equal(tensor, state[name]) for name, tensor in fast(state).items())
