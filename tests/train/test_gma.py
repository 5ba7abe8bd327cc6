import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlib.core import Local
from fedlib.models import state_of
from fedlib.train.fedavg import FedAvg
from fedlib.train.gma import GMA, masked_average
from tests import one_pixel, tiny
from tests.oracles import gma as oracle

F64 = torch.float64


def test_by_hand():
    """Three clients: the first coordinate agrees, in the second one against two leaves a third of the mean -1."""
    clients = torch.tensor([[1.0, 1.0], [1.0, -1.0], [1.0, -3.0]], dtype=F64)
    assert masked_average(torch.zeros(2, dtype=F64), clients, threshold=0.5).tolist() == pytest.approx([1, -1 / 3])


@given(
    st.integers(1, 25),
    st.integers(0, 25),
    st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 1.0]),
    st.sampled_from([-1, 0]),
    st.integers(0, 10**6),
)
@settings(deadline=None, max_examples=25)
def test_equals_the_loop(n, zeros, threshold, zero_sign, seed):
    """Integer steps, so that many signs are zero and many agreements lie exactly on the threshold."""
    draws = torch.Generator().manual_seed(seed)
    server = torch.randint(-2, 3, (30,), generator=draws).double()
    clients = torch.randint(-3, 4, (n, 30), generator=draws).double()
    clients[:, :zeros] = server[:zeros]
    weights = torch.rand(n, generator=draws, dtype=F64)
    weights = (weights / weights.sum()).tolist()
    options = {"threshold": threshold, "server_lr": 1.5, "weights": weights, "zero_sign": zero_sign}
    result = masked_average(server, clients, **options)
    expected = oracle.masked_average(server.tolist(), clients.tolist(), threshold, 1.5, weights, zero_sign)
    torch.testing.assert_close(result, torch.tensor(expected, dtype=F64), rtol=0, atol=1e-9)
    single = masked_average(server.float(), clients.float(), **options)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), result, rtol=0, atol=1e-4)


def test_clients_that_leave_a_coordinate_as_it_is_vote_against_it_or_not_at_all():
    """Ten of twenty move it by 1: against ten noes no agreement, and no step; without them one half, which is enough for the whole mean."""
    server, clients = torch.zeros(1, dtype=F64), torch.tensor([0.0] * 10 + [1.0] * 10, dtype=F64)[:, None]
    assert masked_average(server, clients, threshold=0.1).item() == 0
    assert masked_average(server, clients, threshold=0.1, zero_sign=0).item() == 0.5
    task, cohort = tiny.task(), tiny.clients()
    for zero_sign, moves in ((-1, False), (0, True)):
        method = GMA(zero_sign=zero_sign)
        first = method.init(task, cohort)
        moved = {name: tensor + 1 for name, tensor in first["model"].items()}
        after = method.aggregate(task, first, [first["model"], moved], cohort[:2], 1)["model"]
        assert any(not torch.equal(after[name], first["model"][name]) for name, _ in task.model.named_parameters()) == moves


def test_eleven_of_twenty_meet_a_tenth():
    """2/20 is the threshold itself: agreement in float32 and float64 alike."""
    clients = torch.tensor([1.0] * 11 + [-1.0] * 9)[:, None]
    for dtype in (torch.float32, F64):
        moved = masked_average(torch.zeros(1, dtype=dtype), clients.to(dtype), threshold=0.1)
        assert moved.item() == pytest.approx(0.1)
        assert masked_average(torch.zeros(1, dtype=dtype), clients.to(dtype), threshold=0.11).item() == pytest.approx(0.01)


def test_a_tie_is_agreement_whatever_the_default_type():
    """7/25 is the threshold itself, and 0.28 * 25 a bit more than 7."""
    clients, default = torch.tensor([1.0] * 16 + [-1.0] * 9, dtype=F64)[:, None], torch.get_default_dtype()
    try:
        for dtype in (torch.float32, F64):
            torch.set_default_dtype(dtype)
            assert masked_average(torch.zeros(1, dtype=F64), clients, threshold=0.28).item() == pytest.approx(0.28)
    finally:
        torch.set_default_dtype(default)


def test_no_threshold_is_fedavg():
    task, cohort = tiny.task("batchnorm"), tiny.clients()
    server = GMA().init(task, cohort)
    messages = FedAvg().update(task, server, cohort, 1)
    for weighting in ("uniform", "samples"):
        ours = GMA(threshold=0, weighting=weighting).aggregate(task, server, messages, cohort, 1)["model"]
        theirs = FedAvg(weighting=weighting).aggregate(task, server, messages, cohort, 1)["model"]
        assert list(ours) == list(theirs)
        for name in ours:
            torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=1e-12)


def test_round_of_two_clients_by_hand():
    """From w = 0 client 0 (label 0) moves by (1/2, -1/2), client 1 (label 1) by the opposite: no agreement, no step. With labels 0 and
    (0, 0, 1) the second moves by (1/6, -1/6): agreement, and the mean (1/3, -1/3) times the server's rate."""
    task = one_pixel.task()
    server = {"model": one_pixel.state(0, 0)}
    for labels, expected in [(((0,), (1,)), 0), (((0,), (0, 0, 1)), 0.5 / 3)]:
        clients, method = one_pixel.clients(*labels), GMA(server_lr=0.5)
        after = method.aggregate(task, server, method.update(task, server, clients, 1), clients, 1)["model"]["head.weight"]
        assert after.flatten().tolist() == pytest.approx([expected, -expected])


def test_the_server_rate_decays_with_the_local_one():
    task = one_pixel.task(Local(lr=1.0, weight_decay=0.0, epochs=1, decay=0.5))
    clients, server = one_pixel.clients((0,)), {"model": one_pixel.state(0, 0)}
    message = [one_pixel.state(1, -1)]
    assert GMA().aggregate(task, server, message, clients, 3)["model"]["head.weight"][0].item() == pytest.approx(0.25)


def test_local_rate_and_shapes():
    task, cohort = tiny.task("convolution"), tiny.clients()
    server = GMA().init(task, cohort)
    slow, fast = (GMA(lr=lr).update(task, server, cohort, 1)[0]["head.weight"] for lr in (None, 0.2))
    assert not torch.equal(slow, fast)
    model = GMA().aggregate(task, server, GMA().update(task, server, cohort, 1), cohort, 1)["model"]
    assert {n: t.shape for n, t in model.items()} == {n: t.shape for n, t in state_of(task.model).items()}


@pytest.mark.parametrize("options", [{"threshold": 1.5}, {"server_lr": 0}, {"weighting": "size"}, {"zero_sign": 1}])
def test_bad_options(options):
    with pytest.raises(ValueError, match=r"range|weighting"):
        GMA(**options)


def test_bad_arguments():
    with pytest.raises(ValueError, match="threshold"):
        masked_average(torch.zeros(3), torch.zeros(2, 3), threshold=-0.1)
