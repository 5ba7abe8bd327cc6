import pytest
import torch
from torch.func import functional_call, vmap

from fedlib.models import state_of
from fedlib.models.adaptation import Adaptation


@pytest.mark.parametrize(("n_classes", "hidden", "parameters"), [(10, 32, 2497), (62, 32, 4161), (10, 64, 9089), (10, 128, 34561)])
def test_sizes(n_classes, hidden, parameters):
    model = Adaptation(n_classes, hidden)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert model(torch.zeros(4, n_classes)).shape == (4, 1)


def test_samples_are_judged_one_by_one():
    model = Adaptation(10).double()
    logits = torch.randn(6, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model(logits), torch.cat([model(row[None]) for row in logits]))


def test_runs_under_vmap():
    models = [Adaptation(10), Adaptation(10)]
    stack = {name: torch.stack([state_of(m)[name] for m in models]) for name in state_of(models[0])}
    logits = torch.randn(2, 6, 10, generator=torch.Generator().manual_seed(0))
    together = vmap(lambda state, z: functional_call(models[0], state, (z,)))(stack, logits)
    torch.testing.assert_close(together, torch.stack([m(z) for m, z in zip(models, logits, strict=True)]))
