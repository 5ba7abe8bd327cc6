import pytest
import torch

from fedlib.core import Local
from fedlib.stages.optim import Optimizer

SHAPES = [(3, 2), (4,), (2, 1, 3)]
RULES = {
    "sgd": (Local(lr=0.1, weight_decay=0.0), lambda p: torch.optim.SGD(p, 0.1)),
    "decay": (Local(lr=0.1, weight_decay=0.05), lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.05)),
    "momentum": (Local(lr=0.1, momentum=0.9, weight_decay=0.05), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.05)),
    "adam": (Local("adam", lr=0.01, weight_decay=0.0), lambda p: torch.optim.Adam(p, 0.01)),
    "adam with decay": (Local("adam", lr=0.01, weight_decay=0.05), lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.05)),
}


def tensors(seed, shapes=SHAPES):
    draws = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=draws, dtype=torch.float64) for shape in shapes]


@pytest.mark.parametrize("rule", RULES)
def test_equals_torch_optim_step_by_step(rule):
    local, make = RULES[rule]
    ours, theirs = tensors(0), [p.requires_grad_() for p in tensors(0)]
    optimizer, reference = Optimizer(local, ours, [True] * 3), make(theirs)
    for step in range(12):
        gradients = tensors(1 + step)
        optimizer.step(ours, gradients)
        for p, g in zip(theirs, gradients, strict=True):
            p.grad = g
        reference.step()
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b.detach(), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("rule", ["momentum", "adam with decay"])
def test_prefix_rows_move_alone(rule):
    """Three stacked clients with 5, 3 and 1 steps equal three optimisers, and finished clients keep their bits."""
    local, _ = RULES[rule]
    stack, lengths = tensors(0, [(3, 2, 2), (3, 4)]), [5, 3, 1]
    alone = [[p[k].clone() for p in stack] for k in range(3)]
    optimizer, single = Optimizer(local, stack, [True, False]), [Optimizer(local, p, [True, False]) for p in alone]
    for step in range(5):
        gradients = tensors(10 + step, [(3, 2, 2), (3, 4)])
        rows = sum(length > step for length in lengths)
        before = [p[rows:].clone() for p in stack]
        optimizer.step([p[:rows] for p in stack], [g[:rows] for g in gradients], rows)
        assert all(torch.equal(p[rows:], b) for p, b in zip(stack, before, strict=True))
        for k in range(rows):
            single[k].step(alone[k], [g[k] for g in gradients])
    for k in range(3):
        for p, q in zip(stack, alone[k], strict=True):
            torch.testing.assert_close(p[k], q, rtol=1e-13, atol=1e-13)


def test_weight_decay_only_where_asked():
    parameters = [torch.ones(2), torch.ones(2)]
    Optimizer(Local(lr=0.5, weight_decay=0.1), parameters, [True, False]).step(parameters, [torch.zeros(2), torch.zeros(2)])
    assert parameters[0].tolist() == pytest.approx([0.95, 0.95])
    assert parameters[1].tolist() == [1, 1]


def test_gradients_are_not_changed():
    parameters, gradients = tensors(0), tensors(1)
    copies = [g.clone() for g in gradients]
    optimizer = Optimizer(RULES["momentum"][0], parameters, [True] * 3)
    for _ in range(2):
        optimizer.step(parameters, gradients)
    assert all(torch.equal(g, c) for g, c in zip(gradients, copies, strict=True))


@pytest.mark.parametrize("rule", ["momentum", "adam"])
def test_scalars_are_parameters_too(rule):
    local, make = RULES[rule]
    ours, theirs = torch.tensor(2.0), torch.tensor(2.0, requires_grad=True)
    theirs.grad = torch.tensor(0.3)
    Optimizer(local, [ours], [True]).step([ours], [torch.tensor(0.3)])
    make([theirs]).step()
    torch.testing.assert_close(ours, theirs.detach())
