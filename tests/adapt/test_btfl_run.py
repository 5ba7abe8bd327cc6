"""The BTFL adapter: what it reads of the personal part, and its switches; the numbers themselves are checked in test_btfl."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedlib.adapt.btfl import BTFL, interpolate
from fedlib.core import Stream
from fedlib.models import Net, state_of
from fedlib.papers.btfl.recipes import PAPER, SWITCHES
from fedlib.personalize.btfl import BTFLPersonal
from fedlib.states import slice_of
from tests import tiny


@pytest.fixture(scope="module")
def fitted():
    """A task with rectified features, its state, the personal part of client 0 and a stream of 70 images."""
    task = tiny.task()
    task = replace(task, model=Net(nn.Sequential(*list(task.model.extractor)[:2], nn.ReLU()), task.model.head))
    state, clients = state_of(task.model), tiny.clients((40, 30, 50))
    state["head.weight"] = 4 * state["head.weight"]
    method = BTFLPersonal()
    personal = method.init(task, clients)
    for round in (1, 2, 3):
        personal = method.fit(task, [state] * 3, clients, personal, round)
    return task, state, slice_of(personal, 0), Stream(tiny.samples(70, 9).images, "original_ind", 0)


def test_default_is_the_kernels_with_the_personal_part(fitted):
    task, state, personal, stream = fitted
    output = BTFL().run(task, state, personal, stream)
    features, logits = task.predict(state, stream.images)
    entropies = personal["entropies"].tolist()
    weight, scores, _ = interpolate(
        features,
        logits,
        functional.linear(features, personal["model.head.weight"]),
        personal["table"],
        personal["others_table"],
        personal_entropy=entropies[0],
        global_entropy=entropies[1],
        mixture="probability",
        cap_rule="rescale",
        integral="exact",
    )
    torch.testing.assert_close(output.extras["weight"], weight, rtol=0, atol=1e-12)
    torch.testing.assert_close(output.scores, scores, rtol=0, atol=1e-12)
    assert weight.std() > 1e-3


def test_every_switch_changes_the_weight_or_the_scores(fitted):
    """At batches and a cap that so short a stream reaches."""
    task, state, personal, stream = fitted
    default = replace(BTFL(), batch_size=4, cap=2.0).run(task, state, personal, stream)
    for name, method in SWITCHES.items():
        small = {"batch_size": min(4, method.batch_size), "cap": min(2.0, method.cap)}
        output = replace(method, **small).run(task, state, personal, stream)
        same = torch.equal(output.scores, default.scores)
        assert same == (name == "BTFL"), name


def test_paper_reads_the_mean_table_and_the_global_entropy(fitted):
    task, state, personal, stream = fitted
    output = PAPER.run(task, state, personal, stream)
    moved = personal | {"others_table": personal["table"]}
    assert torch.equal(PAPER.run(task, state, moved, stream).scores, output.scores)
    for name, value in (("shared.table", personal["table"]), ("entropies", personal["entropies"] * torch.tensor([1.0, 0.7]).double())):
        assert not torch.equal(PAPER.run(task, state, personal | {name: value}, stream).scores, output.scores)


def test_streams_do_not_see_each_other(fitted):
    """alpha and beta start at (1, 1) with every stream."""
    task, state, personal, stream = fitted
    first = BTFL(batch_size=4).run(task, state, personal, stream)
    BTFL(batch_size=4).run(task, state, personal, Stream(stream.images.flip(0), "other", 0))
    again = BTFL(batch_size=4).run(task, state, personal, Stream(stream.images.clone(), "original_ind", 0))
    assert torch.equal(first.scores, again.scores)


def test_other_personal_parts_are_refused(fitted):
    task, state, personal, stream = fitted
    with pytest.raises(ValueError, match="BTFLPersonal"):
        BTFL().run(task, state, {"model.head.weight": personal["model.head.weight"]}, stream)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"table": "other"}, "others"),
        ({"reference": "ln100"}, "constant"),
        ({"integral": "simpson"}, "exact"),
        ({"mixture": "logs"}, "log"),
        ({"cap_rule": "scale"}, "rescale"),
    ],
)
def test_bad_names(fields, message):
    with pytest.raises(ValueError, match=message):
        BTFL(**fields)


@pytest.mark.parametrize("fields", [{"cap": 0.0}, {"kb": -1.0}, {"smoothing": -0.1}, {"batch_size": 0}, {"clip": 0.5}])
def test_out_of_range(fields):
    with pytest.raises(ValueError, match="out of range"):
        BTFL(**fields)


def test_a_personal_head_may_have_a_bias(fitted):
    """A bias on the first class draws its weighted scores up."""
    task, state, personal, stream = fitted
    bias = {"model.head.bias": torch.tensor([5.0, 0.0, 0.0], dtype=torch.float64)}
    plain, biased = (BTFL().run(task, state, personal | more, stream) for more in ({}, bias))
    assert (biased.scores.log_softmax(1) - plain.scores.log_softmax(1))[:, 0].max() > 0.1
