from functools import partial

import pytest
import torch

from fedlib.adapt.shot import SHOT, pseudo_labels
from tests.adapt.cases import case
from tests.oracles import batch_adaptation as oracle


@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_equals_the_plain_version(beta):
    task, state, stream = case()
    names = [name for name, _ in task.model.named_parameters() if not name.startswith("head.")]
    scores = SHOT(0.1, beta, 4).run(task, state, {}, stream).scores
    expected = oracle.online(task, state, stream, 4, names, partial(oracle.information, beta=beta), partial(torch.optim.SGD, lr=0.1))
    torch.testing.assert_close(scores, expected, rtol=1e-8, atol=1e-10)


def test_pseudo_labels_are_the_nearest_prototypes():
    features = torch.tensor([[0.0, 0.0], [0.1, 0.0], [5.0, 5.0], [5.0, 4.9]])
    logits = torch.tensor([[9.0, 0.0], [0.5, 0.0], [0.0, 9.0], [0.2, 0.0]])
    assert pseudo_labels(features, logits).tolist() == [0, 0, 1, 1]
    # A class that no image can have takes none from the others.
    impossible = torch.cat([logits, torch.full((4, 1), -120.0)], dim=1)
    assert pseudo_labels(features + 1, impossible).tolist() == [0, 0, 1, 1]
