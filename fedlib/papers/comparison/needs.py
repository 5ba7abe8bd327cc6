"""What every method of the comparison takes for granted, read off its recipe where that says it."""

import pandas as pd

from fedlib.adapt.atp import ATP
from fedlib.core import Adapter, Recipe
from fedlib.papers.comparison.recipes import CUT, HEAD, passes
from fedlib.papers.comparison.settings import NEW, REASONS, Parameters
from fedlib.papers.fedicon.recipes import FEDAVG
from fedlib.stages.checks import TOGETHER

# Methods whose answer to an image depends on others: those of its batch, or all of the stream, which has to be there first. What is carried
# on from earlier images (T3A, BTFL, TTT) can come one by one; FedTHE's history can, too, but not by the rule of its code, which is the one
# that is run here and loses its record wherever a batch begins.
BATCH = ("Tent", "EATA", "EM", "BBSE", "FedTHE", "FedTHE+", "ATP-batch", "ATP-online")
STREAM = ("FedICON", "FedTTA", "FedTTA++")
# What those images have to share: the shift that the method corrects is one of class shares alone.
SHARES = ("EM", "BBSE")
# What is kept of the training clients' data, or of the client's own, and used at test time.
KEPT = {
    "kNN-Per": "the client's features",
    "EATA": "Fisher information",
    "BBSE": "source confusions",
    "FedTHE": "mean features",
    "FedTHE+": "mean features",
    "BTFL": "frequencies of feature codes",
    "ATP-batch": "source adaptation rates",
    "ATP-online": "source adaptation rates",
}
# What goes to the server beside the model of every round.
SENT = {
    "BBSE": "confusion counts",
    "FedTHE": "a mean feature",
    "FedTHE+": "a mean feature",
    "BTFL": "code frequencies",
    "ATP-batch": "adaptation rates",
    "ATP-online": "adaptation rates",
    "FedTTA": "the adaptation model",
    "FedTTA++": "the adaptation model",
}


def needs_batch_norm(adapter: Adapter) -> bool:
    """Whether it acts on batch norm; ATP's rates of other layers alone are none of its variants here."""
    return getattr(adapter, "needs_batch_norm", False) or isinstance(adapter, ATP)


def needs(p: Parameters) -> pd.DataFrame:
    """Methods down: ``labels`` of the tested client ("must": it does not run without; "used": where there are some it starts from a model
    tuned on them; ""), ``validation`` (labelled images beside those of training, of training clients), ``batch_norm``, ``training`` (of its
    own), ``head`` (a personal one), ``together`` (images: "one", "batch" or "stream"), ``shares`` (the shift is of class shares alone),
    ``kept`` and ``sent`` in words, ``passes`` through each image in a training step."""
    rows = []
    for name, recipe in (p.table("BRFL") | p.table("BRFL", plain=True)).items():
        if name.startswith(CUT):
            continue
        asked = getattr(recipe.personalize, "needs", ())
        row = {"method": name, "labels": _labels(name, recipe, p), "validation": "validation" in asked}
        row |= {"batch_norm": needs_batch_norm(recipe.adapt), "training": recipe.train != FEDAVG}
        row |= {"head": name in (HEAD, "FedTHE", "FedTHE+", "BTFL"), "shares": name in SHARES, "passes": passes(recipe.train)}
        row["together"] = _together(name, recipe, p)
        rows.append(row | {"kept": KEPT.get(name, ""), "sent": SENT.get(name, "")})
    return pd.DataFrame(rows)


def _labels(name: str, recipe: Recipe, p: Parameters) -> str:
    used = recipe.personalize is not None and "labels" in getattr(recipe.personalize, "needs", ("labels",))
    # A user's does not run where there are none; some published ones start from the global model there.
    return "must" if name in REASONS[NEW] or (used and name in p.own) else "used" if used else ""


def _together(name: str, recipe: Recipe, p: Parameters) -> str:
    """A user's adapter says it (``together``); of one that does not, nothing less than the stream can be assumed."""
    if name in p.own:
        return getattr(recipe.adapt, "together", TOGETHER[-1])
    return "stream" if name in STREAM else "batch" if name in BATCH else "one"
