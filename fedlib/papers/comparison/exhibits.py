"""The comparison's figures and tables: what is run for each, and how the rows become its numbers."""

from collections.abc import Callable, Sequence
from functools import partial

import pandas as pd

from fedlib.paper import Exhibit
from fedlib.papers.comparison import answer, causes, cost, grid, halves, plots, plots_answer, plots_ranks, significance, tuning
from fedlib.papers.comparison.grid import blocks
from fedlib.papers.comparison.needs import needs
from fedlib.papers.comparison.ranking import LEAST, MEAN
from fedlib.papers.comparison.recipes import without_batch_norm
from fedlib.papers.comparison.settings import about
from fedlib.published.reading import Note, Page
from fedlib.study import Study

# What stands beside every result.
Result = partial(Exhibit, said=about)
Whole = partial(Exhibit, said=partial(about, cut=False))  # methods without per-sample gradients


def of_grid(function: Callable[[pd.DataFrame], pd.DataFrame]):
    """What a function of the grid's rows gives."""
    return lambda p, rows: function(grid.named(rows))


def wide(value: str | list[str], down: str = "method", across: str | list[str] = "protocol"):
    """A page: means of ``value``, methods (or what else stands ``down``) by protocols."""
    return lambda study, numbers: numbers.pivot_table(index=down, columns=across, values=value, sort=False).round(1)


def whole(study: Study, numbers: pd.DataFrame) -> pd.DataFrame:
    return numbers.round(3)


def beginning(study: Study, numbers: pd.DataFrame) -> pd.DataFrame:
    return numbers.head(8).round(1)


def ends(study: Study, curve: pd.DataFrame) -> pd.DataFrame:
    """The last point of every curve."""
    return curve.groupby(["protocol", "method", "run_model"], sort=False)[["round", "mean", "slope"]].last().round(2)


def mean_places(study: Study, ranks: pd.DataFrame) -> Page:
    """Mean places, best first, and what is not ranked."""
    means = ranks[ranks["protocol"] == MEAN].drop(columns=["protocol", "n_methods"])
    left = significance.unranked(grid.measured(study))
    said = Note("Not ranked, since the worst test has too few different images:" if len(left) else "All are ranked.")
    return Page(means.sort_values(["kind", "over", "place"], kind="stable").round(1), said, left)


def tuned_gains(study: Study, numbers: pd.DataFrame) -> pd.DataFrame:
    """Both gains over a protocol's tests, whether the tuned one is certain, and whether they differ."""
    shown = ["untuned", "tuned", "tuned_verdict", "difference", "low", "high", "verdict"]
    return plots.over_tests(numbers).set_index(["protocol", "method"])[shown].round(1)


def prices(study: Study) -> pd.DataFrame:
    """Costs beside accuracy and gain on every protocol."""
    rows = grid.measured(study)
    return cost.cost(rows, cost.times(study.p, rows["setting"].unique())) if len(rows) else rows


def beside_the_verdicts(study: Study) -> dict[str, pd.DataFrame]:
    """What else the answer's picture shows, and what its caption says of it."""
    measured = {"cost": "cost", "ranks": "differences", "places": "ranks"}
    return {"needs": needs(study.p)} | {name: study.numbers(exhibit) for name, exhibit in measured.items()}


def in_words(study: Study, verdict: pd.DataFrame) -> Page:
    """The answer as a paragraph, and what every method needs."""
    return Page(Note(answer.paragraph(verdict, study.numbers("cost"))), needs(study.p).set_index("method"))


def advice(study: Study) -> pd.DataFrame:
    verdict, priced = study.numbers("answer"), study.numbers("cost")
    if verdict.empty:
        return verdict
    return answer.advice(verdict, study.numbers("tests"), grid.gains(grid.measured(study)), needs(study.p), priced)


def used(study: Study, advice: pd.DataFrame) -> pd.DataFrame:
    """What to use, shifts by situations."""
    return advice.pivot(index="shift", columns="situation", values="use").reindex(advice["shift"].unique())


EXHIBITS: Sequence[Exhibit] = (
    Whole("curve", "No adaptation over the rounds of its training", grid.rounds, grid.curve, plots.curve, page=ends),
    Result("heatmap", "Accuracy and gain under every shift", blocks, None, plots.heatmaps, numbers=grid.heatmap, page=wide("gain")),
    Result(
        "beside",
        "The worst client's accuracy and the calibration error of every method",
        blocks,
        numbers=lambda study: grid.beside(study.numbers("heatmap")),
        draw=partial(plots.heatmaps, values=("worst", "ece")),
        reasons=lambda p: {"": f"no method has seen {LEAST} images of a test"},
        page=wide(["worst", "ece"]),
    ),
    Result("tests", "Gains over no adaptation with 95 % intervals", blocks, of_grid(significance.cells), plots.gains),
    Result("accuracies", "Accuracy of every client", blocks, of_grid(grid.accuracies), page=beginning),
    Result(
        "cost",
        "Gain against the time of adaptation",
        blocks,
        numbers=prices,
        draw=partial(plots.gain_and_cost, plain=tuple(without_batch_norm("digits")), few=LEAST),
        page=whole,
    ),
    Result(
        "ranks",
        "Places averaged over the protocols of each kind of clients",
        blocks,
        of_grid(significance.places),
        plots_ranks.places,
        reasons=lambda p: {"": f"no method has seen {LEAST} different images on every protocol of a kind"},
        page=mean_places,
    ),
    Result(
        "differences",
        "Average ranks (1 is best) and critical differences",
        blocks,
        of_grid(significance.differences),
        plots_ranks.critical_differences,
        reasons=lambda p: {"": "fewer than two blocks of clients, or three methods"},
    ),
    Result(
        "answer",
        "What helps under which shift, at what price",
        blocks,
        numbers=lambda study: answer.verdicts(study.numbers("tests")),
        draw=plots_answer.answer,
        options=beside_the_verdicts,
        page=in_words,
    ),
    Result(
        "advice",
        "Use this when",
        blocks,
        numbers=advice,
        page=used,
        reasons=lambda p: {"": f"no method has seen {LEAST} different images of a shift"},
    ),
    Result("tuning", "Candidates on the choosing streams", tuning.choosing, tuning.chosen, page=tuning.words),
    Result("tuned", "Gain with own and tuned values", blocks, numbers=tuning.tuned, draw=plots.tuning, page=tuned_gains),
    Whole(
        "halves",
        "Trainings by adaptations",
        halves.pairs,
        halves.factorial,
        plots.halves,
        page=wide(["gain", *halves.BESIDE], "adaptation", ["network", "training"]),
    ),
    Whole("causes", "One change at a time", numbers=causes.measure, draw=plots.causes, page=whole),
)
