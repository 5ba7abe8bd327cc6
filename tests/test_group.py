"""Personal parts: over the rounds, from checkpoints, under splits that are drawn anew."""

import shutil
from dataclasses import dataclass, replace
from typing import ClassVar

import pandas as pd
import pytest
import torch

from fedlib import experiment, group
from fedlib.adapt.memo import MEMO
from fedlib.core import Local, Output, Recipe
from fedlib.personalize.fedrep import FedRepHead
from fedlib.personalize.fine_tune import FineTune
from fedlib.setting import Request
from fedlib.train.fedavg import FedAvg
from tests import tiny
from tests.test_experiment import CE, SETTING, run, with_schedule


@dataclass(frozen=True)
class Diary:
    """A persistent part that adds up round x mean label of the training part it was given, starting from 0.5."""

    persistent: bool = True
    version: int = 1

    def init(self, task, clients):
        return {"entry": torch.full((len(clients),), 0.5, dtype=torch.float64)}

    def fit(self, task, received, clients, personal, round):
        return {"entry": personal["entry"] + torch.stack([round * c.train.labels.double().mean() for c in clients])}


@dataclass(frozen=True)
class Reader:
    version: int = 1

    def run(self, task, state, personal, stream):
        return Output(torch.zeros(len(stream), 3), {"entry": personal["entry"].repeat(len(stream))})


def entries(frame):
    """Round -> client -> the diary's entry."""
    return {t: {row.client: row.entry[0] for row in rows.itertuples()} for t, rows in frame.groupby("round")}


@pytest.mark.parametrize("persistent", [True, False])
def test_personal_parts_live_through_the_rounds_or_start_anew(persistent):
    recipes = {"diary": Recipe(CE, Diary(persistent), Reader())}
    frame = run(None, (with_schedule(rounds=3),), recipes, request=Request(rounds=(1, 0, -1), extras=("entry",)))
    for t, of_client in entries(frame).items():
        rounds = sum(range(1, t + 1)) if persistent else t
        for k, value in of_client.items():
            assert value == pytest.approx(0.5 + rounds * tiny.client(k, (9, 5, 14)[k]).train.labels.double().mean().item())


@pytest.mark.parametrize("leaky", [False, True])
@pytest.mark.parametrize("every", [1, 2, 10])
def test_checkpoints_of_personal_parts_change_nothing(tmp_path, monkeypatch, leaky, every):
    """Rounds evaluated in any order, from any checkpoint, equal one pass without a cache."""
    monkeypatch.setattr(group, "CHECKPOINT_EVERY", every)
    settings, recipes = (replace(with_schedule(rounds=4), protocol=tiny.Protocol(leaky=leaky)),), {"diary": Recipe(CE, Diary(), Reader())}
    pieces = [run(tmp_path, settings, recipes, request=Request(rounds=(t,), extras=("entry",))) for t in (2, 4, 3, -1, 1)]
    whole = run(None, settings, recipes, request=Request(rounds=(1, 2, 3, 4, 5), extras=("entry",)))
    assert entries(pd.concat(pieces)) == entries(whole)


@pytest.mark.parametrize("leaky", [False, True])
def test_rounds_that_are_not_evaluated_may_take_a_short_way(tmp_path, monkeypatch, leaky):
    """Whatever was evaluated before, and from whatever is cached: the same as with whole phases throughout."""
    monkeypatch.setattr(group, "CHECKPOINT_EVERY", 2)
    settings, recipes = (replace(with_schedule(rounds=5), protocol=tiny.Protocol(leaky=leaky)),), {"rep": Recipe(CE, FedRepHead())}
    ask = lambda cache, *rounds: run(cache, settings, recipes, request=Request(rounds=rounds))  # noqa: E731
    pieces = pd.concat([ask(tmp_path, t) for t in (3, 5, -1, 2)], ignore_index=True)
    for folder in tmp_path.glob("adapt/*"):
        shutil.rmtree(folder)
    again = ask(tmp_path, 3, 5, 6, 2)
    monkeypatch.delattr(FedRepHead, "advance")
    whole = ask(None, 3, 5, 6, 2)
    scores = lambda frame: frame.set_index(["round", "column", "draw", "client"])["loss"].sort_index()  # noqa: E731
    for found in (pieces, again):
        pd.testing.assert_series_equal(scores(found), scores(whole), check_exact=True)


