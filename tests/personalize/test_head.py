import copy
from dataclasses import replace

import pytest
import torch

from fedlib.core import Local, NoAdapt
from fedlib.models import build, build_head, state_of
from fedlib.personalize.btfl import BTFLPersonal
from fedlib.personalize.head import PersonalHead, fit_head
from fedlib.states import own_head, slice_of
from fedlib.train.local import plan
from tests import tiny
from tests.oracles import head as oracle

LOCAL = Local(lr=0.1, momentum=0.5, weight_decay=0.05, batch_size=4, epochs=3)


def received(kind="plain"):
    return [state_of(tiny.net(kind, seed=k)) for k in range(3)]


def test_the_last_epoch_is_told_by_the_plan():
    """Eight minibatches at three in an epoch: the last epoch has two."""
    local = replace(LOCAL, steps=8, epochs=1)
    task, client = tiny.task(personal=local), tiny.client(0)
    head = build_head(task.model, task.seed, 0)
    _, features = fit_head(task, received()[0], client.train, head, 0, 1)
    steps = plan(len(client.train), local, task, task.generator("personal", 0, 1))
    assert [len(batch) for batch in features] == [len(step.index) for step in steps if step.epoch == 2]
    assert len(features) == 2
    with pytest.raises(ValueError, match="a personal head needs at least one epoch"):
        fit_head(tiny.task(personal=replace(LOCAL, epochs=0)), received()[0], client.train, head, 0, 1)


@pytest.mark.parametrize("kind", ["plain", "convolution"])
def test_equals_a_bare_loop_over_two_rounds(kind):
    task, clients, method = tiny.task(kind, personal=LOCAL), tiny.clients(), PersonalHead()
    states, personal = received(kind), method.init(task, clients)
    heads = list(personal["model.head.weight"])
    expected_global = torch.ones(5, dtype=torch.float64)
    for t in (1, 2):
        personal = method.fit(task, states, clients, personal, t)
        descriptors = []
        for k, client in enumerate(clients):
            module = copy.deepcopy(task.model).train()
            module.load_state_dict(states[k])
            steps = plan(len(client.train), LOCAL, task, task.generator("personal", client.id, t))
            heads[k], descriptor = oracle.fit(task, module, client.train, steps, LOCAL, heads[k])
            descriptors.append(descriptor)
            torch.testing.assert_close(personal["model.head.weight"][k], heads[k], rtol=0, atol=1e-10)
            torch.testing.assert_close(personal["descriptor"][k], descriptor, rtol=0, atol=1e-10)
        # The global descriptor is one round old: ones first, then the mean of round 1.
        torch.testing.assert_close(personal["shared.descriptor"], expected_global, rtol=0, atol=1e-10)
        expected_global = torch.stack(descriptors).mean(0)


def test_synchronous_descriptor_is_of_the_same_round():
    task, clients, method = tiny.task(), tiny.clients(), PersonalHead(sync_descriptor=True)
    personal = method.fit(task, received(), clients, method.init(task, clients), 1)
    torch.testing.assert_close(personal["shared.descriptor"], personal["descriptor"].mean(0))


def test_received_models_and_the_previous_head_are_untouched():
    task, clients, method = tiny.task(), tiny.clients(), PersonalHead()
    states, personal = received(), method.init(task, clients)
    before = {name: tensor.clone() for name, tensor in (states[0] | personal).items()}
    method.fit(task, states, clients, personal, 1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in (states[0] | personal).items())


def test_the_descriptor_counts_every_sample_it_saw():
    """With the short last batch dropped, the mean is over the samples that were used."""
    local = Local(lr=0.1, batch_size=4, epochs=1, smallest=4)
    task, client, method = tiny.task(personal=local, augment="none"), tiny.client(0, 9), PersonalHead()
    state = received()[0]
    personal = method.fit(task, [state], [client], method.init(task, [client]), 1)
    used = torch.cat([step.index for step in plan(9, local, task, task.generator("personal", 0, 1))])
    assert len(used) == 8
    torch.testing.assert_close(personal["descriptor"][0], task.predict(state, client.train.images[used])[0].mean(0))


def test_dropout_follows_the_seed():
    task, clients, method = tiny.task("dropout"), tiny.clients(), PersonalHead()
    states, start = [state_of(task.model)] * 3, method.init(task, clients)
    torch.manual_seed(1)
    first = method.fit(task, states, clients, start, 1)
    torch.manual_seed(2)
    again = method.fit(task, states, clients, start, 1)
    assert all(torch.equal(first[name], again[name]) for name in first)


@pytest.mark.parametrize("name", ["cnn", "mlp", "cct4"])
def test_fresh_heads_have_no_bias_and_differ_by_client(name):
    model = build(name, (1, 16, 16), 10, seed=0).double()
    first, again, other = (build_head(model, 0, client) for client in (0, 0, 1))
    assert first.shape == (10, model.head.in_features)
    assert first.dtype == torch.float64
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
    assert first.abs().max() <= model.head.in_features**-0.5


def test_a_frozen_extractor_keeps_its_batch_norm_statistics():
    task, clients, method = tiny.task("batchnorm", augment="none"), tiny.clients(), PersonalHead()
    states = [state_of(task.model)] * 3
    before = {name: tensor.clone() for name, tensor in states[0].items()}
    personal = method.fit(task, states, clients, method.init(task, clients), 1)
    assert all(torch.equal(states[0][name], before[name]) for name in before)
    for client, descriptor in zip(clients, personal["descriptor"], strict=True):
        torch.testing.assert_close(descriptor, task.predict(states[0], client.train.images)[0].mean(0))


def test_the_rate_does_not_fall_at_a_milestone():
    clients = tiny.clients()
    heads = []
    for milestone in (None, 1):
        task = tiny.task(personal=replace(LOCAL, milestone=milestone))
        heads.append(PersonalHead().fit(task, received(), clients, PersonalHead().init(task, clients), 1)["model.head.weight"])
    assert torch.equal(*heads)


@pytest.mark.parametrize("method", [PersonalHead(), BTFLPersonal()])
def test_the_received_bias_is_not_the_personal_heads(method):
    """A method that predicts with the personal model gets the scores of the head that was trained, which has no bias."""
    task, clients = replace(tiny.task(), model=build("mlp_small", tiny.SHAPE, tiny.CLASSES, 0).double()), tiny.clients()
    received = state_of(task.model)
    received["head.bias"] = torch.tensor([5.0, 0.0, 0.0], dtype=torch.float64)
    start = method.init(task, clients)
    for parts in (start, method.fit(task, [received] * 3, clients, start, 1)):
        own, stream = slice_of(parts, 0), clients[0].stream("original")
        scores = NoAdapt().run(task, received, own, stream).scores
        torch.testing.assert_close(scores, own_head(task.frozen(received, stream)[0], {"model.head.weight": own["model.head.weight"]}))
