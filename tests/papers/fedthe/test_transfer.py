"""Figures 6 and 7: what is pretrained, what the three procedures cost, and a run at its smallest."""

import matplotlib

matplotlib.use("Agg")
import pytest

from fedlib.core import Recipe
from fedlib.papers.fedthe import transfer
from fedlib.personalize.transfer import Transfer
from fedlib.protocols.downstream import PRETRAINING
from fedlib.published import claims_of
from fedlib.published.ledger import PROVENANCE
from fedlib.train.fedavg import FedAvg
from tests.papers.fedthe.fedthe_cases import parameters, smallest, study


@pytest.mark.parametrize(("profile", "weak_rounds"), [("smoke", 2), ("small", 10), ("paper", 25)])
def test_a_weak_pretraining_has_one_domain_and_a_quarter_of_the_rounds(profile, weak_rounds):
    p = parameters(profile)
    strong, weak = transfer.setting(p, True), transfer.setting(p, False)
    assert strong.protocol.pretraining == PRETRAINING
    assert len(weak.protocol.pretraining) == 1
    assert (strong.schedule.rounds, weak.schedule.rounds) == (p.rounds, weak_rounds)
    assert (strong.model, strong.schedule.local, strong.schedule.personal) == (weak.model, weak.schedule.local, weak.schedule.personal)


def test_the_three_procedures_take_equally_many_epochs():
    stages = {name: recipe.personalize for name, recipe in transfer.RECIPES.items()}
    assert {stage.probe_epochs + stage.tune_epochs for stage in stages.values()} == {transfer.EPOCHS}
    assert [bool(stages[name].probe_epochs) for name in ("LP", "FT", "LP-FT")] == [True, False, True]
    assert [bool(stages[name].tune_epochs) for name in ("LP", "FT", "LP-FT")] == [False, True, True]


def test_facts_beside_the_study():
    line = transfer.said(parameters("small"))
    assert "stand-in for a pretrained ResNet-50 on CIFAR-10: cnn on digits5" in line
    assert "clutter, fonts, blend (40 rounds; weak: fonts, 10 rounds), then 8 epochs on plain; domain = lowres; 3 seeds, " in line
    assert "3 seeds, profile small" in line
    assert transfer.said(parameters()).endswith("1 seed, profile smoke")


def test_the_figure_of_a_run(tmp_path_factory, monkeypatch):
    """The columns that claims read, and in the caption what stands in for the ResNet; one epoch in place of eight."""
    short = {"LP": Transfer(1, 0), "FT": Transfer(0, 1), "LP-FT": Transfer(1, 1)}
    monkeypatch.setattr(transfer, "RECIPES", {name: Recipe(FedAvg(), stage) for name, stage in short.items()})
    given = study(**smallest(tmp_path_factory))
    frame = given.frame("F7")
    assert {*claims_of("fedthe").FIGURE_COLUMNS["F7"], *PROVENANCE} <= set(frame.columns)
    cells = [(method, column) for method in ("LP", "FT", "LP-FT") for column in ("original", "corrupted", "natural", "domain")]
    assert sorted(frame[["method", "column"]].itertuples(index=False, name=None)) == sorted(cells)
    assert frame["mean"].between(0, 100).all()
    assert set(frame["status"]) == {"stand-in"}
    caption = given.show("F7")
    assert caption.endswith(transfer.said(given.p))
    assert {path.name for path in given.folder.iterdir()} == {"F7.png", "F7.svg", "F7.csv"}
