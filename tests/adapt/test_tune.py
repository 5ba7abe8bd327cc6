import pytest
import torch
from torch.func import functional_call

from fedlib.adapt.memo import marginal_entropy
from fedlib.adapt.tune import tune_each
from fedlib.core import Local
from fedlib.models import state_of
from tests import tiny
from tests.oracles import tuning as oracle

RULES = {
    "sgd": (Local(lr=0.2, weight_decay=0.01), lambda p: torch.optim.SGD(p, 0.2, weight_decay=0.01)),
    "momentum": (Local(lr=0.2, momentum=0.9, weight_decay=0.0), lambda p: torch.optim.SGD(p, 0.2, momentum=0.9)),
    "adam": (Local("adam", lr=0.01, weight_decay=0.0), lambda p: torch.optim.Adam(p, 0.01)),
}


def tuned(task, stream, local=RULES["sgd"][0], state=None, steps=2, constants=None, **options):
    def forward(state, inputs, constants):
        return functional_call(task.model, state, (inputs,)) * constants.get("scale", 1)

    return tune_each(
        task,
        state or state_of(task.model),
        stream,
        lambda state, views, constants: marginal_entropy(forward(state, views, constants)),
        lambda state, image, constants: forward(state, image[None], constants)[0],
        local=local,
        steps=steps,
        views=3,
        constants=constants,
        **options,
    )


@pytest.mark.parametrize("kind", ["convolution", "batchnorm"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("chunk_size", [1, 4])
def test_equals_copies_of_the_module(kind, rule, chunk_size):
    task, stream = tiny.task(kind, chunk_size=chunk_size), tiny.client(0).stream("original")
    local, optimizer_of = RULES[rule]
    expected = oracle.tune(task, task.model, stream, lambda m, x, i: m(x), optimizer_of, steps=2, n_views=3)
    scores = tuned(task, stream, local)
    torch.testing.assert_close(scores, expected, rtol=0, atol=1e-10)
    assert (scores - task.predict(state_of(task.model), stream.images)[1]).abs().max() > 1e-4


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("chunk_size", [1, 4])
def test_carried_moments_equal_one_optimizer_for_the_stream(rule, chunk_size):
    """Only where there are moments does it differ from a fresh start with every sample."""
    task, stream = tiny.task("convolution", chunk_size=chunk_size), tiny.client(0).stream("original")
    local, optimizer_of = RULES[rule]
    expected = oracle.tune_with_one_optimizer(task, task.model, stream, optimizer_of, steps=2, n_views=3)
    scores, fresh = (tuned(task, stream, local, carry=carry) for carry in (True, False))
    torch.testing.assert_close(scores, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(scores[0], fresh[0], rtol=0, atol=1e-10)
    assert torch.equal(scores, fresh) if rule == "sgd" else (scores - fresh)[1:].abs().max() > 1e-3


def test_constants_follow_their_sample():
    scale = torch.linspace(0.5, 2, 7, dtype=torch.float64)
    expected = None
    for chunk_size in (1, 3):
        task, stream = tiny.task(chunk_size=chunk_size), tiny.client(0).stream("original")
        forward = lambda module, inputs, i: module(inputs) * scale[i]  # noqa: E731
        expected = oracle.tune(task, task.model, stream, forward, RULES["sgd"][1], steps=2, n_views=3)
        torch.testing.assert_close(tuned(task, stream, constants={"scale": scale}), expected, rtol=0, atol=1e-10)


def test_zero_steps_predict_as_they_are_and_nothing_is_changed():
    task, stream = tiny.task("batchnorm", chunk_size=3), tiny.client(0).stream("original")
    state = state_of(task.model)
    before = {name: tensor.clone() for name, tensor in state.items()}
    torch.testing.assert_close(tuned(task, stream, steps=0), task.predict(state, stream.images)[1])
    tuned(task, stream, state=state)
    assert all(torch.equal(state[name], before[name]) for name in state)
    assert not any(tensor.requires_grad for tensor in state.values())


def test_samples_do_not_depend_on_their_neighbours():
    task, client = tiny.task(), tiny.client(0)
    whole = tuned(task, client.stream("original"))
    assert torch.equal(tuned(task, client.stream("original", limit=3)), whole[:3])


def test_views_differ_between_streams_and_repeat():
    task, client = tiny.task(), tiny.client(0)
    first = client.stream("original")
    other = type(first)(first.images, "corrupted", 0, 0)
    assert torch.equal(tuned(task, first), tuned(task, first))
    assert not torch.equal(tuned(task, first), tuned(task, other))


def test_an_empty_stream():
    task = tiny.task()
    assert tuned(task, tiny.client(0).stream("original", limit=0)).shape == (0, 3)


@pytest.mark.parametrize("chunk_size", [1, 4])
def test_head_steps_move_the_head_alone(chunk_size):
    task, stream = tiny.task("convolution", chunk_size=chunk_size), tiny.client(0).stream("original")
    of_head = lambda parameters: torch.optim.SGD(list(parameters)[-2:], 0.2, weight_decay=0.01)  # noqa: E731
    expected = oracle.tune(task, task.model, stream, lambda m, x, i: m(x), of_head, steps=3, n_views=3)
    torch.testing.assert_close(tuned(task, stream, steps=0, head_steps=3), expected, rtol=0, atol=1e-10)


def test_parameters_that_the_network_spares_feel_no_decay(monkeypatch):
    """Without a gradient decay is all that moves: the bias of the head is halved, or stays if it is spared."""
    task, stream = tiny.task(), tiny.client(0).stream("original")
    state = state_of(task.model)
    strong = Local(lr=1.0, weight_decay=0.5)
    still = lambda state, inputs, constants: 0 * functional_call(task.model, state, (inputs,)).sum()  # noqa: E731
    bias = lambda state, image, constants: state["head.bias"]  # noqa: E731
    scores = [tune_each(task, state, stream, still, bias, local=strong, steps=1, views=2)[0]]
    monkeypatch.setattr(type(task.model), "feels_decay", lambda self, name: name != "head.bias")
    scores.append(tune_each(task, state, stream, still, bias, local=strong, steps=1, views=2)[0])
    torch.testing.assert_close(scores[0], state["head.bias"] / 2)
    torch.testing.assert_close(scores[1], state["head.bias"])
