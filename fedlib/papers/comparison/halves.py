"""Training and test time apart: every training with every adaptation that fits it, so that one sees which half of a method does the work.

Trainings: cross-entropy, Balanced Softmax (FedTHE's), contrastive (FedICON's), and FedTTA's on the network without batch norm. Adaptations
are taken from the comparison's methods with their personal part. An adaptation does not fit where it needs batch norm and the network has
none, the adaptation model that FedTTA's training alone makes, or labels that new clients do not bring, and where it starts from a model
tuned on labels and the training is FedTTA's, whose adaptation model plain tuning knows nothing of. Methods with per-sample gradients
are left out: their streams may be cut.
"""

from dataclasses import replace

import pandas as pd

from fedlib.common import average
from fedlib.core import Recipe, TrainMethod
from fedlib.paper import Block
from fedlib.papers.comparison.grid import NOT_LOGITS, beside_the_mean, gains, named, provenance
from fedlib.papers.comparison.needs import needs_batch_norm
from fedlib.papers.comparison.ranking import MEAN, overs
from fedlib.papers.comparison.settings import PROTOCOLS, REASONS, Parameters
from fedlib.papers.comparison.significance import images_of, paired
from fedlib.papers.fedicon.recipes import BALANCED, FEDAVG
from fedlib.personalize.fine_tune import FineTune
from fedlib.train.fedtta import FedTTA

TRAININGS = ("cross-entropy", "Balanced Softmax", "contrastive", "FedTTA's")
NONE_AT_TEST, NETWORKS = "none", ("batch norm", "no batch norm")
# What a method does after training, by its name here.
STEPS = {
    "fine-tuning": "FedAvg+FT",
    "kNN memory": "kNN-Per",
    "T3A": "T3A",
    "Tent": "Tent",
    "EATA": "EATA",
    "EM": "EM",
    "BBSE": "BBSE",
    "personal head": "personal head",
    "FedTHE": "FedTHE",
    "BTFL": "BTFL",
    "ATP-batch": "ATP-batch",
    "contrastive tuning": "FedICON",
    "FedTTA's step": "FedTTA",
    "FedTTA++'s steps": "FedTTA++",
}
# What the differences of a pair (training, adaptation) count from.
STARTS = {
    "gain": lambda training, adaptation: (training, NONE_AT_TEST),
    "trained": lambda training, adaptation: (TRAININGS[0], adaptation),
    "total": lambda training, adaptation: (TRAININGS[0], NONE_AT_TEST),
}
TESTED = [f"{name}{what}" for name in STARTS for what in ("", "_low", "_high", "_p_holm", "_verdict")]
# Beside the mean.
BESIDE = ["worst", "ece"]
# These need what one training alone puts into the model.
BOUND = {"FedTTA's step": FedTTA, "FedTTA++'s steps": FedTTA}


def trainings(p: Parameters, protocol: str, plain: bool) -> dict[str, TrainMethod]:
    """By name, for one of the two networks."""
    contrastive = p.table(protocol)["FedICON"].train
    own = {"FedTTA's": p.table(protocol, plain=True)["FedTTA"].train} if plain else {}
    return {"cross-entropy": FEDAVG, "Balanced Softmax": BALANCED, "contrastive": contrastive} | own


def recipes(p: Parameters, protocol: str, plain: bool) -> dict[tuple[str, str], Recipe]:
    """(training, adaptation) -> recipe, wherever both fit, of the methods that the parameters allow."""
    methods = p.table(protocol) | (p.table(protocol, plain=True) if plain else {})
    allowed = [name for name in methods if p.allows(name) and name not in REASONS[PROTOCOLS[protocol]]]
    made = {}
    for training, method in trainings(p, protocol, plain).items():
        made[training, NONE_AT_TEST] = Recipe(method)
        for step, name in STEPS.items():
            if name in allowed and _fits(step, methods[name], method, plain):
                made[training, step] = replace(methods[name], train=method)
    return made


def _fits(step: str, recipe: Recipe, method: TrainMethod, plain: bool) -> bool:
    tuned = isinstance(recipe.personalize, FineTune) and isinstance(method, FedTTA)
    return isinstance(method, BOUND.get(step, object)) and not tuned and not (plain and needs_batch_norm(recipe.adapt))


def pairs(p: Parameters) -> list[Block]:
    """All pairs on every protocol and network; without batch norm where a method that runs there is among those asked for."""
    found = []
    for protocol in p.clients_of():
        for plain, network in enumerate(NETWORKS if p.plain_recipes(protocol) else NETWORKS[:1]):
            table = {f"{training} | {step}": recipe for (training, step), recipe in recipes(p, protocol, bool(plain)).items()}
            found += p.blocks(protocol, table, bool(plain), what=network)
    return found


def factorial(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """Protocol, network, training, adaptation: mean and n-1 std over seeds of the accuracy (mean over clients and tests), ``gain`` over no
    adaptation of the same training, ``trained`` over the same adaptation of cross-entropy and ``total`` over no adaptation of
    cross-entropy, on the same network, each with its interval (``_low``, ``_high``), ``_p_holm`` and ``_verdict`` of a test that is paired
    by client and corrected for all pairs of a protocol and network; ``worst`` and ``ece``, means over tests of the heat map's, absent where
    one of the tests has too few images or scores are no logits; n_seeds, n, ``over`` what intervals and tests are, what was run."""
    key, rows = ["setting", "network", "method"], named(rows).rename(columns={"printed_model": "network"})
    table = average(rows, key).drop(columns="units").merge(provenance(rows, key), on=key)
    tests = [_tested(own).assign(setting=place[0], network=place[1]) for place, own in rows.groupby(key[:2], sort=False)]
    table = table.merge(pd.concat(tests), on=key).merge(_beside(rows, key), on=key).assign(over=overs(rows)[-1])
    table[["training", "adaptation"]] = table.pop("method").str.split(" | ", regex=False, expand=True).to_numpy()
    front = ["setting", "network", "training", "adaptation", "mean", "std", *BESIDE, *TESTED]
    return table[[*front, "n_seeds", "n", "over", "run_dataset", "run_model", "status"]].rename(columns={"setting": "protocol"})


def _beside(rows: pd.DataFrame, key: list[str]) -> pd.DataFrame:
    each = beside_the_mean(rows, [*key, "column"])
    steps = each["method"].str.split(" | ", regex=False).str[1]
    each.loc[steps.map(STEPS).isin(NOT_LOGITS), "ece"] = float("nan")
    return each.groupby(key, sort=False)[BESIDE].agg(lambda own: own.mean(skipna=False)).reset_index()


def _tested(rows: pd.DataFrame) -> pd.DataFrame:
    """Of the pairs on one protocol and network: all differences, zero and untested for what they count from, absent where that does not
    fit."""
    protocol, pairs = rows["setting"].iloc[0], pd.DataFrame(index=pd.Index(rows["method"].unique(), name="method"))
    images = images_of(rows, protocol, MEAN)
    for name, start_of in STARTS.items():
        starts = {pair: " | ".join(start_of(*pair.split(" | "))) for pair in pairs.index}
        each = gains(rows, starts)
        each = each[each["method"] != each["method"].map(starts)]
        if not each.empty:
            tested = paired(each, protocol, overs(rows)[-1], images).set_index("method")
            pairs = pairs.join(tested.rename(columns={what: f"{name}_{what}" for what in tested} | {"gain": name}))
        pairs.loc[[pair for pair, start in starts.items() if pair == start], name] = 0.0
    return pairs.reindex(columns=TESTED).reset_index()
