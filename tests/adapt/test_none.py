import torch

from fedlib.adapt.none import NoAdapt
from fedlib.adapt.output import slice_of
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


def test_the_slice_of_a_client():
    personal = {"model.head.weight": torch.arange(6.0).view(3, 2), "shared.descriptor": torch.arange(2.0)}
    part = slice_of(personal, 1)
    assert part["model.head.weight"].tolist() == [2, 3]
    assert part["shared.descriptor"].tolist() == [0, 1]
