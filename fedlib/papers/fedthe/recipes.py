"""FedTHE's methods by their published names, with the hyperparameters of its appendix C: Table 1, the ablations of Tables 3 and 13, and the
fixed weights of Figures 14 and 15. Where the released code does not run what a name says, the name stands for the code, which made the
printed numbers, and ``VARIANTS`` holds what it says."""

from fedlib.adapt.fedthe import FedTHE
from fedlib.adapt.fedthe_plus import FedTHEPlus
from fedlib.adapt.knn_per import BestMix, KNNPer
from fedlib.adapt.memo import MEMO
from fedlib.adapt.mixture import HeadSum, Interpolation, ModelMixture
from fedlib.adapt.t3a import T3A
from fedlib.adapt.tsa import TSA
from fedlib.adapt.ttt import TTT
from fedlib.core import Recipe
from fedlib.personalize.apfl import APFL
from fedlib.personalize.ditto import Ditto
from fedlib.personalize.fedrep import FedRepHead
from fedlib.personalize.fedrod import FedRoD
from fedlib.personalize.fine_tune import FineTune
from fedlib.personalize.head import PersonalHead
from fedlib.personalize.knn_per import LocalMemory
from fedlib.personalize.ttt import JointRotation
from fedlib.train.fedavg import FedAvg
from fedlib.train.fedrep import FedRep
from fedlib.train.gma import GMA

CE, BSM = FedAvg(), FedAvg(loss="balanced_softmax")

# Table 1, in printed order.
RECIPES = {
    "FedAvg": Recipe(CE),
    "GMA": Recipe(GMA()),
    "MEMO-G": Recipe(CE, None, MEMO(base="global"), costly=True),
    "FedAvg+FT": Recipe(CE, FineTune()),
    "APFL": Recipe(CE, APFL(), ModelMixture()),
    "FedRep": Recipe(FedRep(), FedRepHead()),
    "Ditto": Recipe(CE, Ditto()),
    "FedRoD": Recipe(BSM, FedRoD(), HeadSum()),
    "kNN-Per": Recipe(CE, LocalMemory(), KNNPer()),
    "TTT": Recipe(CE, JointRotation(), TTT(), costly=True),
    "MEMO-P": Recipe(CE, FineTune(), MEMO(), costly=True),
    "T3A": Recipe(CE, FineTune(), T3A(initial_bias=False)),
    "FedTHE": Recipe(BSM, PersonalHead(), FedTHE()),
    "FedTHE+": Recipe(BSM, PersonalHead(), FedTHEPlus(), costly=True),
}

# Tables 3 and 13, rows 1 to 16.
ABLATIONS = {
    "MEMO-P": RECIPES["MEMO-P"],
    "MEMO-P:+LPFT": Recipe(CE, FineTune(), MEMO(head_steps=1, steps=1), costly=True),
    "TSA": Recipe(CE, PersonalHead(), TSA()),
    "TwoHead": Recipe(CE, PersonalHead(), FedTHE(steps=0)),
    "TwoHead:+BSM": Recipe(BSM, PersonalHead(), FedTHE(steps=0)),
    "TwoHead:+BSM+FA": Recipe(BSM, PersonalHead(), FedTHE(weighting="alignment")),
    "TwoHead:+BSM+EM": Recipe(BSM, PersonalHead(), FedTHE(weighting="entropy")),
    "TwoHead:+BSM+FA+EM": Recipe(BSM, PersonalHead(), FedTHE(weighting="half")),
    "FedTHE": RECIPES["FedTHE"],
    "FedTHE:batch": Recipe(BSM, PersonalHead(), FedTHE(shared=True)),
    "FedTHE:-history": Recipe(BSM, PersonalHead(), FedTHE(beta=1.0)),
    "FedTHE:-BSM": Recipe(CE, PersonalHead(), FedTHE()),
    "FedTHE+": RECIPES["FedTHE+"],
    "FedTHE+:-BSM": Recipe(CE, PersonalHead(), FedTHEPlus(), costly=True),
    "FedAvg+FT:+BSM": Recipe(BSM, FineTune()),
    "FedAvg+FT:+BSM+BSMpers": Recipe(BSM, FineTune(loss="balanced_softmax")),
}

# What the names say where the code differs; kNN-Per's weight as published, chosen with the labels of the test; FedTHE as an earlier public
# version of its code smooths features.
VARIANTS = {
    "APFL (paper)": Recipe(CE, APFL(alpha_role="personal"), ModelMixture()),
    "Ditto (prox)": Recipe(CE, Ditto(prox=True)),
    "kNN-Per (oracle)": Recipe(CE, LocalMemory(), KNNPer(sides=True), oracle=BestMix()),
    "MEMO-P (paper)": Recipe(CE, FineTune(), MEMO(steps=3, lr=5e-4), costly=True),
    "TSA (augmented)": Recipe(CE, PersonalHead(), TSA(augment=True)),
    "FedTHE (earlier code)": Recipe(BSM, PersonalHead(), FedTHE(compounded=True)),
    "FedTHE+ (earlier code)": Recipe(BSM, PersonalHead(), FedTHEPlus(FedTHE(compounded=True)), costly=True),
}
FURTHER = ABLATIONS | VARIANTS
METHODS = RECIPES | FURTHER


def interpolations(of: str, points: int = 11) -> dict[str, Recipe]:
    """Recipes with a fixed weight e of the global side, named ``e=0`` to ``e=1``: Figure 14 (``of="heads"``) and 15 (``"models"``)."""
    train, personalize = {"heads": (BSM, PersonalHead()), "models": (CE, FineTune())}[of]
    weights = [i / (points - 1) for i in range(points)]
    return {f"e={weight:g}": Recipe(train, personalize, Interpolation(weight, of)) for weight in weights}
