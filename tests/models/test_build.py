"""What every network by name must do: published sizes, feature split, forward order, functional calls, seeds."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap

from fedlib.models import MODELS, Net, build, build_head, state_of

PUBLISHED = [
    ("cnn", (3, 32, 32), 10, 156_640, 64),
    ("resnet20gn", (3, 32, 32), 10, 272_464, 64),
    ("resnet20gn_w4", (3, 32, 32), 86, 4_347_200, 256),
    ("cct4", (3, 32, 32), 10, 482_123, 128),
    ("cct4_relu", (3, 32, 32), 10, 482_123, 128),
    ("shallow_cnn", (3, 32, 32), 10, 122_858, 64),
    ("resnet18", (3, 32, 32), 10, 11_181_642, 512),
    ("resnet50", (3, 32, 32), 10, 23_528_522, 2048),
    ("mlp", (1, 28, 28), 10, 199_210, 200),
    ("convnet", (3, 32, 32), 10, 2_156_490, 512),
    ("convnet", (3, 32, 32), 100, 2_202_660, 512),
    ("convnet", (1, 28, 28), 10, 1_663_370, 512),
    ("convnet_2048", (1, 28, 28), 62, 6_603_710, 2048),
    ("convnet_small", (3, 32, 32), 10, 1_068_266, 512),
    ("convnet_medium", (3, 32, 32), 10, 2_156_490, 512),
    ("convnet_big", (3, 32, 32), 10, 4_409_738, 512),
    ("fedicon_cnn", (3, 32, 32), 10, 156_832, 64),
]


def images(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=dtype)


def test_every_network_has_a_published_size():
    stand_ins = {"mlp_small", "mlp_big", "fedicon_cnn_small", "fedicon_cnn_gn", "fedicon_cnn_gn_small"}
    assert {name for name, *_ in PUBLISHED} | stand_ins == set(MODELS)


@pytest.mark.parametrize(("name", "in_shape", "n_classes", "parameters", "features"), PUBLISHED)
def test_sizes(name, in_shape, n_classes, parameters, features):
    model = build(name, in_shape, n_classes, seed=0)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert isinstance(model, Net)
    assert isinstance(model.head, nn.Linear)
    assert model.head.in_features == features


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("in_shape", [(1, 16, 16), (1, 28, 28), (3, 28, 28), (3, 32, 32)])
def test_extractor_then_head(name, in_shape):
    model = build(name, in_shape, 7, seed=0).eval()
    x = images(2, *in_shape)
    with torch.no_grad():
        features = model.extractor(x)
        assert features.shape == (2, model.head.in_features)
        assert torch.equal(model(x), model.head(features))
        assert model(x).shape == (2, 7)


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_registered_in_forward_order(name):
    model = build(name, (3, 32, 32), 10, seed=0).eval()
    ran = []
    owners = [layer for layer in model.modules() if next(layer.parameters(recurse=False), None) is not None]
    for layer in owners:
        layer.register_forward_pre_hook(lambda layer, _: ran.append(layer))
    model(images(2, 3, 32, 32))
    assert [id(layer) for layer in ran] == [id(layer) for layer in owners]


# The largest one stacks the blocks of the others.
STACKED = [pytest.param(name, marks=pytest.mark.slow) if name == "resnet50" else name for name in MODELS]


@pytest.mark.parametrize("name", STACKED)
def test_vmap_over_states_equals_one_by_one(name):
    model = build(name, (1, 16, 16), 5, seed=0).double().eval()
    states = [state_of(model), state_of(build(name, (1, 16, 16), 5, seed=1).double())]
    stack = {key: torch.stack([state[key] for state in states]) for key in states[0]}
    x = images(2, 3, 1, 16, 16, dtype=torch.float64)
    with torch.no_grad():
        together = vmap(lambda state, x: functional_call(model, state, (x,)), randomness="different")(stack, x)
        for k, state in enumerate(states):
            torch.testing.assert_close(together[k], functional_call(model, state, (x[k],)), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", STACKED)
def test_vmapped_training_pass_gives_every_client_its_gradient(name):
    model = build(name, (1, 16, 16), 5, seed=0).train()
    stack = {key: torch.stack([value, value]) for key, value in state_of(model).items()}
    leaves = {key: stack[key].requires_grad_() for key, _ in model.named_parameters()}
    outputs = vmap(lambda state, x: functional_call(model, state, (x,)), randomness="different")(stack | leaves, images(2, 3, 1, 16, 16))
    gradients = torch.autograd.grad(outputs.square().sum(), list(leaves.values()))
    assert all(g.isfinite().all() for g in gradients)
    assert gradients[0].flatten(1).norm(dim=1).min() > 0


def test_seed_alone_decides_the_start():
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    first = state_of(build("cct4", (3, 32, 32), 10, seed=5))
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(4)
    again, other = (state_of(build("cct4", (3, 32, 32), 10, seed=seed)) for seed in (5, 6))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])


def test_personal_heads_differ_by_client_and_have_no_bias():
    model = build("cct4", (3, 32, 32), 10, seed=0)
    heads = [build_head(model, 0, client) for client in (0, 1, 0)]
    assert heads[0].shape == (10, 128)
    assert torch.equal(heads[0], heads[2])
    assert not torch.equal(heads[0], heads[1])


def test_unknown_name_is_answered_with_the_closest():
    with pytest.raises(ValueError, match=r"unknown model 'resnet20'.*Did you mean 'resnet20gn'"):
        build("resnet20", (3, 32, 32), 10, seed=0)


def test_published_weights_are_looked_for_in_the_folder_of_the_run(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path / "elsewhere"))
    for root in (tmp_path, None):
        folder = root or tmp_path / "elsewhere"
        with pytest.raises(FileNotFoundError, match=rf"no ImageNet weights for ResNet-18 at {folder}/resnet18-"):
            build("resnet18_imagenet", (3, 32, 32), 10, seed=0, root=root)
