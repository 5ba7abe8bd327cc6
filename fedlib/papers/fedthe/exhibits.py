"""FedTHE's tables, figures and studies, in the order of its notebook: what each shows, what runs for it, and how it is drawn."""

from collections.abc import Sequence

from fedlib.paper import Exhibit
from fedlib.papers.fedthe import figures as f
from fedlib.papers.fedthe import plots, transfer
from fedlib.papers.fedthe.tables import FURTHER, lacking, printed, scores
from fedlib.plots import charts
from fedlib.plots.style import PALETTE

TESTS = {"x": "column", "hue": "method"}
GAINS = TESTS | {"ylabel": "gain (points)"}
ROUNDS = {"x": "round", "panels": "column", "xlabel": "round"}
STEPS = TESTS | {"palette": dict(zip(transfer.RECIPES, PALETTE, strict=False))}
UNITS = TESTS | {"palette": dict(zip(("T3A by sample", "T3A by batch"), PALETTE, strict=False))}


def table(name: str, title: str) -> Exhibit:
    title = f"Table {name[1:]}: {title}"
    return Exhibit(name, title, printed(name), scores, further=FURTHER.get(name, ()), reasons=lacking)


def figure(name: str, title: str, blocks, reduce, draw, options=None, **fields) -> Exhibit:
    return Exhibit(name, f"Figure {name[1:]}: {title}", blocks, reduce, draw, options or {}, **fields)


EXHIBITS: Sequence[Exhibit] = (
    table("T1", "accuracy on the tests"),
    figure("F2a", "personalised methods at Dir(0.1)", f.personalised, f.each_test, charts.bars, TESTS),
    figure("F2b", "gain over FedAvg+FT at Dir(0.1), all on the same images", f.at_test_time, f.gains, charts.bars, GAINS),
    table("T3", "which part of FedTHE does what"),
    table("T13", "the full ablation"),
    table("T2", "ImageNet-32, Dir(1.0)"),
    table("T5", "ImageNet-32, Dir(0.1)"),
    table("T4", "weak heterogeneity, Dir(10.0)"),
    table("T6", "other architectures, Dir(1.0)"),
    figure(
        "F5",
        "mean and deviation over the tests, by architecture, all on the same images",
        f.architectures,
        f.over_tests,
        charts.bars,
        {"x": "model", "hue": "method", "spread": "standard deviation over the tests"},
    ),
    table("T7", "entangled shifts"),
    table("T8", "severity of the corruption"),
    table("T9", "personalisation epochs"),
    table("T10", "size of the test sets"),
    table("T11", "size of the training sets"),
    table("T12", "a hundred clients"),
    table("T14", "a tenth of the clients in each round"),
    table("T15", "four tenths of the clients in each round"),
    figure("F8", "mixture accuracy, Dir(0.1)", f.curves(f.STRONG), f.over_rounds, charts.curves, ROUNDS),
    figure("F9", "mixture accuracy, Dir(1.0)", f.curves(f.WEAK), f.over_rounds, charts.curves, ROUNDS),
    figure("F10", "accuracy per test, Dir(0.1)", f.curves(f.STRONG, f.OTHERS), f.over_rounds, charts.curves, ROUNDS),
    figure("F11", "accuracy per test, Dir(1.0)", f.curves(f.WEAK, f.OTHERS), f.over_rounds, charts.curves, ROUNDS),
    figure("F12", "longer training (500 rounds in the paper), Dir(0.1)", f.curves(f.STRONG, long=0), f.over_rounds, charts.curves, ROUNDS),
    figure("F13", "longer training (1000 rounds in the paper), Dir(0.1)", f.curves(f.STRONG, long=1), f.over_rounds, charts.curves, ROUNDS),
    figure(
        "F14",
        "fixed weight of the global head",
        f.one_weight("heads"),
        f.one_weight_and_ours,
        plots.interpolation,
        {"xlabel": "weight e of the global head"},
    ),
    figure(
        "F15",
        "fixed weight of the global model",
        f.one_weight("models"),
        f.one_weight_and_ours,
        plots.interpolation,
        {"xlabel": "weight e of the global model"},
    ),
    figure("F16", "FedTHE over alpha and beta, Dir(0.1)", f.grid, f.over_grid, plots.heatmaps, {"x": "beta", "y": "alpha"}),
    figure("F17", "weight of the personal head, Dir(0.1)", f.weighed("FedTHE"), f.weights, charts.densities, {"xlabel": "1 - e"}),
    figure(
        "F19",
        "weight of the personal head, Dir(0.1)",
        f.weighed(*f.HISTORY),
        f.by_history,
        charts.densities,
        {"xlabel": "1 - e", "panels": "method"},
    ),
    figure("F18", "features of one client's mixture, Dir(0.1)", f.smoothed, f.embedding, plots.embedding),
    figure("F6", "transfer of a stronger pretrained network", transfer.strong, f.means, charts.bars, STEPS, said=transfer.said),
    figure("F7", "transfer of a weaker pretrained network", transfer.weak, f.means, charts.bars, STEPS, said=transfer.said),
    Exhibit("H26", "T3A by sample and by batch, Dir(0.1)", f.t3a, f.means, charts.bars, UNITS),
    Exhibit("leak", "What the leak adds, Dir(0.1)", f.leak, f.means, plots.leak),
)
