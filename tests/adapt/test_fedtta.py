from dataclasses import replace
from itertools import islice

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlib.adapt.fedtta import PREFIX, FedTTA, judge_of, personalisation_loss
from fedlib.adapt.whole_client import network_of
from fedlib.core import Local, Stream
from fedlib.states import part
from fedlib.train.fedavg import FedAvg
from fedlib.train.fedtta import FedTTA as Training
from tests import tiny
from tests.oracles import fedtta as oracle

LOCAL = Local(lr=0.1, weight_decay=1e-2, batch_size=4, clip=0.2, decay=0.9)
F64 = torch.float64


def setup(n=10, **fields):
    task = tiny.task(local=replace(LOCAL, **fields), augment="none")
    state = Training().init(task, [])["model"]
    return task, state, Stream(tiny.samples(n, 3).images, "test", 5)


def batches(task, stream, size=4):
    order = torch.randperm(len(stream), generator=task.generator("whole client", 5, "test", 0))
    return [task.inputs(stream.images[index]) for index in order.split(size)]


def judged(state):
    return lambda logits: oracle.norm(oracle.judge(part(state, PREFIX), logits))


@pytest.mark.parametrize("norm", ["batches", "full"])
def test_steps_equal_the_loop(norm):
    task, state, stream = setup()
    parts = batches(task, stream, 4 if norm == "batches" else 10)
    path = oracle.steps_on_client(task, network_of(state), parts, judged(state), 0.4, 3)
    for n_steps in (0, 1, 3):
        scores = FedTTA(0.4, steps=n_steps, norm=norm).run(task, state, {}, stream).scores
        torch.testing.assert_close(scores, oracle.network(task.model, path[n_steps], task.inputs(stream.images)), rtol=0, atol=1e-9)
    assert not torch.allclose(path[0]["head.weight"], path[1]["head.weight"])


def test_walk_tells_loss_and_entropy_before_each_step():
    task, state, stream = setup()
    parts = batches(task, stream)
    path = oracle.steps_on_client(task, network_of(state), parts, judged(state), 0.4, 2)
    for weights, (_, loss, uncertainty) in zip(path, islice(FedTTA(0.4).walk(task, state, stream), 3), strict=True):
        logits = [oracle.network(task.model, weights, batch) for batch in parts]
        assert loss.item() == pytest.approx(sum(judged(state)(z).item() for z in logits) / 3)
        assert uncertainty.item() == pytest.approx(sum(oracle.entropy(z) for z in logits) / 3)


def test_the_rate_is_that_of_the_last_finished_round():
    task, state, stream = setup()
    later = replace(task, round=4)
    slow = FedTTA(0.4 * 0.9**2).run(task, state, {}, stream).scores
    torch.testing.assert_close(FedTTA(0.4).run(later, state, {}, stream).scores, slow)
    for round in (0, 1, 2):
        same = FedTTA(0.4).run(replace(task, round=round), state, {}, stream).scores
        assert torch.equal(same, FedTTA(0.4).run(task, state, {}, stream).scores)


@given(st.integers(1, 12), st.integers(0, 10**6))
@settings(deadline=None, max_examples=25)
def test_the_loss_ignores_order_and_grows_like_the_root_of_the_batch(n, seed):
    task = tiny.task()
    state = Training().init(task, [])["model"]
    judge, draws = judge_of(state), torch.Generator().manual_seed(seed)
    logits = torch.randn(n, 3, generator=draws, dtype=F64)
    loss = personalisation_loss(judge(part(state, PREFIX), logits))
    shuffled = logits[torch.randperm(n, generator=draws)]
    torch.testing.assert_close(personalisation_loss(judge(part(state, PREFIX), shuffled)), loss)
    copies = judge(part(state, PREFIX), logits[:1].expand(16, -1))
    torch.testing.assert_close(personalisation_loss(copies), 4 * personalisation_loss(copies[:1]), rtol=1e-6, atol=1e-5)


def test_padded_rows_count_nothing_and_zero_has_a_gradient():
    values = torch.tensor([3.0, 4.0, 100.0], dtype=F64)
    assert personalisation_loss(values, torch.tensor([1.0, 1.0, 0.0], dtype=F64)).item() == pytest.approx(5)
    zeros = torch.zeros(3, dtype=F64, requires_grad=True)
    (gradient,) = torch.autograd.grad(personalisation_loss(zeros), zeros)
    assert gradient.tolist() == [0, 0, 0]


def test_streams_and_states_are_left_alone():
    task, state, stream = setup()
    before = {name: tensor.clone() for name, tensor in state.items()}
    FedTTA(0.4, steps=2).run(task, state, {}, stream)
    assert all(torch.equal(state[name], before[name]) and not state[name].requires_grad for name in state)
    with pytest.raises(ValueError, match="adaptation part"):
        FedTTA().run(task, FedAvg().init(task, [])["model"], {}, stream)
    with pytest.raises(ValueError, match="norm"):
        FedTTA(norm="l1")
