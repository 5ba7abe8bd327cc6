import pytest
import torch

from fedlib.core import Local
from fedlib.models import state_of
from fedlib.personalize.ttt import JointRotation
from fedlib.states import part
from fedlib.train.local import plan
from tests import one_pixel, tiny
from tests.oracles import ttt as oracle

LOCAL = Local(lr=0.1, momentum=0.5, weight_decay=0.05, batch_size=4, epochs=2)
HEAD = ("rotation.weight", "rotation.bias")


def drawn(task, client, t):
    """The minibatches of a phase and the generator as it stands when the turns are drawn."""
    generator = task.generator("personal", client.id, t)
    steps = plan(len(client.train), task.schedule.personal, task, generator)
    torch.randint(2**62, (), generator=generator)  # the seed of the layers' own draws
    return steps, generator


@pytest.mark.parametrize("kind", ["convolution", "batchnorm"])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_equals_a_bare_loop_over_two_rounds(kind, dtype, atol):
    task, clients, method = tiny.task(kind, dtype=dtype, personal=LOCAL), tiny.clients(), JointRotation()
    personal = method.init(task, clients)
    heads = [[personal[name][k] for name in HEAD] for k in range(3)]
    for t in (1, 2):
        received = [state_of(tiny.net(kind, dtype, seed=10 * t + k)) for k in range(3)]
        personal = method.fit(task, received, clients, personal, t)
        for k, client in enumerate(clients):
            model, heads[k] = oracle.fit(task, received[k], heads[k], client.train, *_arguments(task, client, t))
            for name, tensor in zip(HEAD, heads[k], strict=True):
                torch.testing.assert_close(personal[name][k], tensor, rtol=0, atol=atol)
            for name, tensor in part(personal, "model.").items():
                torch.testing.assert_close(tensor[k], model[name], rtol=0, atol=atol)


def _arguments(task, client, t):
    steps, generator = drawn(task, client, t)
    return steps, task.schedule.personal, generator


def test_by_hand():
    """One pixel looks the same however it is turned. From zero every turn has probability 1/4, so that weight and bias of the drawn turn
    move by 3/4, those of the others by -1/4, and the classes step as usual: (1/2, -1/2) on label 0, the opposite on label 1."""
    task, clients = one_pixel.task(), one_pixel.clients((0,), (1,))
    zero = {"rotation.weight": torch.zeros(2, 4, 1).double(), "rotation.bias": torch.zeros(2, 4).double()}
    personal = JointRotation().fit(task, [one_pixel.state(0, 0)] * 2, clients, zero, 1)
    for k, sign in ((0, 1), (1, -1)):
        turn = torch.randint(4, (1,), generator=drawn(task, clients[k], 1)[1]).item()
        expected = [3 / 4 if j == turn else -1 / 4 for j in range(4)]
        assert personal["rotation.bias"][k].tolist() == pytest.approx(expected)
        assert personal["rotation.weight"][k].flatten().tolist() == pytest.approx(expected)
        assert personal["model.head.weight"][k].flatten().tolist() == pytest.approx([sign / 2, -sign / 2])


def test_the_head_lives_on_and_clients_differ():
    task, clients = tiny.task(), tiny.clients()
    start = JointRotation().init(task, clients)
    assert {name: tuple(tensor.shape) for name, tensor in start.items()} == {"rotation.weight": (3, 4, 5), "rotation.bias": (3, 4)}
    assert not torch.equal(start["rotation.weight"][0], start["rotation.weight"][1])
    assert JointRotation().persistent


def test_norms_that_the_network_spares_feel_no_decay(monkeypatch):
    strong, clients = Local(lr=1e-9, weight_decay=1e8, batch_size=4, epochs=1), tiny.clients()
    task, method = tiny.task("convolution", personal=strong), JointRotation()
    name, start = "model.extractor.1.weight", method.init(task, clients)
    moved = method.fit(task, [state_of(task.model)] * 3, clients, start, 1)
    monkeypatch.setattr(type(task.model), "feels_decay", lambda self, name: not name.startswith("extractor.1."))
    spared = method.fit(task, [state_of(task.model)] * 3, clients, start, 1)
    assert (moved[name] - 1).abs().min() > 0.05
    assert (spared[name] - 1).abs().max() < 1e-6
