import pytest
import torch
from torch.nn import functional

from fedlib.adapt.fedthe import FedTHE
from fedlib.adapt.fedthe_terms import FedTHETerms
from fedlib.core import Stream
from fedlib.models import state_of
from tests import tiny


def personal_part(task):
    draws = torch.Generator().manual_seed(0)
    names = {"model.head.weight": (3, 5), "descriptor": (5,), "shared.descriptor": (5,)}
    return {name: torch.randn(shape, generator=draws, dtype=torch.float64) for name, shape in names.items()}


@pytest.mark.parametrize("rule", ["code", "inclusive"])
def test_terms_by_hand(rule):
    """With beta = 1 the distances are those of the features themselves."""
    task = tiny.task()
    state, personal, stream = state_of(task.model), personal_part(task), Stream(tiny.samples(20).images, "x", 0)
    method = FedTHE(beta=1.0, batch_size=4, history_rule=rule)
    output = FedTHETerms(method).run(task, state, personal, stream)
    plain = method.run(task, state, personal, stream)
    assert torch.equal(output.scores, plain.scores)
    features, logits = task.predict(state, stream.images)
    e = plain.extras["weight"]
    for i in range(20):
        ours = [z.softmax(0) for z in (logits[i], personal["model.head.weight"] @ features[i])]
        assert output.extras["similarity"][i].item() == pytest.approx(functional.cosine_similarity(*ours, dim=0).item(), abs=1e-9)
        far = [(features[i] - personal[name]).norm().item() for name in ("shared.descriptor", "descriptor")]
        assert output.extras["alignment"][i].item() == pytest.approx(e[i].item() * far[0] + (1 - e[i].item()) * far[1], abs=1e-9)


def test_history_enters_the_alignment():
    task = tiny.task()
    state, personal, stream = state_of(task.model), personal_part(task), Stream(tiny.samples(20).images, "x", 0)
    with_history, without = (FedTHETerms(FedTHE(beta=b)).run(task, state, personal, stream).extras["alignment"] for b in (0.1, 1.0))
    assert with_history.std() < without.std()
