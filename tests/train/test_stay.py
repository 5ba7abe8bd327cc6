import pytest
import torch

from fedlib import federation
from fedlib.store import Store
from fedlib.task import Local
from fedlib.train import stay
from fedlib.train.alone import Alone
from fedlib.train.fedavg import FedAvg
from fedlib.train.fedbn import FedBN
from fedlib.train.fedrep_local import FedRepLocal
from tests import tiny

METHODS = {"all": Alone(), "norm": FedBN(), "head": FedRepLocal()}
STAYS = {
    "all": lambda name: True,
    "norm": lambda name: name.startswith("extractor.1."),
    "head": lambda name: name.startswith("head."),
}


def trained(method, store=None, clients=None, **fields):
    task = tiny.task("batchnorm", dtype=torch.float32, rounds=3, local=Local(lr=0.05, batch_size=4, epochs=1), **fields)
    clients = clients or tiny.clients()
    return federation.run(task, method, clients, Store(store), "key", {}, progress=False)


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


@pytest.mark.parametrize("method", [FedBN(), Alone(), FedBN(weighting="uniform")])
def test_one_client_is_fedavg(method):
    clients = tiny.clients()[:1]
    (own,), (shared,) = (trained(m, clients=clients).received(4, 1) for m in (method, FedAvg()))
    assert all(torch.equal(own[name], shared[name]) for name in shared)


def test_alone_does_not_see_the_others():
    alone = trained(Alone(), clients=tiny.clients()[:1]).received(4, 1)[0]
    among = trained(Alone()).received(4, 3)[0]
    assert all(torch.equal(alone[name], among[name]) for name in alone)


def test_fedbn_without_batch_norm():
    with pytest.raises(ValueError, match="Net has none"):
        FedBN().init(tiny.task("convolution"), tiny.clients())


def test_fedbn_weighting():
    """Two clients of 4 and 12 images: the shared part is their mean, by size or not."""
    clients = [tiny.client(0, 4), tiny.client(1, 12)]
    task = tiny.task("batchnorm")
    for weighting, shares in (("samples", (0.25, 0.75)), ("uniform", (0.5, 0.5))):
        method = FedBN(weighting)
        server = method.init(task, clients)
        messages = [{name: torch.full_like(t, k) for name, t in server["model"].items()} for k in (0, 1)]
        after = method.aggregate(task, server, messages, clients, 1)
        assert after["model"]["head.weight"].unique().tolist() == [shares[1]]
        assert after["client_model"]["extractor.1.weight"][:, 0].tolist() == [0, 1]


def test_fedrep_trains_head_then_body():
    """No body epoch: only the head has moved. The head's phase is E epochs, whatever the body's."""
    clients, task = tiny.clients(), tiny.task(local=Local(lr=0.1, batch_size=4, epochs=1, weight_decay=0.0))
    still, moving = FedRepLocal(body_epochs=0), FedRepLocal()
    server = still.init(task, clients)
    first, second = (method.update(task, server, clients, 1)[0] for method in (still, moving))
    assert torch.equal(first["extractor.1.weight"], server["model"]["extractor.1.weight"])
    assert not torch.equal(second["extractor.1.weight"], server["model"]["extractor.1.weight"])
    assert torch.equal(first["head.weight"], second["head.weight"])
    assert not torch.equal(first["head.weight"], server["model"]["head.weight"])
