"""The published forms that are timed give what the kit's whole-stream forms give."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from fedlib.adapt.btfl import BTFL
from fedlib.adapt.fedthe import FedTHE
from fedlib.adapt.reference import BTFLLoop, FedTHELoop, TTTLoop
from fedlib.adapt.ttt import TTT
from fedlib.core import Stream
from fedlib.models import Net, state_of
from fedlib.personalize.btfl import BTFLPersonal
from fedlib.personalize.head import PersonalHead
from fedlib.personalize.ttt import JointRotation
from fedlib.states import slice_of
from tests import tiny


@pytest.mark.parametrize("batch_size", [1, 7, 32])
@pytest.mark.parametrize(
    ("loop", "method", "personalizer"),
    [
        (FedTHELoop, FedTHE(alpha=0.2, steps=5), PersonalHead()),
        (BTFLLoop, replace(BTFLLoop.method, cap=5.0, kb=3.0), BTFLPersonal()),
    ],
    ids=["FedTHE", "BTFL"],
)
def test_loop_equals_the_whole_stream(loop, method, personalizer, batch_size):
    task = tiny.task()
    task = replace(task, model=Net(nn.Sequential(*list(task.model.extractor)[:2], nn.ReLU()), task.model.head))
    state, clients = state_of(task.model), tiny.clients((40, 30))
    state["head.weight"] = 4 * state["head.weight"]
    personal = slice_of(personalizer.fit(task, [state] * 2, clients, personalizer.init(task, clients), 2), 0)
    stream = Stream(tiny.samples(45, 3).images, "original_ind", 0)
    method = replace(method, batch_size=batch_size)
    slow, fast = (m.run(task, state, personal, stream) for m in (loop(method), method))
    torch.testing.assert_close(slow.extras["weight"], fast.extras["weight"], rtol=0, atol=1e-7)
    torch.testing.assert_close(slow.scores, fast.scores, rtol=0, atol=1e-6)
    assert fast.extras["weight"].std() > 1e-3


def test_early_stop_of_the_published_code():
    """A batch whose gradient nearly vanishes, of heads that hardly differ, keeps even weights in both forms, and only where it is asked
    for."""
    task, clients = tiny.task(), tiny.clients((40, 30))
    state = state_of(task.model)
    personal = slice_of(PersonalHead().fit(task, [state] * 2, clients, PersonalHead().init(task, clients), 2), 0)
    personal |= {"model.head.weight": (1 + 1e-6) * state["head.weight"], "descriptor": personal["shared.descriptor"]}
    state["head.bias"] = 0 * state["head.bias"]
    stream = Stream(tiny.samples(9, 3).images, "original_ind", 0)
    for method in (FedTHE(early_stop=True), FedTHE()):
        slow, fast = (m.run(task, state, personal, stream).extras["weight"] for m in (FedTHELoop(method), method))
        torch.testing.assert_close(slow, fast, rtol=0, atol=1e-7)
        assert bool(((fast - 0.5).abs() > 0.1).any()) != method.early_stop


@pytest.mark.parametrize("method", [TTT(copies=6, steps=2, lr=0.05), TTT(copies=6, lr=0.05, online=False)], ids=["online", "reset"])
def test_ungrouped_copies_give_what_grouped_ones_give(method):
    task, clients = tiny.task(), tiny.clients((40, 30))
    state, personalizer = state_of(task.model), JointRotation()
    personal = slice_of(personalizer.fit(task, [state] * 2, clients, personalizer.init(task, clients), 1), 0)
    stream = Stream(tiny.samples(7, 3).images, "original_ind", 0)
    slow, fast = (m.run(task, state, personal, stream).scores for m in (TTTLoop(method), method))
    torch.testing.assert_close(slow, fast, rtol=0, atol=1e-9)


def test_published_forms_pass_the_network_as_often_as_the_published_code(monkeypatch):
    """FedTHE three times a batch, BTFL once, TTT all copies of a sample and the sample itself."""
    task = tiny.task()
    task = replace(task, model=Net(nn.Sequential(*list(task.model.extractor)[:2], nn.ReLU()), task.model.head))
    state, clients = state_of(task.model), tiny.clients((40, 30))
    seen = []
    task.model.extractor.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
    expected = {
        (FedTHELoop(), PersonalHead()): [32] * 3 + [13] * 3,
        (BTFLLoop(), BTFLPersonal()): [32, 13],
        (TTTLoop(TTT(copies=5)), JointRotation()): [5, 1] * 45,
    }
    for (loop, personalizer), passes in expected.items():
        personal = slice_of(personalizer.fit(task, [state] * 2, clients, personalizer.init(task, clients), 2), 0)
        seen.clear()
        loop.run(task, state, personal, Stream(tiny.samples(45, 3).images, "original_ind", 0))
        assert seen == passes, loop


def test_variants_are_refused():
    for method in (BTFL(), replace(BTFLLoop().method, integral="exact")):
        with pytest.raises(ValueError, match="no variants"):
            BTFLLoop(method)
    with pytest.raises(ValueError, match="no variants"):
        FedTHELoop(FedTHE(weighting="entropy"))
