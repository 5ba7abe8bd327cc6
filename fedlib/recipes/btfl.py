"""BTFL's methods by their published names, with the hyperparameters of its appendix, and the variants that its notebook studies.

Baselines are FedTHE's, except: FedTHE's two mixing factors are both 0.1, MEMO takes three steps at 5e-4, kNN-Per's weight is searched in
steps of 0.1 (on the validation part, not on internal test data; 1.0 is tried too).
"""

from dataclasses import replace

from fedlib.adapt.btfl import BTFL
from fedlib.adapt.fedthe import FedTHE
from fedlib.adapt.fedthe_terms import FedTHETerms
from fedlib.adapt.memo import MEMO
from fedlib.adapt.none import NoAdapt
from fedlib.personalize.btfl import BTFLPersonal
from fedlib.personalize.head import PersonalHead
from fedlib.personalize.knn_per import LocalMemory
from fedlib.recipes import Recipe, fedthe
from fedlib.recipes.fedthe import BSM, CE
from fedlib.train.btfl import SparseFedAvg

# The method as the published code has it, with the paper's cap (the defaults), and as the paper's text has it.
CODE = BTFL()
PAPER = BTFL(table="mean", smoothing=0.0, reference="global", squash=False, integral="exact", mixture="probability")

METHODS = ("FedAvg", "FedAvg+FT", "FedRep", "FedRoD", "kNN-Per", "FedTHE", "TTT", "MEMO-P", "BTFL")
# Figure 5's: the paper does not name them.
STRONG = ("FedAvg", "FedAvg+FT", "FedRoD", "kNN-Per", "FedTHE", "BTFL")

# One switch at a time, between the defaults and the paper's text, and two settings of the code's own.
SWITCHES = {
    "code": CODE,
    "mean of all tables": replace(CODE, table="mean"),
    "no smoothing": replace(CODE, smoothing=0.0),
    "global entropy for ln 100": replace(CODE, reference="global"),
    "no squash": replace(CODE, squash=False),
    "exact integral": replace(CODE, integral="exact"),
    "mixture of probabilities": replace(CODE, mixture="probability"),
    "paper": PAPER,
    "kb = 10": replace(CODE, kb=10.0),
    "batches of one": replace(CODE, batch_size=1),
    # A cap below the first sum restarts the prior at (1, 1) after every batch.
    "no history": replace(CODE, cap=1e-9),
}
# The paper's cap and those of the published scripts.
STRENGTHS = (5, 16, 50, 300, 3000)


def training(feature_l1: float):
    """BTFL's federated training; without the penalty FedAvg's, so that one run serves both."""
    return SparseFedAvg(feature_l1) if feature_l1 else CE


def recipes(feature_l1: float = 1e-3, fedthe_lr: float = 0.1) -> dict[str, Recipe]:
    """Table 2's methods in printed order.

    feature_l1: of the published script for data set and network; fedthe_lr: of FedTHE's weight, ten times the personal rate in its code.
    """
    own = {
        "kNN-Per": replace(fedthe.RECIPES["kNN-Per"], personalize=LocalMemory(candidates=11)),
        "FedTHE": Recipe(BSM, PersonalHead(), FedTHE(beta=0.1, lr=fedthe_lr)),
        "MEMO-P": replace(fedthe.RECIPES["MEMO-P"], adapt=MEMO(steps=3, lr=5e-4)),
        "BTFL": Recipe(training(feature_l1), BTFLPersonal(), CODE),
    }
    return {name: own.get(name) or fedthe.RECIPES[name] for name in METHODS}


def batches_of_one() -> dict[str, Recipe]:
    """Table 1's second half; the last recipe is ours: FedTHE with the history rule that does not skip the first sample of a batch."""
    full, single = recipes(), {"batch_size": 1}
    return {
        **{name: replace(full[name], adapt=replace(full[name].adapt, **single)) for name in ("FedTHE", "BTFL")},
        "FedTHE, inclusive history": replace(full["FedTHE"], adapt=FedTHE(beta=0.1, history_rule="inclusive", **single)),
    }


def switches(feature_l1: float = 1e-3) -> dict[str, Recipe]:
    """What changes BTFL's result: each switch of the adaptation alone, the penalty of the training, and either head by itself."""
    train = training(feature_l1)
    return {
        **{name: Recipe(train, BTFLPersonal(), adapt) for name, adapt in SWITCHES.items()},
        "no L1 term": Recipe(CE, BTFLPersonal(), CODE),
        "global head alone": Recipe(train),
        "personal head alone": Recipe(train, BTFLPersonal(), NoAdapt()),
    }


def strengths(feature_l1: float = 1e-3) -> dict[str, Recipe]:
    """BTFL with the prior's cap at each of ``STRENGTHS``, by that number."""
    return {str(cap): Recipe(training(feature_l1), BTFLPersonal(), replace(CODE, cap=float(cap))) for cap in STRENGTHS}


def terms() -> dict[str, Recipe]:
    """FedTHE with the two terms that Figure 1 plots."""
    return {"FedTHE": Recipe(BSM, PersonalHead(), FedTHETerms(FedTHE(beta=0.1)))}
