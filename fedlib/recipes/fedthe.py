"""FedTHE's methods by their published names, with the hyperparameters of its appendix D."""

from fedlib.adapt.fedthe import FedTHE
from fedlib.adapt.fedthe_plus import FedTHEPlus
from fedlib.adapt.memo import MEMO
from fedlib.adapt.t3a import T3A
from fedlib.personalize.fine_tune import FineTune
from fedlib.personalize.head import PersonalHead
from fedlib.recipes import Recipe
from fedlib.train.fedavg import FedAvg

CE, BSM = FedAvg(), FedAvg(loss="balanced_softmax")

RECIPES = {
    "FedAvg": Recipe(CE),
    "MEMO-G": Recipe(CE, None, MEMO(base="global"), costly=True),
    "FedAvg+FT": Recipe(CE, FineTune()),
    "MEMO-P": Recipe(CE, FineTune(), MEMO(), costly=True),
    "T3A": Recipe(CE, FineTune(), T3A()),
    "FedTHE": Recipe(BSM, PersonalHead(), FedTHE()),
    "FedTHE+": Recipe(BSM, PersonalHead(), FedTHEPlus(), costly=True),
}
