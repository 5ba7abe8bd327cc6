"""FedICON's methods by their published names: the eleven of Tables 1-3, FedICON-us of Table 4, the switches of Table 5.

The paper leaves open FedProx's mu (here FedBN's value for digits) and the base of the three test-time methods (here FedAvg+FT: a global
model cannot reach what they print on Dir(0.1)). FedAvg is tested with the server's model; DSLR's printed row in Table 2 looks as if each
client's own, after its last local training, had been. FedTHE's row in Table 3 at Dir(0.1) repeats what FedTHE prints for FedTHE+; the
method run is FedTHE.
"""

from fedlib.adapt.eata import EATA
from fedlib.adapt.fedicon import Contrastive, ContrastiveOnline
from fedlib.adapt.fedthe import FedTHE
from fedlib.adapt.t3a import T3A
from fedlib.adapt.tent import Tent
from fedlib.core import Recipe
from fedlib.data import about
from fedlib.personalize.classifier import OwnClassifier
from fedlib.personalize.fine_tune import FineTune
from fedlib.personalize.fisher import WithFisher
from fedlib.personalize.head import PersonalHead
from fedlib.train.alone import Alone
from fedlib.train.contrastive import Contrast
from fedlib.train.fedavg import FedAvg
from fedlib.train.fedavg_views import FedAvgViews
from fedlib.train.fedbn import FedBN
from fedlib.train.fedicon import FedICON
from fedlib.train.fedprox import FedProx
from fedlib.train.fedrep_local import FedRepLocal

FEDAVG, BALANCED = FedAvg(weighting="samples"), FedAvg(loss="balanced_softmax", weighting="samples")
# Not printed: FedAvg on the views that FedICON trains on.
VIEWS = "FedAvg (views)"
MAIN = ("Local", "FedAvg", "FedAvg+FT", "FedProx", "FedRep", "FedBN", "FedTHE", "Tent", "EATA", "T3A", "FedICON")


def recipes(views: str = "digits", classifier_rounds: int = 5, lr: float = 0.005) -> dict[str, Recipe]:
    """All methods by published name; Table 5's names tell what is on: LIE (contrastive encoder), GIS (sharing), TTA (test-time tuning).

    views: kind of contrastive views, ``digits``, ``objects`` or ``cifar``; lr: of contrastive training (test-time tuning has 0.005 in any
    case). Further names: ``FedICON:online``, and test-time tuning for one epoch, or with momentum 0.9.
    """
    contrast, tuning = Contrast(views, lr=lr), Contrast(views)
    fedicon = FedICON(contrast, classifier_rounds=classifier_rounds)
    alone = FedICON(contrast, classifier_rounds=classifier_rounds, share=False)
    unsupervised = FedICON(contrast, supervised=False, classifier_rounds=classifier_rounds)
    own, tuned = OwnClassifier(), Contrastive(tuning)
    return {
        "Local": Recipe(Alone()),
        "FedAvg": Recipe(FEDAVG),
        VIEWS: Recipe(FedAvgViews(views)),
        "FedAvg+FT": Recipe(FEDAVG, FineTune()),
        "FedProx": Recipe(FedProx(mu=0.01)),
        "FedRep": Recipe(FedRepLocal()),
        "FedBN": Recipe(FedBN()),
        "FedTHE": Recipe(BALANCED, PersonalHead(), FedTHE()),
        "Tent": Recipe(FEDAVG, FineTune(), Tent(lr=1e-3, batch_size=32, optimizer="adam")),
        "EATA": Recipe(FEDAVG, WithFisher(FineTune()), EATA()),
        "T3A": Recipe(FEDAVG, FineTune(), T3A(filter_k=50, batch_size=32)),
        "FedICON": Recipe(fedicon, own, tuned),
        "FedICON-us": Recipe(unsupervised, own, tuned),
        "FedICON:LIE": Recipe(alone, own),
        "FedICON:TTA": Recipe(Alone(), None, tuned),
        "FedICON:LIE+GIS": Recipe(fedicon, own),
        "FedICON:GIS+TTA": Recipe(FEDAVG, None, tuned),
        "FedICON:LIE+TTA": Recipe(alone, own, tuned),
        "FedICON:1 epoch": Recipe(fedicon, own, Contrastive(tuning, epochs=1)),
        "FedICON:momentum": Recipe(fedicon, own, Contrastive(tuning, momentum=0.9)),
        "FedICON:online": Recipe(fedicon, OwnClassifier(memory=64), ContrastiveOnline(tuning), costly=True),
    }


def views_of(dataset: str) -> str:
    """The kind of views that suits a data set."""
    return about(dataset).views


RECIPES = recipes()
