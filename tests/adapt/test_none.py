import torch

from fedlib.adapt.none import NoAdapt
from fedlib.models import state_of
from tests import tiny


def test_predicts_with_the_received_model():
    task, stream = tiny.task(), tiny.client(0).stream("original")
    state = state_of(tiny.net(seed=1))
    output = NoAdapt().run(task, state, {"descriptor": torch.ones(5)}, stream)
    assert torch.equal(output.scores, task.predict(state, stream.images)[1])
    assert output.extras == {}


def test_personal_parts_replace_their_own_names_only():
    task, stream = tiny.task(), tiny.client(0).stream("original")
    state, tuned = state_of(tiny.net(seed=1)), state_of(tiny.net(seed=2))
    output = NoAdapt().run(task, state, {"model.head.weight": tuned["head.weight"]}, stream)
    expected = task.predict(state | {"head.weight": tuned["head.weight"]}, stream.images)[1]
    assert torch.equal(output.scores, expected)
    assert not torch.allclose(expected, task.predict(state, stream.images)[1])
