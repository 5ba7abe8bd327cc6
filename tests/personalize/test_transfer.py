from dataclasses import replace

import torch

from fedlib.core import Local
from fedlib.models import state_of
from fedlib.personalize.transfer import Transfer
from fedlib.states import part
from tests import one_pixel, tiny


def fit(asked=None, **epochs):
    """One pretraining and one downstream client from the same received state; asked: the length of a personal phase in the schedule."""
    personal = Local(lr=0.1, batch_size=4, **asked or {"epochs": 1})
    task, state = tiny.task("convolution", personal=personal), state_of(tiny.net("convolution"))
    clients = [tiny.client(0), replace(tiny.client(1, 12), source=False)]
    return state, part(Transfer(**epochs).fit(task, [state] * 2, clients, {}, 1), "model.")


def changed(state, tuned, k):
    return {name for name, tensor in state.items() if not torch.equal(tensor, tuned[name][k])}


def test_a_pretraining_client_keeps_the_received_model():
    state, tuned = fit(probe_epochs=1, tune_epochs=1)
    assert not changed(state, tuned, 0)


def test_probing_moves_the_head_alone_and_tuning_everything():
    state, probed = fit(probe_epochs=2)
    assert changed(state, probed, 1) == {"head.weight", "head.bias"}
    state, tuned = fit(tune_epochs=1)
    assert changed(state, tuned, 1) == set(state)


def test_every_procedure_starts_from_the_same_fresh_head():
    state, untrained = fit()
    assert changed(state, untrained, 1) == {"head.weight", "head.bias"}
    _, again = fit()
    assert torch.equal(untrained["head.weight"], again["head.weight"])


def test_tuning_after_probing_goes_on_from_the_probed_head():
    """With a probe the tuned features move less from where they were pretrained (what LP-FT is for), and differently."""
    _, both = fit(probe_epochs=3, tune_epochs=1)
    _, tuned = fit(tune_epochs=1)
    assert not torch.equal(both["extractor.0.weight"][1], tuned["extractor.0.weight"][1])


def test_a_schedule_that_counts_steps_does_not_change_the_epochs():
    for epochs in ({}, {"probe_epochs": 1, "tune_epochs": 1}):
        _, plain = fit(**epochs)
        _, counted = fit({"steps": 2}, **epochs)
        assert all(torch.equal(tensor, counted[name]) for name, tensor in plain.items())


def test_a_head_without_bias_gets_none():
    (client,), state = one_pixel.clients((0, 1)), one_pixel.state(1, 0)
    tuned = Transfer(1, 1).fit(one_pixel.task(), [state], [replace(client, source=False)], {}, 1)
    assert set(tuned) == {"model.head.weight"}
