import torch

from fedlib.adapt.batchwise import step_after
from fedlib.core import Local
from tests.adapt.cases import case

NAMES = ["head.bias"]
LOCAL = Local(lr=0.5, batch_size=4)


def test_a_penalty_moves_the_named_tensors_alone():
    """With loss b.sum() of the bias the step is lr everywhere: after k batches the logits lie k * lr lower than without steps."""
    task, state, stream = case(12)
    still = step_after(task, state, stream, NAMES, lambda features, logits: None, LOCAL)
    moved = step_after(
        task, state, stream, NAMES, lambda features, logits: logits.sum() * 0.0, LOCAL, penalty=lambda leaves: leaves["head.bias"].sum()
    )
    steps = torch.arange(3).repeat_interleave(4)[:, None].to(still)
    torch.testing.assert_close(moved, still - 0.5 * steps, rtol=0, atol=1e-12)


def test_without_a_loss_no_step_is_made():
    task, state, stream = case(12)
    seen = []

    def loss(features, logits):
        seen.append((features.shape, logits.shape))

    scores = step_after(task, state, stream, NAMES, loss, LOCAL)
    assert seen == [((4, 5), (4, 3))] * 3
    assert scores.shape == (12, 3)
    assert not scores.requires_grad
