from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy as torch_cross_entropy

from fedlib.core import Local, Samples
from fedlib.models import build, state_of
from fedlib.train import local as local_module
from fedlib.train.fedavg import class_counts, model_loss
from fedlib.train.local import clipped, plan, round_plan, train
from tests import tiny
from tests.oracles import local as oracle

SIZES = (9, 5, 14, 8)
LOCALS = {
    "sgd": Local(lr=0.1, batch_size=4, epochs=2, weight_decay=0.01),
    "momentum": Local(lr=0.05, momentum=0.9, batch_size=4, epochs=2, weight_decay=0.01),
    "adam": Local("adam", lr=0.01, batch_size=4, epochs=2, weight_decay=0.01),
    "clip": Local(lr=0.1, batch_size=4, epochs=2, clip=0.3),
    "full batches": Local(lr=0.1, batch_size=4, epochs=2, smallest=4),
    "steps": Local(lr=0.1, batch_size=4, steps=5),
}


def trained(task, local, parts=None, loss=None, states=None, **options):
    parts = parts or [tiny.samples(n, k) for k, n in enumerate(SIZES)]
    generators = [task.generator("local", k, 1) for k in range(len(parts))]
    states = state_of(task.model) if states is None else states
    return train(task, loss or model_loss(task, "cross_entropy"), states, parts, local=local, generators=generators, **options)


def assert_close(ours, theirs, atol=1e-10):
    assert list(ours) == list(theirs)
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=atol)


@pytest.mark.parametrize("kind", ["plain", "convolution", "batchnorm"])
@pytest.mark.parametrize("name", LOCALS)
def test_equals_a_bare_pytorch_loop(kind, name):
    task, local = tiny.task(kind), LOCALS[name]
    start = state_of(task.model)
    for k, (n, state) in enumerate(zip(SIZES, trained(task, local), strict=True)):
        samples = tiny.samples(n, k)
        expected = oracle.train(task, start, samples, plan(n, local, task, task.generator("local", k, 1)), local)
        assert_close(dict(sorted(state.items())), dict(sorted(expected.items())))
        assert not torch.equal(state["head.weight"], start["head.weight"])


@pytest.mark.parametrize("kind", ["plain", "convolution"])
@pytest.mark.parametrize("name", LOCALS)
@pytest.mark.parametrize("chunk_size", [2, 3, 32])
def test_stacked_clients_equal_client_by_client(kind, name, chunk_size):
    one, stacked = (trained(tiny.task(kind, chunk_size=size), LOCALS[name]) for size in (1, chunk_size))
    for a, b in zip(one, stacked, strict=True):
        assert_close(a, b)


def test_constants_states_and_names_follow_their_client():
    """Balanced softmax counts, own starting states, a frozen extractor and a bias without decay, stacked and one by one."""
    parts = [tiny.samples(n, k) for k, n in enumerate(SIZES)]
    starts = [state_of(tiny.net(seed=k)) for k in range(len(SIZES))]
    counts = [torch.bincount(part.labels, minlength=3).double() for part in parts]
    assert len({tuple(c.tolist()) for c in counts}) == len(SIZES)
    options = {"trainable": lambda name: name.startswith("head."), "weight_decayed": lambda name: name != "head.bias"}
    for chunk_size in (1, 3):
        task = tiny.task(chunk_size=chunk_size)
        constants = class_counts(task, [tiny.client(k, n) for k, n in enumerate(SIZES)])
        loss = model_loss(task, "balanced_softmax")
        results = trained(task, LOCALS["sgd"], parts, loss, starts, constants=constants, **options)
        for k, part in enumerate(parts):
            steps = plan(len(part), LOCALS["sgd"], task, task.generator("local", k, 1))
            prior = (counts[k] + 1).log()
            expected = oracle.train(
                task, starts[k], part, steps, LOCALS["sgd"], loss=lambda g, y, p=prior: torch_cross_entropy(g + p, y), **options
            )
            assert_close(results[k], expected)
            assert torch.equal(results[k]["extractor.1.weight"], starts[k]["extractor.1.weight"])


