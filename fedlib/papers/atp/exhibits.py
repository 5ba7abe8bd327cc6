"""ATP's tables, figures and studies by name, in the order of its notebook."""

from collections.abc import Sequence
from dataclasses import replace

from fedlib.adapt.atp import ATP
from fedlib.core import Benchmark
from fedlib.data.corruptions import SOURCE_KINDS
from fedlib.paper import Block, Exhibit
from fedlib.papers.atp import figures, plots, tables, toy
from fedlib.papers.atp.settings import Parameters
from fedlib.personalize.rates import Rates
from fedlib.protocols.ttpfl import TTPFL
from fedlib.setting import Setting
from fedlib.study import Study


def main(p: Parameters) -> Setting:
    """The clients of Table 1 whose images are clean."""
    return p.settings()[1]


def clean(p: Parameters) -> Benchmark:
    return main(p).protocol.build(p.seeds[0], p.data_root)


def clients(p: Parameters, protocols: Sequence[TTPFL] = ()) -> str:
    """How many there are by data set (none: Table 1's), which no shift changes."""
    each = {one.dataset: replace(one, shift="label") for one in protocols or [main(p).protocol]}.values()
    made = [[client.source for client in one.build(p.seeds[0], p.data_root).clients] for one in each]
    sources, targets = ("/".join(dict.fromkeys(str(found.count(side)) for found in made)) for side in (True, False))
    return f"{sources} source and {targets} target clients"


def who(p: Parameters, blocks: Sequence[Block]) -> str:
    """The clients of what is run (by default those of Table 1), the rounds in which rates were learned, and over how many models the
    results are means."""
    protocols = [setting.protocol for block in blocks for setting in block.settings]
    by_domain = dict.fromkeys(f"{protocol.n_clients}" for protocol in protocols if protocol.held_out)
    told = [f"{'/'.join(by_domain)} clients a domain" if by_domain else clients(p, protocols)]
    usual, recipes = p.rates("cifar10").rounds, [recipe for block in blocks for recipe in block.recipes.values()]
    learned = [r for r in recipes if isinstance(r.adapt, ATP) or isinstance(r.personalize, Rates)]
    rounds = {getattr(recipe.personalize, "rounds", usual) for recipe in learned} if blocks else {usual}
    told += [f"rates learned in {'/'.join(map(str, sorted(rounds)))} rounds"] if rounds else []
    models = {round for block in blocks for round in block.request.get("rounds", p.last)}
    told += [f"mean of the last {len(p.last)} models saved"] if len(p.last) > 1 and models == set(p.last) else []
    return ", ".join(told)


def drawn(study: Study) -> dict:
    """What Figure 7 shows besides numbers."""
    five = figures.pictures(study.benchmark)
    return {"pictures": {kind: five[kind] for kind in five if kind != "clean"}, "split": len(SOURCE_KINDS)}


def images(p: Parameters) -> str:
    return clean(p).images


EXHIBITS: Sequence[Exhibit] = (
    Exhibit(
        "clients",
        "Clients under three shifts: samples per class, and images of some source and target clients",
        numbers=figures.held,
        draw=plots.clients,
        options=lambda study: {"benchmarks": figures.benchmarks(study.p)},
        said=lambda p: f"{images(p)}, {clients(p)}",
    ),
    Exhibit("T1", "Table 1: three shifts", tables.table("T1"), tables.with_ranks, reasons=tables.unranked),
    Exhibit("F2", "Figure 2: gain under one shift, loss under another", figures.two_shifts, figures.trade_off, plots.trade_off),
    Exhibit("T2", "Table 2: domains, one held out", tables.table("T2"), tables.by_domain, columns=tables.own_columns),
    Exhibit("T5", "Table 5: other networks", tables.table("T5"), tables.with_ranks, reasons=tables.unranked),
    Exhibit(
        "readme",
        "Seed 0 beside the authors' run",
        tables.of_seed_0,
        tables.beside_readme,
        said=lambda p: f"{images(p)}, {clients(p)}, {p.profile}",
        page=lambda study, numbers: numbers,
    ),
    Exhibit(
        "hyperparameters",
        "Hyperparameters chosen",
        numbers=tables.hyperparameters,
        said=lambda p: "on the source clients' validation parts; every candidate with its accuracy is in hyperparameters.csv",
        page=lambda study, numbers: tables.chosen(numbers),
    ),
    Exhibit("T3", "Table 3: rates of one shift under another", tables.cross_shift, tables.across),
    Exhibit("T4", "Table 4: parameters or statistics alone", tables.ablation("numel"), tables.scores),
    Exhibit("scale", "The rows of Table 4 with the square root throughout", tables.ablation("sqrt_numel"), tables.scores),
    Exhibit("T6", "Table 6: outdated rates, each row one model", tables.outdated, tables.by_model),
    Exhibit("T7", "Table 7: other ways of global training", tables.global_training, tables.scores),
    Exhibit("F3", "Figure 3: fixed rates for one set of modules, final model", figures.one_step, figures.module_sets, plots.module_sets),
    Exhibit(
        "F4",
        "Figure 4: rates learned on the final model",
        numbers=figures.rates_by_group,
        draw=plots.rates,
        options=lambda study: {"members": figures.groups(study.p)},
    ),
    Exhibit("F5", "Figure 5: sizes of cohort and test batch, hybrid shift", figures.of_sizes, figures.sizes, plots.sizes),
    Exhibit("F7", "Figure 7: one image under all corruptions", numbers=figures.changes, draw=plots.corruptions, options=drawn, said=images),
    Exhibit(
        "F8",
        "Figure 8: losses while the rates are learned, hybrid shift, final model",
        figures.of_cohorts,
        figures.loss_curves,
        plots.losses,
    ),
    Exhibit(
        "F9",
        "Figure 9: toy example",
        numbers=lambda study: toy.histograms(),
        draw=plots.toy,
        said=lambda p: "toy problem, accuracy of 200,000 drawn samples",
    ),
    Exhibit("A16", "Claim A16: numbers sent", numbers=figures.communication),
)
