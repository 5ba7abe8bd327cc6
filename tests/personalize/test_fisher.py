import torch
from torch.func import functional_call
from torch.nn import functional

from fedlib.models import state_of
from fedlib.personalize.fine_tune import FineTune
from fedlib.personalize.fisher import WithFisher
from tests import tiny


def test_by_hand_over_two_batches():
    """The whole training part in two batches on batch statistics, a last image with those before: mean of the squared gradients; the
    labels are the model's own."""
    task, clients = tiny.task("batchnorm"), [tiny.client(0, 8), tiny.client(1, 9)]
    method = WithFisher(batch_size=4)
    state = state_of(task.model)
    part = method.fit(task, [state] * 2, clients, {}, 3)
    tuned = {name: part[f"model.{name}"][1] for name in state}
    order = torch.randperm(9, generator=task.generator("fisher", 1, 3))
    expected = 0
    model = tiny.net("batchnorm").train()
    for batch in order.split([4, 5]):
        leaves = {name: t.clone().requires_grad_(name == "extractor.1.weight") for name, t in tuned.items()}
        logits = functional_call(model, leaves, (task.inputs(clients[1].train.images[batch]),))
        functional.cross_entropy(logits, logits.argmax(1)).backward()
        expected = expected + leaves["extractor.1.weight"].grad.square() / 2
    torch.testing.assert_close(part["fisher.extractor.1.weight"][1], expected)
    assert {name for name in part if name.startswith("fisher.")} == {"fisher.extractor.1.weight", "fisher.extractor.1.bias"}


def test_keeps_the_parts_of_its_base():
    task, clients, state = tiny.task("batchnorm"), tiny.clients(), state_of(tiny.net("batchnorm"))
    with_fisher, base = (m.fit(task, [state] * 3, clients, {}, 1) for m in (WithFisher(), FineTune()))
    assert all(torch.equal(with_fisher[name], base[name]) for name in base)


def test_at_most_so_many_images():
    task, state = tiny.task("batchnorm"), state_of(tiny.net("batchnorm"))
    clients = [tiny.client(0, 12)]
    few, all_ = (WithFisher(images=n).fit(task, [state], clients, {}, 1)["fisher.extractor.1.bias"] for n in (6, 12))
    assert not torch.equal(few, all_)
    assert torch.equal(all_, WithFisher(images=500).fit(task, [state], clients, {}, 1)["fisher.extractor.1.bias"])
