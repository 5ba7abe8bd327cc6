import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, vmap

from fedlib.adapt.atp import ATP, adapted, directions, modules, online_average
from fedlib.core import NoAdapt
from fedlib.models import build, state_of
from tests.adapt.cases import case
from tests.oracles import atp as oracle
from tests.oracles import batch_adaptation as plain


def batch_norm_net(seed: int = 0, side: int = 16) -> nn.Module:
    """The Shallow CNN in float64 with running statistics and affine weights away from 0 and 1."""
    model = build("shallow_cnn", (1, side, side), 5, seed=seed).double()
    draws = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
                layer.running_mean.normal_(0, 0.3, generator=draws)
                layer.running_var.uniform_(0.3, 1.5, generator=draws)
                layer.weight.uniform_(0.5, 1.5, generator=draws)
                layer.bias.normal_(0, 0.3, generator=draws)
    return model


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("name", "count"), [("shallow_cnn", 23), ("resnet18", 102), ("resnet50", 267)])
def test_module_counts_of_the_paper(name, count):
    assert len(modules(build(name, (3, 32, 32), 10, seed=0))) == count


def test_modules_are_depth_first_with_statistics_before_weights():
    names = modules(build("shallow_cnn", (3, 32, 32), 10, seed=0))
    norm = [f"extractor.1.{tensor}" for tensor in ("running_mean", "running_var", "weight", "bias")]
    assert names[:6] == ["extractor.0.weight", *norm, "extractor.4.weight"]
    assert names[-2:] == ["head.weight", "head.bias"]


def test_a_bare_layer_is_its_own_module():
    assert modules(nn.BatchNorm1d(3)) == ["running_mean", "running_var", "weight", "bias"]


