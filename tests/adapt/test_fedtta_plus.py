from itertools import islice

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedlib.adapt.fedtta import FedTTA, FedTTAPlus
from fedlib.core import Local, Stream
from fedlib.train.fedtta import FedTTA as Training
from tests import tiny
from tests.oracles import fedtta as oracle

LOCAL = Local(lr=0.1, weight_decay=1e-2, batch_size=4, clip=0.2)


@pytest.fixture(scope="module")
def case():
    task = tiny.task(local=LOCAL, augment="none")
    return task, Training().init(task, [])["model"], Stream(tiny.samples(10, 3).images, "test", 5)


def entropies(case, n=51, lr=0.4):
    task, state, stream = case
    return [(z, e.item()) for z, _, e in islice(FedTTA(lr).walk(task, state, stream), n)]


@given(st.lists(st.integers(0, 6), min_size=2, max_size=12), st.integers(1, 4), st.integers(2, 12), st.booleans())
@example([5, 6, 4, 6, 3], 2, 12, True)  # a better step forgives the failures before it
@settings(deadline=None, max_examples=25)
def test_keeps_the_lowest_entropy_within_patience(values, patience, max_steps, allow_step0):
    """On any sequence of entropies, as if the steps had given them; logits that tell the step they come from."""
    met = iter([(torch.tensor([[float(t)]]), torch.tensor(0.0), torch.tensor(float(value))) for t, value in enumerate(values)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FedTTA, "walk", lambda self, task, state, stream, steps: islice(met, steps + 1))
        adapter = FedTTAPlus(patience=patience, max_steps=max_steps, allow_step0=allow_step0)
        output = adapter.run(tiny.task(local=LOCAL), {}, {}, Stream(tiny.samples(1).images, "test", 5))
    kept = oracle.early_stop(values, patience, max_steps, allow_step0)
    assert output.extras["steps"].tolist() == [kept]
    assert output.scores.tolist() == [[kept]]
    # No step is taken after the search has ended, which is at most ``patience`` steps behind the best.
    assert len(values) - len([*met]) <= min(max_steps + (not allow_step0), max(kept + patience, (not allow_step0) + patience) + 1)


@pytest.mark.parametrize("allow_step0", [False, True])
def test_without_a_finite_entropy_nothing_answers(allow_step0, monkeypatch):
    met = [(torch.zeros(1, 1), torch.tensor(0.0), torch.tensor(torch.nan))] * 3
    monkeypatch.setattr(FedTTA, "walk", lambda self, task, state, stream, steps: iter(met))
    with pytest.raises(FloatingPointError, match="no step has a finite entropy"):
        FedTTAPlus(allow_step0=allow_step0).run(tiny.task(local=LOCAL), {}, {}, Stream(tiny.samples(1).images, "test", 5))


def test_one_step_allowed_is_the_base_model(case):
    task, state, stream = case
    output = FedTTAPlus(0.4, patience=1, max_steps=1).run(task, state, {}, stream)
    torch.testing.assert_close(output.scores, task.predict(state, stream.images)[1])
    assert output.extras["steps"].tolist() == [0] * 10


@pytest.mark.parametrize("patience", [1, 3, 50])
@pytest.mark.parametrize("allow_step0", [True, False])
def test_on_a_real_path(case, patience, allow_step0):
    task, state, stream = case
    seen = entropies(case)
    kept = oracle.early_stop([e for _, e in seen], patience, 50, allow_step0)
    output = FedTTAPlus(0.4, patience, allow_step0=allow_step0).run(task, state, {}, stream)
    assert output.extras["steps"].tolist() == [kept] * 10
    torch.testing.assert_close(output.scores, seen[kept][0], rtol=0, atol=1e-12)


def test_a_long_patience_finds_the_minimum_of_all(case):
    values = [e for _, e in entropies(case)]
    output = FedTTAPlus(0.4, patience=50).run(*case[:2], {}, case[2])
    assert output.extras["steps"][0].item() == min(range(50), key=values.__getitem__)


def test_the_path_is_what_the_steps_saw(case):
    task, state, stream = case
    extras = FedTTAPlus(0.4, patience=6, max_steps=6, path=True).run(task, state, {}, stream).extras
    seen = entropies(case, 6)
    assert extras["predictions"].tolist() == torch.stack([z.argmax(1) for z, _ in seen], dim=1).tolist()
    assert extras["entropy"].shape == extras["loss"].shape == (10, 6)
    assert extras["entropy"][3].tolist() == pytest.approx([e for _, e in seen])


@pytest.mark.parametrize("options", [{"patience": 0}, {"max_steps": 0}])
def test_bad_options(options):
    with pytest.raises(ValueError, match="patience"):
        FedTTAPlus(**options)
