from dataclasses import dataclass, replace

import pytest
import torch

from fedlib.core import Output
from fedlib.models import state_of
from fedlib.personalize import select
from fedlib.personalize.confusion import Confusion
from fedlib.personalize.fisher import WithFisher
from fedlib.personalize.head import PersonalHead
from fedlib.personalize.select import Select
from tests import tiny


@dataclass(frozen=True)
class Answer:
    """Says ``label`` to the first ``first`` images of every stream, and to all others the next class."""

    label: int
    first: int = 10**6
    version: int = 1

    def run(self, task, state, personal, stream):
        labels = torch.full((len(stream),), self.label)
        labels[self.first :] += 1
        return Output(torch.nn.functional.one_hot(labels, tiny.CLASSES + 1).double())


def labelled(k, labels, **fields):
    samples = tiny.samples(len(labels), k)
    return replace(tiny.client(k), val=type(samples)(samples.images, torch.tensor(labels)), **fields)


def choose(clients, candidates, **fields):
    task = tiny.task()
    return Select(candidates, **fields).fit(task, [state_of(task.model)] * len(clients), clients, {}, 1)


def test_best_over_all_samples_wins_not_over_clients():
    """Class 0 wins two of three clients, class 1 more samples."""
    part = choose([labelled(0, [0]), labelled(1, [0]), labelled(2, [1, 1, 1])], (Answer(0), Answer(1), Answer(2)))
    assert part["shared.choice"].item() == 1
    torch.testing.assert_close(part["shared.accuracies"], torch.tensor([40.0, 60.0, 0.0], dtype=torch.float64))


class NotANumber:
    def run(self, task, state, personal, stream):
        return Output(torch.full((len(stream), tiny.CLASSES), torch.nan))


def test_scores_that_are_not_finite_win_nothing():
    """The argmax of NaN is class 0, which all these images have."""
    part = choose([labelled(0, [0, 0, 0])], (NotANumber(), Answer(0, first=1)))
    assert part["shared.choice"].item() == 1
    assert part["shared.accuracies"][0] == 0


def test_ties_go_to_the_first():
    assert choose([labelled(0, [0, 1])], (Answer(1), Answer(0)))["shared.choice"].item() == 0


def test_target_clients_and_cut_samples_have_no_say():
    clients = [labelled(0, [0, 1, 1]), labelled(1, [1, 1, 1], source=False)]
    assert choose(clients, (Answer(0), Answer(1)), limit=1)["shared.choice"].item() == 0
    assert choose(clients, (Answer(0), Answer(1)))["shared.choice"].item() == 1


def test_base_part_is_kept_and_seen_by_the_candidates():
    @dataclass(frozen=True)
    class Reader(Answer):
        def run(self, task, state, personal, stream):
            assert personal["shared.confusion.hard"].sum() == 2
            return super().run(task, state, personal, stream)

    part = choose([labelled(0, [0, 1])], (Reader(0),), base=Confusion())
    assert set(part) == {"shared.confusion.hard", "shared.confusion.soft", "shared.choice", "shared.accuracies"}


def test_every_client_is_answered_from_its_own_part():
    class Numbered:
        def fit(self, task, received, clients, personal, round):
            return {"number": torch.arange(len(clients))}

    class Reader:
        def run(self, task, state, personal, stream):
            return Answer(int(personal["number"])).run(task, state, personal, stream)

    part = choose([labelled(0, [0]), labelled(1, [1, 1]), labelled(2, [2])], (Reader(),), base=Numbered())
    assert part["shared.accuracies"].tolist() == [100]


def test_candidates_are_steps_of_a_bar(monkeypatch):
    """Trying them all is what takes an adapter with gradients per sample most of its time."""
    steps = []

    def counted(items, what, **options):
        for item in items:
            steps.append(what)
            yield item

    monkeypatch.setattr(select, "bar", counted)
    choose([labelled(0, [0, 1])], (Answer(0), Answer(1), Answer(2)))
    assert steps == ["candidates"] * 3


def test_without_validation_samples_there_is_nothing_to_choose_on():
    with pytest.raises(ValueError, match="no source client has validation samples"):
        choose([labelled(0, []), labelled(1, [1], source=False)], (Answer(0),))


@pytest.mark.parametrize("made", [lambda base: Select((), base), WithFisher])
def test_a_base_that_lives_through_all_rounds_is_refused(made):
    with pytest.raises(ValueError, match="PersonalHead is trained through all rounds"):
        made(PersonalHead())
