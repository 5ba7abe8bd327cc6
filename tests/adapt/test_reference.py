"""The loops that are timed give what the kit's whole-stream forms give."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from fedlib.adapt.btfl import BTFL
from fedlib.adapt.fedthe import FedTHE
from fedlib.adapt.output import slice_of
from fedlib.adapt.reference import BTFLLoop, FedTHELoop
from fedlib.clients import Stream
from fedlib.models import Net, state_of
from fedlib.personalize.btfl import BTFLPersonal
from fedlib.personalize.head import PersonalHead
from tests import tiny


@pytest.mark.parametrize("batch_size", [1, 7, 32])
@pytest.mark.parametrize(
    ("loop", "method", "personalizer"),
    [(FedTHELoop, FedTHE(alpha=0.2, steps=5), PersonalHead()), (BTFLLoop, BTFL(cap=5.0, kb=3.0), BTFLPersonal())],
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


def test_variants_are_refused():
    with pytest.raises(ValueError, match="no variants"):
        BTFLLoop(BTFL(integral="exact"))
    with pytest.raises(ValueError, match="no variants"):
        FedTHELoop(FedTHE(weighting="entropy"))
