"""Seventeen methods of the five papers and of their tables on one bench: the same global training wherever a method does not bring its own.

Hyperparameters are those of the method's own paper, or of the paper among the five that runs it (Tent, EATA: FedICON; T3A, MEMO, TTT,
kNN-Per: FedTHE; EM, BBSE: ATP), the same on every protocol; ``candidates.py`` has a grid around them for each. Where
clients hold labels, MEMO, T3A, Tent and EATA start from the fine-tuned model, as in FedTHE and FedICON; for new clients from the global
one, as in ATP.
"""

from dataclasses import replace

from fedlib.adapt.bbse import BBSE
from fedlib.adapt.em import EM
from fedlib.adapt.mixture import Interpolation
from fedlib.core import Recipe, TrainMethod
from fedlib.papers.atp import recipes as atp
from fedlib.papers.btfl import recipes as btfl
from fedlib.papers.fedicon import recipes as fedicon
from fedlib.papers.fedicon.recipes import BALANCED, FEDAVG
from fedlib.papers.fedthe import recipes as fedthe
from fedlib.papers.upfl import recipes as upfl
from fedlib.personalize.confusion import Confusion
from fedlib.personalize.fine_tune import FineTune
from fedlib.personalize.rates import Rates
from fedlib.train.fedicon import FedICON
from fedlib.train.fedtta import FedTTA

# No adaptation, which ATP's tables call NoAdapt and the others FedAvg; the same on the cut streams of methods with per-sample gradients;
# the same on the network without batch norm. FedTHE's personal head alone, which does nothing at test time either.
NONE, CUT, PLAIN, HEAD = "FedAvg", "FedAvg:cut", "FedAvg:plain", "personal head"


def recipes(
    labelled: bool = True, *, views: str = "digits", classifier_rounds: int = 5, contrast_lr: float = 0.005, rates: Rates = atp.RATES
) -> dict[str, Recipe]:
    """Methods on the network with batch norm. labelled: whether the tested clients hold labels; without, methods whose personal part
    needs them are left out and FedICON keeps the server's classifier. views, classifier_rounds, contrast_lr: FedICON's; rates: ATP's.
    """
    of_fedicon = fedicon.recipes(views, classifier_rounds, contrast_lr)
    memo, of_fedthe, of_atp = fedthe.VARIANTS["MEMO-P (paper)"], fedthe.RECIPES, atp.recipes(FEDAVG, rates=rates)
    start = FineTune() if labelled else None
    table = {
        NONE: Recipe(FEDAVG),
        CUT: Recipe(FEDAVG, costly=True),
        "FedAvg+FT": Recipe(FEDAVG, FineTune()),
        "kNN-Per": replace(of_fedthe["kNN-Per"], train=FEDAVG),
        "TTT": replace(of_fedthe["TTT"], train=FEDAVG),
        # The paper's steps: those of FedTHE's code, at the rate of local training, ruin a network with batch norm. Its rate is one of
        # plain gradient descent, as FedTHE+'s.
        "MEMO": replace(memo, train=FEDAVG, personalize=start, adapt=replace(memo.adapt, momentum=0.0)),
        "T3A": replace(of_fedthe["T3A"], train=FEDAVG, personalize=start),
        "Tent": replace(of_fedicon["Tent"], personalize=start),
        "EATA": of_fedicon["EATA"],
        "EM": Recipe(FEDAVG, None, EM()),
        "BBSE": Recipe(FEDAVG, Confusion(), BBSE()),
        # What FedTHE has before its weights at test time.
        HEAD: replace(of_fedthe["FedTHE"], train=BALANCED, adapt=Interpolation(0.0)),
        "FedTHE": replace(of_fedthe["FedTHE"], train=BALANCED),
        "FedTHE+": replace(of_fedthe["FedTHE+"], train=BALANCED),
        "BTFL": btfl.recipes()["BTFL"],
        "ATP-batch": of_atp["ATP-batch"],
        "ATP-online": of_atp["ATP-online"],
        "FedICON": of_fedicon["FedICON"] if labelled else replace(of_fedicon["FedICON"], personalize=None),
    }
    return table if labelled else {name: recipe for name, recipe in table.items() if name not in PERSONAL}


# Their personal part is made from a client's own labelled (EATA: training) images.
PERSONAL = ("FedAvg+FT", "kNN-Per", "TTT", "EATA", HEAD, "FedTHE", "FedTHE+", "BTFL")


def without_batch_norm(dataset: str) -> dict[str, Recipe]:
    """FedTTA and FedTTA++ with the rates for ``dataset`` and, on their network, no adaptation: their training differentiates through a
    gradient step, which the kit has for networks without batch norm only."""
    table = upfl.recipes(dataset)
    return {PLAIN: Recipe(FEDAVG), "FedTTA": table["FedTTA"], "FedTTA++": table["FedTTA++"]}


METHODS = (*(name for name in recipes() if name != CUT), *without_batch_norm("digits"))
# No adaptation of the same network on the same images.
BASELINE = {name: CUT for name, recipe in recipes().items() if recipe.costly} | dict.fromkeys(without_batch_norm("digits"), PLAIN)


def passes(train: TrainMethod) -> int:
    """How often a local step of ``train`` goes through each of its images: FedICON contrasts two views of it, and FedTTA's outer step
    differentiates through an inner one."""
    return 2 if isinstance(train, FedICON | FedTTA) else 1


def baseline(method: str) -> str:
    """The recipe against which a method's gain counts."""
    return BASELINE.get(method, NONE)