def test_batch_norm_buffers_follow():
    task = tiny.task("batchnorm", chunk_size=4)
    start = state_of(task.model)
    for state, n in zip(trained(task, LOCALS["sgd"]), SIZES, strict=True):
        assert state["extractor.1.num_batches_tracked"] == 2 * -(-n // 4)
        assert not torch.equal(state["extractor.1.running_mean"], start["extractor.1.running_mean"])
    assert_close(state_of(task.model), start, atol=0)


@pytest.mark.parametrize("chunk_size", [1, 4])
def test_inputs_are_untouched(chunk_size):
    task = tiny.task("convolution", chunk_size=chunk_size)
    state, parts = state_of(task.model), [tiny.samples(n, k) for k, n in enumerate(SIZES)]
    before, images = {name: t.clone() for name, t in state.items()}, [part.images.clone() for part in parts]
    results = trained(task, LOCALS["adam"], parts, states=state)
    assert_close(state, before, atol=0)
    assert all(torch.equal(part.images, copy) for part, copy in zip(parts, images, strict=True))
    assert not any(tensor.requires_grad for tensor in (*state.values(), *results[0].values()))
    results[0]["head.bias"].add_(1)
    assert torch.equal(state["head.bias"], before["head.bias"])


@pytest.mark.parametrize("kind", ["plain", "dropout"])
def test_order_of_clients_changes_no_bit(kind):
    task, parts = tiny.task(kind), [tiny.samples(n, k) for k, n in enumerate(SIZES)]
    torch.manual_seed(1)
    first = trained(task, LOCALS["sgd"], parts)
    torch.manual_seed(2)
    generators = [task.generator("local", k, 1) for k in (2, 0)]
    loss = model_loss(task, "cross_entropy")
    again = train(task, loss, state_of(task.model), [parts[2], parts[0]], local=LOCALS["sgd"], generators=generators)
    assert_close(first[2], again[0], atol=0)
    assert_close(first[0], again[1], atol=0)


def test_dropout_acts_and_leaves_the_default_generator_alone():
    task = tiny.task("dropout")
    before = torch.get_rng_state()
    state = trained(task, LOCALS["sgd"])[0]
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.allclose(state["head.weight"], trained(tiny.task("plain"), LOCALS["sgd"])[0]["head.weight"])


def test_stacked_dropout_differs_between_clients():
    """Two copies of one client in a stack: without masks of their own they would end equal."""
    task, part = tiny.task("dropout", chunk_size=2), tiny.samples(8)
    generators = [task.generator("local", 0, 1) for _ in range(2)]
    a, b = train(task, model_loss(task, "cross_entropy"), state_of(task.model), [part, part], local=LOCALS["sgd"], generators=generators)
    assert not torch.allclose(a["head.weight"], b["head.weight"])


def test_a_stack_that_did_not_fit_leaves_no_trace_in_dropout(monkeypatch):
    """A GPU without room for four clients trains them two by two, with the masks of a run that began so."""
    parts, tried = [tiny.samples(8, k) for k in range(4)], []
    two_by_two = trained(tiny.task("dropout", chunk_size=2), LOCALS["sgd"], parts)

    def full(*arguments, whole=local_module._train_chunk):
        tried.append(len(arguments[-1]))
        if tried[-1] > 2:
            raise torch.OutOfMemoryError("full")
        return whole(*arguments)

    monkeypatch.setattr(local_module, "_train_chunk", full)
    halved = trained(tiny.task("dropout", chunk_size=4), LOCALS["sgd"], parts)
    assert tried == [4, 2, 2]
    for ours, theirs in zip(halved, two_by_two, strict=True):
        assert_close(ours, theirs, atol=0)


def test_no_epochs_no_change():
    for chunk_size in (1, 4):
        task = tiny.task(chunk_size=chunk_size)
        assert_close(trained(task, replace(LOCALS["sgd"], epochs=0))[1], state_of(task.model), atol=0)


def test_unused_parameters_and_buffers_of_the_loss():
    """A loss that reads the head alone leaves the extractor where it is, and hands back names that the network does not know."""
    task = tiny.task("batchnorm")

    def loss(state, batch, constants):
        return (functional_call(task.model.head, {n: state[f"head.{n}"] for n in ("weight", "bias")}, (state["probe"],)) ** 2).sum()

    start = state_of(task.model) | {"probe": torch.ones(1, 5, dtype=torch.float64)}
    (result,) = trained(task, Local(lr=0.1, epochs=1, weight_decay=0.0), [tiny.samples(4)], loss, start)
    assert torch.equal(result["extractor.4.weight"], start["extractor.4.weight"])
    assert torch.equal(result["extractor.1.running_mean"], start["extractor.1.running_mean"])
    assert not torch.equal(result["probe"], start["probe"])


def test_plan_covers_every_sample_once_per_epoch():
    task = tiny.task()
    steps = plan(10, Local(batch_size=4, epochs=3), task, torch.Generator().manual_seed(0))
    assert [len(step.index) for step in steps] == [4, 4, 2] * 3
    epochs = [torch.cat([step.index for step in steps[i : i + 3]]).tolist() for i in (0, 3, 6)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert all(len(step.draws) == len(step.index) for step in steps)
    assert all(len(step.draws) == 0 for step in plan(10, Local(), task, torch.Generator(), augment=False))


@pytest.mark.parametrize(("n", "expected"), [(10, [4, 4]), (8, [4, 4]), (3, [3])])
def test_smallest_skips_short_batches_but_not_the_only_one(n, expected):
    steps = plan(n, Local(batch_size=4, epochs=1, smallest=4), tiny.task(), torch.Generator())
    assert [len(step.index) for step in steps] == expected


def test_one_image_alone_may_be_skipped_and_more_trained_on():
    sizes = {n: [len(s.index) for s in plan(n, Local(batch_size=4, epochs=1, smallest=2), tiny.task(), torch.Generator())] for n in (5, 6)}
    assert sizes == {5: [4], 6: [4, 2]}


@pytest.mark.parametrize("smallest", [1, 2, 4])
@pytest.mark.parametrize("n", [3, 4, 7, 9, 16])
def test_as_many_steps_as_asked(n, smallest):
    steps = plan(n, Local(batch_size=4, steps=11, smallest=smallest), tiny.task(), torch.Generator())
    assert len(steps) == 11


def test_an_empty_client_is_an_error():
    with pytest.raises(ValueError, match="without training samples"):
        plan(0, Local(), tiny.task(), torch.Generator())


@pytest.mark.parametrize("local", [Local(batch_size=4, epochs=2, continued=True), Local(batch_size=4, steps=5, continued=True)])
def test_continued_rounds_are_one_long_run(local):
    task, client = tiny.task(local=local), tiny.client(0, 10)
    rounds = [step.index.tolist() for t in (1, 2, 3) for step in round_plan(client, task, t)]
    assert [len(index) for index in rounds] == ([4, 4, 2] * 6)[: len(rounds)]
    epochs = [[k for index in rounds[i : i + 3] for k in index] for i in range(0, len(rounds), 3)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs if len(epoch) == 10)
    assert len({tuple(epoch) for epoch in epochs}) == len(epochs)


def test_clipping_is_per_client_and_as_in_torch():
    draws = torch.Generator().manual_seed(0)
    stack = [torch.randn(3, 2, 2, generator=draws), torch.randn(3, 4, generator=draws), torch.randn(3, generator=draws)]
    stack = [g * torch.tensor([0.01, 1.0, 10.0]).view(-1, *[1] * (g.dim() - 1)) for g in stack]
    together = clipped(stack, 1.0, stacked=True)
    for k in range(3):
        parameters = [torch.nn.Parameter(torch.zeros_like(g[k])) for g in stack]
        for p, g in zip(parameters, stack, strict=True):
            p.grad = g[k].clone()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        alone = clipped([g[k] for g in stack], 1.0)
        for p, a, b in zip(parameters, alone, together, strict=True):
            torch.testing.assert_close(a, p.grad)
            torch.testing.assert_close(b[k], p.grad)
    assert torch.equal(together[0][0], stack[0][0])
    assert clipped(stack, None) is stack


def test_a_short_batch_counts_its_own_mean():
    """One batch of two samples in a stack beside one of four: its loss is the mean of two, not of four."""
    local = Local(lr=1.0, batch_size=4, epochs=1, weight_decay=0.0)
    task = tiny.task(chunk_size=2, augment="none")
    parts = [tiny.samples(4, 0), Samples(tiny.samples(4, 1).images[:2], tiny.samples(4, 1).labels[:2])]
    state = trained(task, local, parts)[1]
    logits = task.predict(state_of(task.model), parts[1].images)[1]
    gradient = (logits.softmax(1) - torch.eye(3, dtype=torch.float64)[parts[1].labels]).mean(0)
    torch.testing.assert_close(state_of(task.model)["head.bias"] - gradient, state["head.bias"])


def test_the_network_can_spare_parameters_from_weight_decay(monkeypatch):
    task, local = tiny.task("convolution"), LOCALS["sgd"]
    monkeypatch.setattr(type(task.model), "feels_decay", lambda self, name: not name.startswith("extractor.1."))
    (state,) = trained(task, local, [tiny.samples(9)])
    steps = plan(9, local, task, task.generator("local", 0, 1))
    spare = lambda name: not name.startswith("extractor.1.")  # noqa: E731
    assert_close(state, oracle.train(task, state_of(task.model), tiny.samples(9), steps, local, weight_decayed=spare))


def test_resnet_spares_its_norms_but_not_those_of_shortcuts():
    model = build("resnet20gn", (1, 16, 16), 10, seed=0)
    norms = {f"{name}.weight": layer for name, layer in model.named_modules() if isinstance(layer, nn.GroupNorm)}
    assert len(norms) == 21
    felt = {name for name in state_of(model) if model.feels_decay(name)}
    assert {name for name in norms if name in felt} == {name for name in norms if "shortcut" in name}
    assert sum("conv" in name for name in felt) == 18
    assert "head.weight" in felt
