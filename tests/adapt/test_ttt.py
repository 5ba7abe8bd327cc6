import pytest
import torch

from fedlib.adapt.ttt import TTT
from fedlib.models import state_of
from fedlib.personalize.ttt import JointRotation
from fedlib.states import slice_of
from tests import tiny
from tests.oracles import ttt as oracle

HEAD = ("rotation.weight", "rotation.bias")


def setting(kind="convolution", dtype=torch.float64):
    """Task, received state, one client's tuned model and rotation head, and its stream."""
    task, clients = tiny.task(kind, dtype=dtype), tiny.clients()
    received = [state_of(task.model)] * 3
    personal = JointRotation().fit(task, received, clients, JointRotation().init(task, clients), 1)
    return task, received[0], slice_of(personal, 2), clients[2].stream("original")


def expected(task, personal, stream, method):
    generator = task.generator("TTT", stream.client, stream.column, stream.draw)
    torch.randint(2**62, (), generator=generator)  # the seed of the layers' own draws
    state = {name.removeprefix("model."): tensor for name, tensor in personal.items() if name.startswith("model.")}
    options = {"copies": method.copies, "steps": method.steps, "lr": method.lr, "online": method.online}
    return oracle.adapt(task, state, [personal[name] for name in HEAD], stream.images, generator, **options)


@pytest.mark.parametrize("kind", ["convolution", "batchnorm"])
@pytest.mark.parametrize("method", [TTT(lr=0.05), TTT(lr=0.05, online=False), TTT(lr=0.05, copies=5, steps=3)])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_equals_a_module_that_sees_every_copy(kind, method, dtype, atol):
    """The method computes the copies of one turn once."""
    task, received, personal, stream = setting(kind, dtype)
    scores = method.run(task, received, personal, stream).scores
    torch.testing.assert_close(scores, expected(task, personal, stream, method), rtol=0, atol=atol)


def test_batch_norm_keeps_its_statistics():
    """Those of one image are none: without a step, the tuned network answers as it does in evaluation."""
    task, received, personal, stream = setting("batchnorm")
    state = {name.removeprefix("model."): tensor for name, tensor in personal.items() if name.startswith("model.")}
    scores = TTT(steps=0).run(task, received, personal, stream).scores
    torch.testing.assert_close(scores, task.predict(state, stream.images)[1], rtol=0, atol=1e-12)


def test_parameters_are_carried_on_and_restored():
    task, received, personal, stream = setting()
    online, offline = (TTT(lr=0.05, online=flag).run(task, received, personal, stream).scores for flag in (True, False))
    assert torch.equal(online[0], offline[0])
    assert not torch.allclose(online[1:], offline[1:], atol=1e-3)
    assert torch.equal(TTT(lr=0.05).run(task, received, personal, stream).scores, online)


def test_later_samples_do_not_matter():
    task, received, personal, stream = setting()
    short = type(stream)(stream.images[:3], stream.column, stream.client, stream.draw)
    whole, cut = (TTT(lr=0.05).run(task, received, personal, images).scores for images in (stream, short))
    assert torch.equal(whole[:3], cut)


def test_nothing_given_is_changed():
    task, received, personal, stream = setting("batchnorm")
    before = {name: tensor.clone() for name, tensor in (received | personal).items()}
    TTT(lr=0.5).run(task, received, personal, stream)
    assert all(torch.equal((received | personal)[name], tensor) for name, tensor in before.items())


def test_dropout_acts_at_test_time_and_repeats():
    task, received, personal, stream = setting("dropout")
    torch.manual_seed(5)
    first, again = (TTT(steps=0).run(task, received, personal, stream).scores for _ in range(2))
    state = {name.removeprefix("model."): tensor for name, tensor in personal.items() if name.startswith("model.")}
    assert torch.equal(first, again)
    assert not torch.allclose(first, task.predict(state, stream.images)[1])


def test_bad_arguments():
    with pytest.raises(ValueError, match="range"):
        TTT(copies=0)
    task = tiny.task()
    with pytest.raises(ValueError, match="JointRotation"):
        TTT().run(task, state_of(task.model), {}, tiny.client(0).stream("original"))
