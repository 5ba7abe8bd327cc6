import pytest
import torch

from fedlib.core import Local
from fedlib.models import state_of
from fedlib.personalize.fedrep import FedRepHead
from fedlib.states import part
from fedlib.train.local import plan
from tests import one_pixel, tiny
from tests.oracles import local as oracle

LOCAL = Local(lr=0.1, momentum=0.5, weight_decay=0.05, batch_size=4, epochs=2)


@pytest.mark.parametrize("chunk_size", [1, 3])
def test_equals_bare_loops_over_two_rounds(chunk_size):
    """The client's head replaces the received one and lives on; the body starts from the received one in every round."""
    task, clients, method = tiny.task("convolution", chunk_size=chunk_size, personal=LOCAL), tiny.clients(), FedRepHead()
    personal = method.init(task, clients)
    expected = [state_of(task.model)] * 3
    for t in (1, 2):
        received = [state_of(tiny.net("convolution", seed=10 * t + k)) for k in range(3)]
        personal = method.fit(task, received, clients, personal, t)
        for k, client in enumerate(clients):
            state = received[k] | {name: tensor for name, tensor in expected[k].items() if name.startswith("head.")}
            for phase in ("head.", "extractor."):
                steps = plan(len(client.train), LOCAL, task, task.generator("personal", phase, client.id, t))
                moves = lambda name, phase=phase: name.startswith(phase)  # noqa: E731
                state = oracle.train(task, state, client.train, steps, LOCAL, trainable=moves)
            expected[k] = state
    for k in range(3):
        for name, tensor in part(personal, "model.").items():
            torch.testing.assert_close(tensor[k], expected[k][name], rtol=0, atol=1e-9)


@pytest.mark.parametrize("chunk_size", [1, 3])
def test_a_round_that_is_not_evaluated_brings_the_same_heads_without_training_the_body(chunk_size):
    task, clients, method = tiny.task("convolution", chunk_size=chunk_size, personal=LOCAL), tiny.clients(), FedRepHead()
    received = [state_of(tiny.net("convolution", seed=k)) for k in range(3)]
    whole = short = method.init(task, clients)
    passes = []
    task.model.extractor.register_forward_hook(lambda *_: passes.append(len(passes)))
    for t in (1, 2):
        passes.clear()
        short = method.advance(task, received, clients, short, t)
        half = len(passes)
        whole = method.fit(task, received, clients, whole, t)
        assert len(passes) == 3 * half > 0
        assert set(short) == {name for name in whole if name.startswith("model.head.")}
        assert all(torch.equal(tensor, whole[name]) for name, tensor in short.items())


def test_by_hand():
    """Stored heads (1, 1) and (0, 0) on a received body b = 0: both classes have probability 1/2, but the feature is 0, so that no head
    moves; the slope in b is (p - y) . w, nothing for either head. With b = 1 the heads move by (1/2, -1/2) on label 0."""
    task, clients = one_pixel.task(body=True), one_pixel.clients((0,), (0,))
    personal = {"model.head.weight": torch.stack([one_pixel.state(1, 1)["head.weight"], one_pixel.state(0, 0)["head.weight"]])}
    for body, moved in ((0.0, 0.0), (1.0, 0.5)):
        result = FedRepHead().fit(task, [one_pixel.state(7, 7, body=body)] * 2, clients, personal, 1)
        heads = result["model.head.weight"].flatten(1).tolist()
        assert heads[0] == pytest.approx([1 + moved, 1 - moved])
        assert heads[1] == pytest.approx([moved, -moved])
    assert result["model.extractor.1.weight"].flatten().tolist() == pytest.approx([2 - torch.sigmoid(torch.tensor(1.0)).item()] * 2)


def test_it_persists_and_starts_from_the_first_received_model():
    task, clients = tiny.task(), tiny.clients()
    start = FedRepHead().init(task, clients)
    assert FedRepHead().persistent
    assert all(torch.equal(head, task.model.head.weight) for head in start["model.head.weight"])
