import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlib.core import Local
from fedlib.models import state_of
from fedlib.states import part
from fedlib.tools.seeding import generator
from fedlib.train.contrastive import Contrast, TwoViews, contrastive
from tests import tiny
from tests.oracles import contrastive as oracle


def features(n=7, views=2, d=5, seed=0, dtype=torch.float64):
    return torch.randn(n, views, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


LABELS = torch.tensor([0, 1, 0, 2, 1, 0, 1])


@pytest.mark.parametrize("labels", [LABELS, None])
@pytest.mark.parametrize("base", [0.07, None])
@pytest.mark.parametrize("views", [2, 3])
def test_equals_the_loop(labels, base, views):
    z = features(views=views)
    expected = oracle.loss(z.numpy(), None if labels is None else labels.tolist(), 0.1, base)
    assert contrastive(z, labels, base=base).item() == pytest.approx(expected, rel=1e-9)
    assert contrastive(z.float(), labels, base=base).item() == pytest.approx(expected, rel=1e-4)


def test_all_labels_different_is_the_self_supervised_loss():
    z = features()
    assert torch.equal(contrastive(z, torch.arange(7)), contrastive(z))


def test_length_of_features_does_not_matter():
    z = features()
    scaled = z * torch.rand(7, 2, 1, generator=torch.Generator().manual_seed(1), dtype=z.dtype).add(0.1)
    torch.testing.assert_close(contrastive(scaled, LABELS), contrastive(z, LABELS), rtol=1e-12, atol=0)


def test_temperature_scales_the_similarities():
    """One image pair at angle 0 and another orthogonal to it: L = log(e^{1/t} + 2) - 1/t."""
    z = torch.eye(2, dtype=torch.float64)[:, None].expand(2, 2, 2)
    for temperature in (0.1, 1.0, 10.0):
        expected = math.log(math.exp(1 / temperature) + 2) - 1 / temperature
        assert contrastive(z, temperature=temperature, base=None).item() == pytest.approx(expected)
        assert contrastive(z, temperature=temperature, base=0.5).item() == pytest.approx(2 * temperature * expected)


def test_the_factor_keeps_the_gradient_at_high_temperature():
    """As temperature grows, the plain loss's gradient falls as 1 / temperature and the scaled one's does not."""
    norms = {}
    for base in (None, 0.07):
        for temperature in (10.0, 1000.0):
            z = features().requires_grad_()
            contrastive(z, LABELS, temperature=temperature, base=base).backward()
            norms[base, temperature] = z.grad.norm().item()
    assert norms[None, 1000.0] == pytest.approx(norms[None, 10.0] / 100, rel=0.1)
    assert norms[0.07, 1000.0] == pytest.approx(norms[0.07, 10.0], rel=0.1)


def test_random_directions_cost_the_logarithm_of_their_number():
    z = features(n=40, d=200_000)
    assert contrastive(z).item() == pytest.approx(0.1 / 0.07 * math.log(79), rel=0.02)


@settings(deadline=None, max_examples=20)
@given(st.permutations(range(7)), st.lists(st.booleans(), min_size=7, max_size=7))
def test_order_of_images_and_of_views_does_not_matter(order, swaps):
    z, order = features(), torch.tensor(order)
    swapped = torch.stack([pair.flip(0) if swap else pair for pair, swap in zip(z, swaps, strict=True)])
    for labels in (LABELS, None):
        moved = contrastive(swapped[order], None if labels is None else labels[order])
        torch.testing.assert_close(moved, contrastive(z, labels), rtol=1e-12, atol=0)


def test_one_image_costs_nothing():
    assert contrastive(features(1)).item() == 0


@pytest.mark.parametrize(("views", "temperature"), [(1, 0.1), (2, 0.0)])
def test_bad_arguments(views, temperature):
    with pytest.raises(ValueError, match="two views"):
        contrastive(features(views=views), temperature=temperature)
    with pytest.raises(ValueError, match=r"digit|lr"):
        Contrast(views="digit") if temperature else Contrast(lr=0.0)


def test_two_views_are_different_random_and_repeatable():
    transform, images = TwoViews((0.5,), (0.5,), kind="digits"), tiny.samples(5).images
    draws = transform.draws(5, generator(0, "views"))
    pair = transform.augmented(images, draws)
    assert pair.shape == (5, 2, *tiny.SHAPE)
    assert pair.min() >= 0
    assert pair.max() <= 1
    assert not torch.equal(pair[:, 0], pair[:, 1])
    assert torch.equal(pair, transform.augmented(images, draws))


@pytest.mark.parametrize("chunk_size", [1, 3])
def test_training_moves_the_encoder_alone_and_lowers_the_loss(chunk_size):
    task = tiny.task("batchnorm", chunk_size=chunk_size)
    contrast = Contrast(lr=0.05)
    state = {name: tensor.detach().clone() for name, tensor in task.model.state_dict().items()}
    samples = [tiny.samples(24, seed) for seed in (0, 1)]
    local = Local(lr=0.05, momentum=0.9, batch_size=12, epochs=15)
    generators = [task.generator("a", k) for k in range(2)]
    trained = contrast.train(task, [state] * 2, samples, local=local, generators=generators, supervised=True)
    pair = contrast.two_views(task.transform).augmented(samples[0].images, torch.tensor([5]))
    loss = contrast.loss(task, supervised=True)
    task.model.eval()
    before, after = (loss(s, (task.inputs(pair), samples[0].labels, None), {}).item() for s in (state, trained[0]))
    assert after < before - 0.05
    for result in trained:
        assert all(torch.equal(a, b) for a, b in zip(part(result, "head.").values(), part(state, "head.").values(), strict=True))
    assert not torch.equal(trained[0]["extractor.1.running_mean"], trained[1]["extractor.1.running_mean"])


def test_an_image_alone_makes_no_step():
    """Five images in batches of four, twice: batch norm sees two batches."""
    task = tiny.task("batchnorm")
    local, draws = Local(lr=0.05, batch_size=4, epochs=2), [task.generator("a")]
    (state,) = Contrast().train(task, [state_of(task.model)], [tiny.samples(5)], local=local, generators=draws, supervised=False)
    assert state["extractor.1.num_batches_tracked"] == 2


def test_clients_of_a_stack_are_contrasted_with_their_own_images_alone():
    """Beside a batch of ten, one of six would be padded."""
    results = []
    for chunk_size in (1, 2):
        task = tiny.task(chunk_size=chunk_size)
        options = {"local": Local(lr=0.05, batch_size=12, epochs=2), "generators": [task.generator("a", k) for k in range(2)]}
        samples = [tiny.samples(n, n) for n in (6, 10)]
        results.append(Contrast().train(task, [state_of(task.model)] * 2, samples, supervised=True, **options))
    for one, among in zip(*results, strict=True):
        for name, tensor in one.items():
            torch.testing.assert_close(among[name], tensor, rtol=0, atol=1e-12)