def test_resplit_personalises_on_fresh_draws_but_the_evaluated_round_on_the_clients_own_part():
    settings = (replace(with_schedule(rounds=3), protocol=tiny.Protocol(leaky=True)),)
    frame = run(None, settings, {"diary": Recipe(CE, Diary(False), Reader())}, request=Request(rounds=(1, 2, 3), extras=("entry",)))
    own = [tiny.client(k, n).train.labels.double().mean().item() for k, n in enumerate((9, 5, 14))]
    for t, of_client in entries(frame).items():
        assert list(of_client.values()) == pytest.approx([0.5 + t * mean for mean in own])
    lasting = run(None, settings, {"diary": Recipe(CE, Diary(), Reader())}, request=Request(extras=("entry",)))
    fixed = [0.5 + 6 * mean for mean in own]
    assert all(abs(value - expected) > 1e-6 for value, expected in zip(entries(lasting)[3].values(), fixed, strict=True))


@dataclass(frozen=True)
class Told:
    """A personal part that is the round before which its model stands, as the task has it."""

    persistent: bool = False
    version: int = 1

    def init(self, task, clients):
        return {}

    def fit(self, task, received, clients, personal, round):
        assert task.round == round
        return {"round": torch.full((len(clients),), task.round)}


def test_a_personal_phase_knows_its_round_as_the_stream_after_it_does():
    """Candidates that are chosen there have rates that decay with it."""
    (part,) = experiment.personal_parts((SETTING,), {"told": Recipe(FedAvg(), Told())}, (0,), round=2, cache=None).values()
    assert part["round"].unique().tolist() == [2]


@pytest.mark.parametrize("cached", [False, True])
def test_a_personal_part_is_made_once_for_all_recipes_and_tests(cached, tmp_path, monkeypatch):
    made, fit = [], FineTune.fit
    monkeypatch.setattr(FineTune, "fit", lambda self, *given: made.append(1) or fit(self, *given))
    recipes = {"one": Recipe(FedAvg(), FineTune()), "two": Recipe(FedAvg(), FineTune(), MEMO(views=2))}
    run(tmp_path if cached else None, recipes=recipes, request=Request(rounds=(2, 3)))
    assert len(made) == 2


@dataclass(frozen=True)
class Peeking:
    """A personal part that looks for the labelled tests."""

    persistent: ClassVar[bool] = False
    version: int = 1

    def init(self, task, clients):
        assert not any(client.tests for client in clients)
        return {}

    def fit(self, task, received, clients, personal, round):
        assert not any(client.tests for client in clients)
        return {"entry": torch.zeros(len(clients))}


@dataclass(frozen=True)
class PeekingTraining(FedAvg):
    def update(self, task, server, cohort, round):
        assert not any(client.tests for client in cohort)
        return super().update(task, server, cohort, round)


def test_neither_training_nor_a_personal_part_meets_a_test():
    run(None, recipes={"peeking": Recipe(PeekingTraining(), Peeking())})


def test_who_reads_the_personal_rate_without_a_personal_part(tmp_path):
    recipes = {"memo": Recipe(CE, None, MEMO("global", views=2, steps=1))}
    other = (with_schedule(personal=Local(lr=1.0, batch_size=4, epochs=1)),)
    run(tmp_path, recipes=recipes)
    pd.testing.assert_series_equal(run(tmp_path, other, recipes)["loss"], run(None, other, recipes)["loss"])


@dataclass(frozen=True)
class Twins:
    """Two tests of the same images."""

    def build(self, seed, root=None):
        built = tiny.Protocol().build(seed)
        return replace(built, clients=tuple(replace(c, tests=dict.fromkeys("ab", c.tests["original"])) for c in built.clients))


@dataclass(frozen=True)
class ByName:
    version: int = 1

    def run(self, task, state, personal, stream):
        return Output(torch.eye(tiny.CLASSES)["ab".index(stream.column)].repeat(len(stream), 1))


def test_equal_images_under_another_name_are_another_test(tmp_path):
    settings, recipes = (replace(SETTING, protocol=Twins()),), {"by name": Recipe(CE, None, ByName())}
    pd.testing.assert_series_equal(run(tmp_path, settings, recipes)["loss"], run(None, settings, recipes)["loss"])


SEEN = {}


@dataclass(frozen=True)
class Watching:
    persistent: ClassVar[bool] = True
    version: int = 1

    def init(self, task, clients):
        return {"x": torch.zeros(len(clients))}

    def fit(self, task, received, clients, personal, round):
        SEEN[round] = clients[0].train.images.clone()
        return personal


def test_every_personal_phase_of_a_resplit_has_a_draw_of_its_own():
    run(None, (replace(with_schedule(rounds=4), protocol=tiny.Protocol(leaky=True)),), {"watching": Recipe(CE, Watching())})
    assert len({SEEN[t].numpy().tobytes() for t in (1, 2, 3)}) == 3
