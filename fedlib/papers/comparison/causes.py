"""Why FedICON and FedTTA fall behind no adaptation on a short schedule, and ATP at its published step and on an unseen domain: one thing
changed at a time, all else as the parameters say.

Each study has a method and a protocol. A change is of the bench (rounds, clients, network, rates) or of the recipe (``stage.field``, as
among the candidates of the tuning); no adaptation is trained under the same change of the bench, and the gain counts against it on the same
images.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from fedlib.common import average
from fedlib.core import NoAdapt, Recipe
from fedlib.papers.comparison.candidates import value_of, with_value
from fedlib.papers.comparison.grid import gains, named, provenance
from fedlib.papers.comparison.ranking import distinct, overs
from fedlib.papers.comparison.recipes import baseline
from fedlib.papers.comparison.settings import Parameters
from fedlib.papers.comparison.significance import paired
from fedlib.published.pairs import holm
from fedlib.study import Study

# Networks with batch norm, and the same with group norm.
GROUP_NORM = {"fedicon_cnn": "fedicon_cnn_gn", "fedicon_cnn_small": "fedicon_cnn_gn_small"}


@dataclass(frozen=True)
class Change:
    """name; bench: parameters with other values, or from which value to which other; recipe: fields with other values."""

    name: str
    bench: dict[str, Any] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)


AS_IT_IS = Change("as it is")
_ICON = (
    AS_IT_IS,
    Change("no tuning at test time", recipe={"adapt": NoAdapt()}),
    Change("momentum 0.9 at test time", recipe={"adapt.momentum": 0.9}),
    Change("3 x the rounds", {"rounds": 3}),
    Change("10 x the rounds", {"rounds": 10}),
    Change("contrastive rate / 4", {"contrast_lr": 0.25}),
    Change("contrastive rate x 3", {"contrast_lr": 3}),
    Change("3 x the classifier rounds", {"classifier_rounds": 3}),
    Change("group norm in place of batch norm", {"model": GROUP_NORM}),
    Change("16 images per batch", {"batch_size": 16}),
)
# Which half of it loses where labels shift.
_ICON_HALVES = _ICON[:2]
_TTA = (
    AS_IT_IS,
    Change("no step at test time", recipe={"adapt": NoAdapt()}),
    Change("3 x the rounds", {"rounds": 3}),
    Change("10 x the rounds", {"rounds": 10}),
    Change("10 x the rounds, no step at test time", {"rounds": 10}, {"adapt": NoAdapt()}),
    Change("outer rate 0.1, as FedAvg's here", recipe={"train.rates.outer": 0.1}),
    Change("10 x the rounds, outer rate 0.1", {"rounds": 10}, {"train.rates.outer": 0.1}),
    Change("inner rate 0.1", recipe={"train.rates.inner": 0.1, "adapt.lr": 0.1}),
    Change("network convnet_small", {"plain_model": "convnet_small"}),
    Change("half the clients", {"population": 0.5}),
)
_PUBLISHED = {"personalize.lr": 0.1}
_ATP = (
    AS_IT_IS,
    Change("rates learned at 0.1, as published", recipe=_PUBLISHED),
    Change("at 0.1, parameters alone", recipe=_PUBLISHED | {"personalize.only": "params"}),
    Change("at 0.1, statistics alone", recipe=_PUBLISHED | {"personalize.only": "stats"}),
    Change("at 0.1, 3 x the rounds of learning them", {"rate_rounds": 3}, _PUBLISHED),
    Change("3 x the rounds", {"rounds": 3}),
)
STUDIES = {
    ("FedICON", "FedICON covariate"): _ICON,
    ("FedICON", "TTPFL feature"): (*_ICON, Change("half the clients", {"population": 0.5})),
    ("FedICON", "TTPFL label"): _ICON_HALVES,
    ("FedICON", "TTPFL hybrid"): _ICON_HALVES,
    ("FedICON", "UPFL new clients"): _ICON_HALVES,
    ("FedICON", "FedICON domain"): _ICON,
    ("FedTTA", "UPFL new clients"): _TTA,
    ("ATP-batch", "FedICON covariate"): _ATP,
    ("ATP-batch", "FedICON domain"): _ATP,
}
FACTORS = ("rounds", "contrast_lr", "classifier_rounds", "rate_rounds", "population")  # whose values are factors on the parameters' own


def changed(p: Parameters, change: Change) -> Parameters:
    """The parameters under a change of the bench; as they are where it cannot be made, of a network that has no other norm or of a schedule
    without room for more classifier rounds."""
    values = {}
    for name, value in change.bench.items():
        own = getattr(p, name)
        values[name] = type(own)(own * value) if name in FACTORS else value.get(own, own) if isinstance(value, dict) else value
    if values.get("classifier_rounds", 0) >= p.rounds:
        return p
    if "population" in values:
        values["population"] = max(2, values["population"] // 2 * 2)  # half of them train
    return replace(p, **values)


def alters(p: Parameters, change: Change, recipe: Recipe) -> bool:
    """Whether the bench is another one under ``change``, or ``recipe`` where it names no bench; what names neither is the run as it is."""
    if change.bench:
        return changed(p, change) != p
    return not change.recipe or any(value_of(recipe, place) != value for place, value in change.recipe.items())


def measure(study: Study) -> pd.DataFrame:
    """One row per study and change: method, protocol, change, accuracy of the method (``mean``, ``std`` over seeds) and ``without``
    adaptation, ``gain`` with its interval and ``p_holm`` (of the study), n_seeds, n, rounds, what was run."""
    p, found = study.p, []
    for (method, protocol), changes in STUDIES.items():
        if protocol in p.clients_of() and p.allows(method):
            recipe = p.table(protocol, plain=baseline(method) in p.table(protocol, plain=True))[method]
            possible = [change for change in changes if alters(p, change, recipe)]
            own = [row for change in possible for row in _row(study, change, method, protocol)]
            found += [row | {"p_holm": value} for row, value in zip(own, holm([row["p"] for row in own]), strict=True)]
    return pd.DataFrame(found)


def _row(study: Study, change: Change, method: str, protocol: str) -> list[dict]:
    """The row of one change; none where the images are absent, or one of the two diverges."""
    p, base = changed(study.p, change), baseline(method)
    plain = base in p.table(protocol, plain=True)
    table = p.table(protocol, plain)
    recipe = table[method]
    for place, value in change.recipe.items():
        recipe = with_value(recipe, place, value)
    rows = named(study.rows(p.blocks(protocol, {base: table[base], method: recipe}, plain))[0])
    if len(rows) == 0 or {*rows["method"]} != {base, method}:
        return []
    each = gains(rows)
    tested = paired(each[each["method"] == method], protocol, overs(rows)[-1], distinct(rows).loc[protocol]).iloc[0]
    means = average(rows, ["method"]).set_index("method")
    about = provenance(rows[rows["method"] == method], ["method"]).iloc[0]
    rounds = p.setting(protocol, plain, train=recipe.train).schedule.rounds
    row = {"method": method, "protocol": protocol, "change": change.name, "rounds": rounds}
    row |= {"mean": means.loc[method, "mean"], "std": means.loc[method, "std"], "without": means.loc[base, "mean"]}
    row |= {name: tested[name] for name in ("gain", "low", "high", "p")}
    row |= {"n_seeds": len(p.seeds), "n": means.loc[method, "n"]}
    return [row | {name: about[name] for name in ("run_dataset", "run_model", "status")}]
