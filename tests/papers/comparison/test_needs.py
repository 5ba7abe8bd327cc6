"""What methods need, held against what they do."""

from dataclasses import replace

import pytest
import torch

from fedlib.core import Output, Recipe, Stream
from fedlib.experiment import make_task
from fedlib.papers.comparison.needs import BATCH, KEPT, STREAM, needs, needs_batch_norm
from fedlib.papers.comparison.recipes import METHODS, PLAIN
from fedlib.personalize.fine_tune import FineTune
from fedlib.states import slice_of
from fedlib.train.fedavg import FedAvg
from tests.papers.comparison_cases import TINY, parameters


@pytest.fixture(scope="module")
def bench():
    return parameters(**TINY, costly_samples=6)


def test_every_method_is_described(bench):
    table = needs(bench).set_index("method")
    assert set(table.index) == set(METHODS)
    assert {*BATCH, *STREAM, *KEPT} <= set(METHODS)
    labels = table.groupby("labels", sort=False).groups
    assert list(labels["must"]) == ["FedAvg+FT", "kNN-Per", "TTT", "EATA", "personal head", "FedTHE", "FedTHE+", "BTFL"]
    assert list(labels["used"]) == ["MEMO", "T3A", "Tent", "FedICON"]
    assert table.index[table["batch_norm"]].tolist() == ["Tent", "EATA", "ATP-batch", "ATP-online"]
    assert table.index[table["validation"]].tolist() == ["kNN-Per", "BBSE", "ATP-batch", "ATP-online"]
    assert table.index[table["training"]].tolist() == ["personal head", "FedTHE", "FedTHE+", "BTFL", "FedICON", "FedTTA", "FedTTA++"]
    assert needs_batch_norm(bench.table("BRFL")["ATP-batch"].adapt)


@pytest.mark.parametrize("method", [name for name in METHODS if name != PLAIN])
def test_who_needs_images_together_shows_it(bench, method):
    """The answer to the first image, with the others of the stream and alone: it moves only for methods that need images together."""
    plain = method in bench.table("BRFL", plain=True)
    recipe = bench.table("BRFL", plain)[method]
    setting = bench.setting("BRFL", plain, train=recipe.train)
    # Batches of a few images, so that a short stream has several.
    setting = replace(setting, schedule=replace(setting.schedule, rounds=2))
    benchmark = setting.protocol.build(0)
    task = make_task(setting, benchmark, 0, bench.engine())
    pair = benchmark.clients[:2]
    state = recipe.train.init(task, pair)["model"]
    part = {}
    if recipe.personalize:
        cohort = {"cohort": 1} if hasattr(recipe.personalize, "cohort") else {}
        personalize = replace(recipe.personalize, **cohort)
        part = personalize.fit(task, [state] * 2, pair, personalize.init(task, pair), 1)
    images = benchmark.clients[0].tests["original"][0].images[:6]
    together, alone = (
        recipe.adapt.run(task, state, slice_of(part, 0), Stream(images[:n], "original", 0)).scores[0].float().softmax(-1) for n in (6, 1)
    )
    moved = not torch.allclose(together, alone, atol=1e-5)
    if method not in (*BATCH, *STREAM):
        assert not moved
    elif method in ("Tent", "EATA", "FedICON", "FedTTA", "EM"):
        assert moved


class Mean:
    def run(self, task, state, personal, stream):
        logits = task.frozen(state, stream)[1]
        return Output(logits - logits.mean(0))


class Alone(Mean):
    together = "one"


def test_a_users_method_says_what_it_needs_or_the_most_is_assumed():
    own = {"Mean": Recipe(FedAvg(), None, Mean()), "Alone": Recipe(FedAvg(), FineTune(), Alone())}
    table = needs(parameters(**TINY, extra=own)).set_index("method")
    assert table.loc[["Mean", "Alone"], "together"].tolist() == ["stream", "one"]
    assert table.loc[["Mean", "Alone"], "labels"].tolist() == ["", "must"]
    assert not table.loc[["Mean", "Alone"], "training"].any()
    other = type("Other", (Mean,), {"together": "batches"})
    with pytest.raises(ValueError, match=r"unknown value of together of 'Other' 'batches'\. Did you mean 'batch'"):
        needs(parameters(**TINY, extra={"Other": Recipe(FedAvg(), None, other())}))
