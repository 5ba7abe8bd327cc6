import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from fedlib.adapt.atp import adapted, directions, modules
from fedlib.models import build, state_of
from fedlib.train.atp import gradient_and_loss, refine
from tests.oracles import atp as oracle


@pytest.fixture
def case():
    """Shallow CNN in float64 with uneven batch norm, one labelled batch, rates small enough that no variance is clamped."""
    model = build("shallow_cnn", (1, 16, 16), 5, seed=0).double()
    draws = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
                layer.running_mean.normal_(0, 0.3, generator=draws)
                layer.running_var.uniform_(0.3, 1.5, generator=draws)
                layer.weight.uniform_(0.5, 1.5, generator=draws)
                layer.bias.normal_(0, 0.3, generator=draws)
    images = torch.randn(6, 1, 16, 16, generator=draws, dtype=torch.float64)
    labels = torch.randint(5, (6,), generator=draws)
    rates = torch.randn(23, generator=draws, dtype=torch.float64) / 5
    return model, rates, images, labels


def loss_at(model, rates, steps, images, labels):
    return cross_entropy(functional_call(model.eval(), state_of(model) | adapted(model, rates, steps), (images,)), labels)


@pytest.mark.parametrize(("grad_norm", "power"), [("sqrt_numel", 0.5), ("numel", 1.0)])
def test_refine_equals_the_plain_version(case, grad_norm, power):
    expected = oracle.refine(*case, lr=0.1, power=power)
    torch.testing.assert_close(refine(*case, lr=0.1, grad_norm=grad_norm), expected, rtol=1e-9, atol=1e-12)
    assert (expected - case[1]).abs().min() > 0


@pytest.mark.slow
def test_deep_network_equals_the_plain_version():
    model = build("resnet18", (3, 32, 32), 5, seed=0).double()
    draws = torch.Generator().manual_seed(0)
    images, labels = torch.randn(4, 3, 32, 32, generator=draws, dtype=torch.float64), torch.arange(4)
    rates = torch.randn(102, generator=draws, dtype=torch.float64) / 100
    expected = oracle.refine(model, rates, images, labels, lr=1.0)
    torch.testing.assert_close(refine(model, rates, images, labels, lr=1.0), expected, rtol=1e-8, atol=1e-10)


def test_gradient_equals_autograd_through_the_adapted_modules(case):
    model, rates, images, labels = case
    steps = directions(model, images)
    rates = rates.clone().requires_grad_()
    logits = functional_call(oracle.with_plain_batch_norm(model), adapted(model, rates, steps), (images,))
    expected = torch.autograd.grad(cross_entropy(logits, labels), rates)[0]
    gradient = gradient_and_loss(model, rates.detach(), steps, images, labels, state_of(model))[0]
    torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-12)


def test_gradient_equals_finite_differences(case):
    model, rates, images, labels = case
    steps = directions(model, images)
    gradient, width = gradient_and_loss(model, rates, steps, images, labels, state_of(model))[0], 1e-5
    for k in range(len(rates)):
        offset = width * torch.eye(len(rates), dtype=torch.float64)[k]
        ends = [loss_at(model, rates + sign * offset, steps, images, labels).item() for sign in (1, -1)]
        assert gradient[k].item() == pytest.approx((ends[0] - ends[1]) / (2 * width), rel=1e-4, abs=1e-6)


def test_clamp_has_no_derivative_of_its_own(case):
    """A clamped variance keeps its gradient at 0, as in the authors' code."""
    model, rates, images, labels = case
    rates = rates.clone()
    rates[2] = -50.0
    name = modules(model)[2]
    clamped = adapted(model, rates, directions(model, images))[name] == 0
    assert name.endswith("running_var")
    assert clamped.any()
    expected = oracle.refine(model, rates, images, labels, lr=0.1)
    torch.testing.assert_close(refine(model, rates, images, labels, lr=0.1), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("only", ["params", "stats"])
def test_ablations_move_their_own_rates_only(case, only):
    everything, some = refine(*case, lr=0.1), refine(*case, lr=0.1, only=only)
    learns = torch.tensor([("running" in name) == (only == "stats") for name in modules(case[0])])
    assert torch.equal(some[learns], everything[learns])
    assert torch.equal(some[~learns], case[1][~learns])


def test_small_step_lowers_the_loss(case):
    model, rates, images, labels = case
    steps = directions(model, images)
    after = refine(model, rates, images, labels, lr=1e-3)
    assert loss_at(model, after, steps, images, labels) < loss_at(model, rates, steps, images, labels)


def test_given_state_replaces_the_weights(case):
    model, rates, images, labels = case
    other = build("shallow_cnn", (1, 16, 16), 5, seed=1).double()
    result = refine(other, rates, images, labels, lr=0.1, state=state_of(model))
    torch.testing.assert_close(result, refine(*case, lr=0.1), rtol=1e-12, atol=1e-12)


def test_model_is_left_untouched(case):
    model = case[0].train()
    before = state_of(model)
    refine(*case, lr=0.1)
    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in state_of(model).items())


def test_network_without_batch_norm_has_rates_for_its_weights():
    model = build("mlp", (1, 4, 4), 3, seed=0).double()
    images = torch.randn(5, 1, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rates, labels = torch.zeros(6, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1])
    torch.testing.assert_close(refine(model, rates, images, labels, lr=0.1), oracle.refine(model, rates, images, labels, lr=0.1))


@pytest.mark.parametrize(("option", "value"), [("grad_norm", "none"), ("only", "batch")])
def test_unknown_options_are_refused(case, option, value):
    with pytest.raises(ValueError, match=f"unknown {option} '{value}'"):
        refine(*case, lr=0.1, **{option: value})
