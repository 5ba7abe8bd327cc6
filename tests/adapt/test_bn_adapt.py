from dataclasses import replace

import pytest
import torch
from torch import nn

from fedlib.adapt.bn_adapt import BNAdapt
from fedlib.core import NoAdapt
from fedlib.models import Net, build, state_of
from tests import tiny
from tests.adapt.cases import case
from tests.oracles import batch_adaptation as oracle


@pytest.mark.parametrize("prior", [0, 16])
def test_equals_the_plain_version_with_a_short_last_batch(prior):
    task, state, stream = case()
    scores = BNAdapt(4, prior).run(task, state, {}, stream).scores
    torch.testing.assert_close(scores, oracle.bn_adapt(task, state, stream, 4, prior), rtol=1e-9, atol=1e-12)


def test_a_strong_prior_is_no_adaptation():
    task, state, stream = case()
    torch.testing.assert_close(BNAdapt(4, 10**12).run(task, state, {}, stream).scores, NoAdapt().run(task, state, {}, stream).scores)


def test_without_the_stem_the_first_layer_keeps_its_statistics():
    """The toy network has one norm, so that nothing adapts; a deep one changes."""
    task, state, stream = case()
    # Convolutions of four images and of all of them may round differently.
    torch.testing.assert_close(BNAdapt(4, 0, stem=False).run(task, state, {}, stream).scores, NoAdapt().run(task, state, {}, stream).scores)
    model = build("shallow_cnn", (1, 16, 16), 3, seed=0)
    changed = BNAdapt(4, 0, stem=False)
    images = torch.randint(256, (8, 1, 16, 16), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    deep, stream = replace(task, model=model, dtype=torch.float32), replace(stream, images=images)
    some, every = (method.run(deep, state_of(model), {}, stream).scores for method in (changed, BNAdapt(4, 0)))
    assert not torch.allclose(some, every)


def test_hooks_are_removed():
    task, state, stream = case()
    BNAdapt(4, 0).run(task, state, {}, stream)
    plain = NoAdapt().run(task, state, {}, stream).scores
    assert torch.equal(NoAdapt().run(task, state, {}, stream).scores, plain)
    assert not any(layer._forward_hooks for layer in task.model.modules())


def test_negative_prior_is_refused():
    with pytest.raises(ValueError, match="prior must be 0 or more, got -1"):
        BNAdapt(prior=-1)


def test_batch_norm_without_running_statistics_is_refused():
    layers = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, track_running_stats=False), nn.Flatten())
    with pytest.raises(ValueError, match=r"batch norm 'extractor\.1' keeps no running ones"):
        BNAdapt().check_network(Net(layers, nn.Linear(32, 3)))
    BNAdapt().check_network(tiny.net("batchnorm"))
