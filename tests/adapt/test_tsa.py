import pytest
import torch

from fedlib.adapt.fedthe import FedTHE
from fedlib.adapt.tsa import TSA, agreement_weight
from fedlib.augment.views import moco_views
from fedlib.models import state_of
from fedlib.personalize.head import PersonalHead
from fedlib.states import slice_of
from tests import tiny
from tests.oracles import tsa as oracle


def logits(n=12, seed=0):
    return 3 * torch.randn(2, 2, n, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("lr", "steps"), [(0.1, 10), (0.01, 10), (0.5, 3), (0.1, 0)])
def test_equals_the_loop(lr, steps):
    g, p = logits()
    expected = torch.tensor([oracle.weight(g[:, i], p[:, i], lr, steps) for i in range(12)], dtype=torch.float64)
    torch.testing.assert_close(agreement_weight(g, p, lr=lr, steps=steps), expected, rtol=0, atol=1e-9)
    single = agreement_weight(g.float(), p.float(), lr=lr, steps=steps)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), expected, rtol=0, atol=1e-4)


def test_the_head_whose_views_agree_gains():
    """Both heads are sure; the global one says the same of both views, the personal one does not, and vice versa."""
    same, other = torch.tensor([[4.0, 0.0], [4.0, 0.0]])[:, None], torch.tensor([[4.0, 0.0], [0.0, 4.0]])[:, None]
    assert agreement_weight(same, other).item() > 0.6
    assert agreement_weight(other, same).item() < 0.4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_views_leave_the_weight_at_one_half(dtype):
    g, p = (side[:1].expand(2, -1, -1).to(dtype) for side in logits(200))
    torch.testing.assert_close(agreement_weight(g, p), torch.full((200,), 0.5, dtype=dtype), rtol=0, atol=1e-4)


def run(method, column="original", **options):
    task, clients = tiny.task(**options), tiny.clients()
    personal = PersonalHead().fit(task, [state_of(task.model)] * 3, clients, PersonalHead().init(task, clients), 1)
    one = slice_of(personal, 1)
    return task, one, clients[1].stream(column), method.run(task, state_of(task.model), one, clients[1].stream(column))


def test_published_is_the_two_head_average():
    task, personal, stream, output = run(TSA())
    plain = FedTHE(steps=0).run(task, state_of(task.model), personal, stream)
    torch.testing.assert_close(output.scores, plain.scores, rtol=0, atol=1e-6)
    assert output.extras["weight"].shape == (7,)


def test_augmented_views_move_the_weight():
    task, personal, stream, output = run(TSA(augment=True))
    views = moco_views(stream.images, task.generator("TSA", 1, "original", 0)).double()
    heads = []
    for view in views.unbind(1):
        features, g = task.predict(state_of(task.model), view)
        heads.append((g, features @ personal["model.head.weight"].T))
    g, p = (torch.stack(side) for side in zip(*heads, strict=True))
    expected = [oracle.weight(g[:, i], p[:, i], 0.1, 10) for i in range(7)]
    assert output.extras["weight"].tolist() == pytest.approx(expected, abs=1e-9)
    assert (output.extras["weight"] - 0.5).abs().max() > 0.05


def test_bad_arguments():
    with pytest.raises(ValueError, match="range"):
        TSA(lr=0)
    task = tiny.task()
    with pytest.raises(ValueError, match="PersonalHead"):
        TSA().run(task, state_of(task.model), {}, tiny.client(0).stream("original"))
