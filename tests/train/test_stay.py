import pytest
import torch

from fedlib.train import stay
from fedlib.train.alone import Alone
from fedlib.train.fedavg import FedAvg
from fedlib.train.fedbn import FedBN
from fedlib.train.fedrep_local import FedRepLocal
from tests import tiny
from tests.train.staying import trained

METHODS = {"all": Alone(), "norm": FedBN(), "head": FedRepLocal()}
STAYS = {
    "all": lambda name: True,
    "norm": lambda name: name.startswith("extractor.1."),
    "head": lambda name: name.startswith("head."),
}


@pytest.mark.parametrize("kind", METHODS)
def test_exactly_the_named_parts_stay(kind):
    final = trained(METHODS[kind]).received(4, 3)
    for name in final[0]:
        equal = torch.equal(final[0][name], final[1][name])
        # Counters of batch norm follow the number of steps, which some clients share.
        if not name.endswith("num_batches_tracked"):
            assert equal == (not STAYS[kind](name)), name


@pytest.mark.parametrize("kind", METHODS)
def test_from_the_cache_the_same_and_for_the_final_model_only(kind, tmp_path):
    fresh, again = trained(METHODS[kind], tmp_path), trained(METHODS[kind], tmp_path)
    assert again.cached
    for a, b in zip(fresh.received(4, 3), again.received(4, 3), strict=True):
        assert all(torch.equal(a[name], b[name]) for name in a)
    with pytest.raises(ValueError, match="final model only"):
        again.received(3, 3)


def test_left_out_clients_keep_what_they_have():
    clients = tiny.clients()
    server = stay.start(tiny.task(), clients, lambda name: name.startswith("head."))
    message = {name: tensor + 1 for name, tensor in server["model"].items()}
    after = stay.average(server, [message], [clients[1]], [1.0])
    own = [state["head.bias"] for state in stay.models(after, clients)]
    torch.testing.assert_close(own[1], server["model"]["head.bias"] + 1)
    assert torch.equal(own[0], server["model"]["head.bias"])
    assert torch.equal(stay.models(server, [clients[1]])[0]["head.bias"], server["model"]["head.bias"])


def test_clients_that_do_not_train_receive_the_shared_model():
    clients = [*tiny.clients(), tiny.client(3, source=False)]
    final = trained(FedBN(), clients=clients)
    assert torch.equal(final.received(4, 4)[3]["extractor.1.weight"], final.state(4)["model"]["extractor.1.weight"])


@pytest.mark.parametrize("method", [FedBN(), Alone()])
def test_one_client_is_fedavg(method):
    clients = tiny.clients()[:1]
    (own,), (shared,) = (trained(m, clients=clients).received(4, 1) for m in (method, FedAvg()))
    assert all(torch.equal(own[name], shared[name]) for name in shared)
