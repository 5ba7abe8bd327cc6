"""The published methods by name, and a first look at what was measured."""

import importlib
import re
import sys

import pandas as pd
from matplotlib.figure import Figure

from fedlib.core import Recipe
from fedlib.further import METHODS
from fedlib.personalize.select import Select, Selected
from fedlib.plots import charts
from fedlib.published import PAPERS
from fedlib.published.units import units_of
from fedlib.stages.checks import STAGES
from fedlib.tools.names import check_name, counted


def recipes_of(paper: str, *names: str) -> dict[str, Recipe]:
    """The recipes of a paper by published name, or of ``comparison`` as they run there: all, or those called ``names``. They are
    ``RECIPES`` of its ``recipes.py``, or what ``recipes()`` gives there; by name there are also its ``FURTHER`` ones (ablations, and what a
    text says where its code differs). Their rates are those of the paper's main network, as FedTHE's on a weight, a tenth of them on CCT:
    notebooks set these by network. Raises ValueError for an unknown paper or name.

    >>> list(recipes_of("fedthe", "FedAvg", "FedTHE"))
    ['FedAvg', 'FedTHE']
    """
    module = importlib.import_module(f"fedlib.papers.{check_name(paper, (*PAPERS, 'comparison'), 'paper')}.recipes")
    table = module.RECIPES if hasattr(module, "RECIPES") else module.recipes()
    named = table | getattr(module, "FURTHER", {})
    return {check_name(name, named, f"method of {paper}"): named[name] for name in names} if names else table


def methods() -> pd.DataFrame:
    """Every published method, those of the comparison, and the kit's further ones (paper "all"): paper, method, its three stages by class
    name, and the first line of a description.

    >>> sorted(methods()["paper"].unique())
    ['atp', 'btfl', 'comparison', 'fedicon', 'fedthe', 'upfl']
    """
    rows = []
    for paper, table in {**{paper: recipes_of(paper) for paper in (*PAPERS, "comparison")}, "all": METHODS}.items():
        for name, recipe in table.items():
            stages = {stage: type(part).__name__ if (part := getattr(recipe, stage)) else "" for stage in STAGES}
            rows.append({"paper": paper, "method": name, **stages, "about": _about(name, recipe)})
    return pd.DataFrame(rows)


def _about(method: str, recipe: Recipe) -> str:
    """What the stage that bears the method's name says of itself first, else the first one that is not the plain one, from adaptation to
    training. Of a choice among candidates, one of them speaks."""
    stages = [part for part in (recipe.adapt, recipe.personalize, recipe.train) if part]
    chosen = [type(part.candidates[0] if isinstance(part, Select | Selected) else part) for part in stages]
    leaves = {kind: leaf for kind in chosen if (leaf := kind.__module__.rsplit(".", 1)[1]) not in ("core", "fedavg")}
    bears = [kind for kind, leaf in leaves.items() if leaf in method.lower().replace("-", "_")]
    speaks = [*bears, *leaves, chosen[-1]][0]
    # Most modules hold one method; where there are several, the class's own docstring begins with its name.
    title, _, rest = (speaks.__doc__ or "").partition("\n\n")
    named = rest and re.split(r"[: ]", method)[0] in title
    text = " ".join((title if named else sys.modules[speaks.__module__].__doc__ or "").split())
    return re.split(r"(?<! al)\. ", text, maxsplit=1)[0].rstrip(".")


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Accuracy in percent of what ``fedlib.run`` returned: methods down, tests across (with the settings and rounds, where they differ).

    Every cell is the mean over clients, then seeds, all clients counting equally.
    """
    by = [name for name in ("setting", "round") if rows[name].nunique() > 1]
    means = _means(rows, by)
    wide = means.pivot_table(index=[*by, "method"], columns="column", values="mean", sort=False)
    return wide.rename_axis(columns=None)


def bars(rows: pd.DataFrame, title: str = "") -> Figure:
    """The accuracies of ``table`` at the last round as bars, one group per test (and setting, where there are several), with the standard
    error over clients and seeds if there are several."""
    clients, seeds = rows["client"].nunique(), rows["seed"].nunique()
    last, several = rows[rows["round"] == rows.groupby("setting")["round"].transform("max")], rows["setting"].nunique() > 1
    means = _means(last, ["setting"] if several else [])
    if several:
        means["column"] = means["setting"] + "\n" + means["column"]
    after = "/".join(map(str, sorted(last["round"].unique() - 1)))
    label = f"\n{rows['dataset'].iloc[0]}, {rows['model'].iloc[0]}, {clients} clients, after {after} rounds, {counted(seeds, 'seed')}"
    spread = "standard error over clients" + " and seeds" * (seeds > 1)
    return charts.bars(means, x="column", hue="method", title=title + label, spread=spread)


def _means(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    units = units_of(rows, [*by, "method", "column"])
    return units.to_frame("units").assign(mean=[u.mean for u in units], std=[u.error for u in units]).reset_index()