def test_directions_and_adapted_modules_equal_the_plain_version():
    model, images = batch_norm_net(), noise(6, 1, 16, 16)
    steps, expected = directions(model, images), oracle.directions(model, images)
    assert list(steps) == modules(model) == list(expected)
    for name in steps:
        torch.testing.assert_close(steps[name], expected[name], rtol=1e-9, atol=1e-12)
    rates = noise(len(steps), seed=1) / 5
    logits = functional_call(model.eval(), state_of(model) | adapted(model, rates, steps), (images,))
    torch.testing.assert_close(logits, oracle.moved(model, rates, images)[0](images), rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_deep_network_equals_the_plain_version():
    model, images = build("resnet18", (3, 32, 32), 5, seed=0).double(), noise(4, 3, 32, 32)
    steps, expected = directions(model, images), oracle.directions(model, images)
    assert list(steps) == list(expected)
    for name in steps:
        torch.testing.assert_close(steps[name], expected[name], rtol=1e-8, atol=1e-12)


def test_full_rate_turns_statistics_into_those_of_the_batch():
    layer, images = nn.BatchNorm2d(3).double(), noise(4, 3, 5, 5)
    rates = torch.tensor([1.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    model = nn.Sequential(layer, nn.Flatten())
    result = adapted(model, rates, directions(model, images))
    torch.testing.assert_close(result["0.running_mean"], images.mean((0, 2, 3)))
    torch.testing.assert_close(result["0.running_var"], images.var((0, 2, 3), unbiased=True))
    torch.testing.assert_close(result["0.weight"], layer.weight.detach())


def test_variances_are_clamped_at_zero_and_nothing_else_is():
    model, images = batch_norm_net(), noise(6, 1, 16, 16)
    rates = torch.full((23,), -50.0, dtype=torch.float64)
    steps = directions(model, images)
    result = adapted(model, rates, steps)
    state = state_of(model)
    clamped = 0
    for name, rate in zip(modules(model), rates, strict=True):
        free = state[name] + rate * steps[name]
        if name.endswith("running_var"):
            clamped += int((free < 0).sum())
            assert torch.equal(result[name], free.clamp(min=0))
        else:
            assert torch.equal(result[name], free)
    assert clamped > 0
    assert functional_call(model.eval(), state | result, (images,)).isfinite().all()


def test_model_is_left_untouched():
    model, images = batch_norm_net(), noise(6, 1, 16, 16)
    model.train()
    model.extractor[1].eval()
    before = state_of(model)
    steps = directions(model, images)
    adapted(model, torch.ones(23, dtype=torch.float64), steps)
    assert all(torch.equal(before[name], tensor) for name, tensor in state_of(model).items())
    assert model.training
    assert not model.extractor[1].training
    assert not any(layer._forward_pre_hooks for layer in model.modules())
    assert all(p.grad is None for p in model.parameters())


def test_given_state_replaces_the_weights():
    one, other, images = batch_norm_net(0), batch_norm_net(1), noise(6, 1, 16, 16)
    rates = noise(23, seed=1)
    expected, steps = directions(other, images), directions(one, images, state_of(other))
    moved, expected_moved = adapted(one, rates, steps, state_of(other)), adapted(other, rates, expected)
    for name in expected:
        torch.testing.assert_close(steps[name], expected[name], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(moved[name], expected_moved[name], rtol=1e-12, atol=1e-12)


def test_batches_can_be_stacked():
    model, batches = batch_norm_net(), noise(3, 6, 1, 16, 16)
    together = vmap(lambda images: directions(model, images))(batches)
    for k, images in enumerate(batches):
        for name, step in directions(model, images).items():
            torch.testing.assert_close(together[name][k], step, rtol=1e-9, atol=1e-12)


def test_works_where_the_caller_has_switched_gradients_off():
    model, images = batch_norm_net(), noise(6, 1, 16, 16)
    with torch.no_grad():
        steps = directions(model, images)
    assert steps["extractor.0.weight"].abs().max() > 0
    assert not any(step.requires_grad for step in steps.values())


def test_single_image_is_refused_where_a_layer_sees_one_value_per_channel():
    model = build("resnet18", (3, 32, 32), 5, seed=0)
    with pytest.raises(ValueError, match=r"layer 'extractor\.layer4.*at least 2"):
        directions(model, torch.zeros(1, 3, 32, 32))
    assert not any(layer._forward_pre_hooks for layer in model.modules())
    directions(build("fedicon_cnn", (3, 32, 32), 5, seed=0), torch.zeros(1, 3, 32, 32))


def test_wrong_number_of_rates_is_refused():
    model, images = batch_norm_net(), noise(6, 1, 16, 16)
    with pytest.raises(ValueError, match=r"shape \[23\].*got \[22\]"):
        adapted(model, torch.zeros(22), directions(model, images))


@pytest.mark.parametrize("layer", [nn.BatchNorm2d(1, affine=False), nn.BatchNorm2d(1, track_running_stats=False)])
def test_incomplete_batch_norm_is_refused(layer):
    with pytest.raises(ValueError, match="running statistics and affine weights; layer '0'"):
        modules(nn.Sequential(layer))


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=12))
@settings(deadline=None, max_examples=25)
def test_online_average_equals_the_mean_of_all_batches(values):
    average = {}
    for k, value in enumerate(values, start=1):
        average = online_average(average, {"w": torch.tensor([value, 1.0], dtype=torch.float64)}, k)
    torch.testing.assert_close(average["w"], torch.tensor([sum(values) / len(values), 1.0], dtype=torch.float64), rtol=1e-9, atol=1e-9)


def test_online_average_counts_from_one():
    with pytest.raises(ValueError, match="k = 0"):
        online_average({}, {"w": torch.zeros(1)}, 0)


@pytest.mark.parametrize("online", [False, True])
def test_adapters_equal_the_plain_versions(online):
    task, state, stream = case()
    rates = torch.linspace(-0.4, 0.6, len(modules(task.model)), dtype=torch.float64)
    expected = plain.atp(task, state, rates, stream, 4, online)
    learned = ATP(online, 4).run(task, state, {"shared.rates": rates}, stream).scores
    given = ATP(online, 4, tuple(rates.tolist())).run(task, state, {}, stream).scores
    torch.testing.assert_close(learned, expected, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(given, learned, rtol=1e-6, atol=1e-7)


def test_adapter_at_rate_zero_is_no_adaptation():
    task, state, stream = case()
    scores = ATP(True, 4, (0.0,) * len(modules(task.model))).run(task, state, {}, stream).scores
    torch.testing.assert_close(scores, NoAdapt().run(task, state, {}, stream).scores)
