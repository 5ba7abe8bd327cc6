import dataclasses

import pytest
import torch
from torch.nn import functional

from fedlib.augment import augmix
from fedlib.tools.seeding import generator
from tests.oracles import augmix as oracle

STATISTICS = {1: ((0.3,), (0.3,)), 3: ((0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261))}
RAW = {1: ((0.0,), (1 / 255,)), 3: ((0.0,) * 3, (1 / 255,) * 3)}  # keeps views in grey levels


def pictures(n, channels, size):
    coarse = torch.rand(n, channels, 6, 6, generator=generator(0, "pictures"))
    return (functional.interpolate(coarse, size=(size, size), mode="bilinear") * 255).to(torch.uint8)


@pytest.mark.parametrize(("channels", "size", "pad"), [(1, 16, 4), (3, 32, 4), (3, 28, 4), (3, 32, 6), (1, 16, 1)])
def test_views_equal_pil(channels, size, pad):
    mean, std = STATISTICS[channels]
    images = pictures(6, channels, size).repeat_interleave(30, dim=0)
    plan = augmix.draw(generator(0, "plan"), 6, 30, pad=pad)
    want = torch.from_numpy(oracle.views(images.numpy(), augmix.OPS, plan, mean, std))
    levels = (augmix.apply(images, plan, mean=mean, std=std) - want).abs() * torch.tensor(std)[:, None, None] * 255
    # One pixel in a thousand of a warped image falls on the other side of PIL's truncation; equalize may widen that step.
    assert (levels > 0.01).double().mean() < 0.005
    assert levels.mean() < 0.005
    warps = torch.tensor([augmix.ROTATE, augmix.SHEAR_X, augmix.SHEAR_Y])
    unwarped = ~torch.isin(plan.ops, warps).flatten(1).any(1)
    assert unwarped.sum() >= 10
    assert levels[unwarped].max() < 1e-3


@pytest.mark.parametrize("op", augmix.OPS)
@pytest.mark.parametrize(("channels", "size"), [(1, 16), (3, 32)])
def test_single_operations_equal_pil(op, channels, size):
    images = pictures(4, channels, size).repeat_interleave(25, dim=0)
    plan = augmix.draw(generator(1, "plan"), 4, 25)
    ops = torch.full_like(plan.ops, -1)
    ops[:, 0, 0] = augmix.OPS.index(op)
    first = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64).expand(100, 3)
    plan = dataclasses.replace(plan, ops=ops, weights=first, mix=torch.zeros_like(plan.mix))
    mean, std = RAW[channels]
    ours = augmix.apply(images, plan, mean=mean, std=std)
    difference = (ours - torch.from_numpy(oracle.views(images.numpy(), augmix.OPS, plan, mean, std))).abs()
    if op.startswith(("rotate", "shear")):
        assert difference.max() < 1.01
        assert (difference > 0.5).double().mean() < 0.005
    else:
        assert difference.max() < 1e-3


def test_rotation_fills_the_first_channel_only():
    images = torch.full((1, 3, 32, 32), 200, dtype=torch.uint8)
    plan = augmix.draw(generator(0), 1, 1)
    plan = dataclasses.replace(
        plan,
        tops=torch.tensor([4]),
        lefts=torch.tensor([4]),
        ops=torch.tensor([[[augmix.ROTATE, -1, -1]] * 3]),
        levels=torch.full_like(plan.levels, 0.9),
        mix=torch.zeros(1, dtype=torch.float64),
    )
    mean, std = RAW[3]
    view = augmix.apply(images, plan, mean=mean, std=std)[0]
    assert {tuple(p) for p in view.flatten(1).T.round().int().tolist()} == {(200, 200, 200), (128, 0, 0)}


def test_chunk_changes_nothing():
    images = pictures(9, 3, 32)
    mean, std = STATISTICS[3]
    results = [augmix.views(images, 5, generator(3), mean=mean, std=std, chunk=c) for c in (1, 7, 32, 256)]
    assert results[0].shape == (9, 5, 3, 32, 32)
    assert all(torch.equal(results[0], other) for other in results[1:])


def test_views_of_a_sample_do_not_depend_on_the_others():
    images = pictures(5, 1, 16)
    mean, std = STATISTICS[1]
    whole = augmix.views(images, 4, generator(0), mean=mean, std=std)
    assert torch.equal(augmix.views(images[:3], 4, generator(0), mean=mean, std=std), whole[:3])
    own = augmix.views(images, 4, [generator(0, i) for i in range(5)], mean=mean, std=std)
    assert torch.equal(augmix.views(images[3:4], 4, [generator(0, 3)], mean=mean, std=std), own[3:4])
    assert not torch.equal(own, whole)


def test_plan_has_the_stated_distributions():
    plan = augmix.draw(generator(0), 500, 20)
    assert len(plan) == 10_000
    assert abs(plan.mix.mean() - 1 / 2) < 0.02
    assert abs(plan.mix.var() - 1 / 12) < 0.005
    torch.testing.assert_close(plan.weights.sum(1), torch.ones(10_000, dtype=torch.float64))
    assert (plan.weights.mean(0) - 1 / 3).abs().max() < 0.02
    assert (plan.weights.var(0) - 1 / 18).abs().max() < 0.005  # Dirichlet(1, 1, 1)
    depth = (plan.ops >= 0).sum(-1)
    assert (depth.flatten().bincount(minlength=4)[1:] / 30_000 - 1 / 3).abs().max() < 0.02
    assert (plan.ops[plan.ops >= 0].bincount(minlength=9) / depth.sum() - 1 / 9).abs().max() < 0.01
    assert 0.1 <= plan.levels.min() <= plan.levels.max() < 1
    assert plan.signs.unique().tolist() == [-1, 1]
    assert abs(plan.flips.double().mean() - 0.5) < 0.02
    assert (plan.tops.min(), plan.tops.max()) == (0, 8)
    # at strength 1 a translation moves 32-pixel images in 7 % of the cases and 16-pixel images never
    assert abs((plan.levels * 32 / 30 >= 1).double().mean() - 0.0694) < 0.005


def test_bad_input():
    images = pictures(2, 3, 32)
    mean, std = STATISTICS[3]
    with pytest.raises(ValueError, match="before normalisation"):
        augmix.views(images.float(), 2, generator(0), mean=mean, std=std)
    with pytest.raises(ValueError, match="2 images for a plan of 4 views"):
        augmix.apply(images, augmix.draw(generator(0), 2, 2), mean=mean, std=std)
