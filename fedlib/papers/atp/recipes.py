"""ATP's methods by their published names, with the hyperparameters of its public code (appendix C.1 where it has none).

Baselines are tuned on the source clients' validation parts. The paper gives no grid; ``GRIDS`` is the kit's, wide around the defaults.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fedlib.adapt.atp import ATP
from fedlib.adapt.bbse import BBSE
from fedlib.adapt.bn_adapt import BNAdapt
from fedlib.adapt.em import EM
from fedlib.adapt.memo import MEMOCrop
from fedlib.adapt.shot import SHOT
from fedlib.adapt.surgical import Surgical
from fedlib.adapt.t3a import T3A
from fedlib.adapt.tent import Tent
from fedlib.core import Adapter, Personalizer, Recipe, TrainMethod
from fedlib.personalize.confusion import Confusion
from fedlib.personalize.rates import Rates
from fedlib.personalize.select import Select, Selected
from fedlib.train.fedavg import FedAvg
from fedlib.train.fedprox import FedProx
from fedlib.train.qffl import QFFL

FEDAVG = FedAvg(weighting="samples")
TRAIN = {"FedAvg": FEDAVG, "FedProx": FedProx(mu=0.01), "q-FFL": QFFL(q=1.0)}


@dataclass(frozen=True)
class Grids:
    """Values to choose among: lr: Tent, SHOT, MEMO, Surgical; prior: N of BN-Adapt; beta: SHOT; supports: filter K of T3A; iterations: EM;
    blocks: Surgical. memo_limit: validation samples per client on which MEMO chooses, None for all."""

    lr: tuple[float, ...] = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
    prior: tuple[int, ...] = (1, 4, 16, 64, 256)
    beta: tuple[float, ...] = (0.0, 0.1, 0.3)
    supports: tuple[int, ...] = (-1, 1, 5, 20, 100)
    iterations: tuple[int, ...] = (1, 2, 5, 10, 20)
    blocks: tuple[str, ...] = ("block1", "block2", "block3", "block4", "head")
    memo_limit: int | None = None


GRIDS, RATES = Grids(), Rates()


def tuned(
    train: TrainMethod, candidates: Sequence[Adapter], base: Personalizer | None = None, *, limit: int | None = None, costly: bool = False
) -> Recipe:
    """The candidate that does best on the source clients' validation parts."""
    return Recipe(train, Select(tuple(candidates), base, limit), Selected(tuple(candidates)), costly)


def recipes(
    train: TrainMethod = FEDAVG, *, rates: Rates = RATES, batch_size: int = 20, grids: Grids = GRIDS, stem: bool = True
) -> dict[str, Recipe]:
    """All methods of Table 1 on one way of global training; batch_size: of test batches; stem: of ``BNAdapt``, False
    for ResNet-50, whose first norm the published code leaves as it is."""
    b, g = batch_size, grids
    return {
        "NoAdapt": Recipe(train),
        "BN-Adapt": tuned(train, [BNAdapt(b, n, stem) for n in g.prior]),
        "SHOT": tuned(train, [SHOT(lr, beta, b) for beta in g.beta for lr in g.lr]),
        "Tent": tuned(train, [Tent(lr, b) for lr in g.lr]),
        "T3A": tuned(train, [T3A(k, b) for k in g.supports]),
        "MEMO": tuned(train, [MEMOCrop(lr) for lr in g.lr], limit=g.memo_limit, costly=True),
        "EM": tuned(train, [EM(n, b) for n in g.iterations]),
        "BBSE": tuned(train, [BBSE(how, b) for how in ("hard", "soft")], Confusion()),
        "Surgical": tuned(train, [Surgical(block, lr, b) for block in g.blocks for lr in g.lr]),
        "ATP-batch": Recipe(train, rates, ATP(batch_size=b)),
        "ATP-online": Recipe(train, rates, ATP(online=True, batch_size=b)),
    }


RECIPES = recipes()
