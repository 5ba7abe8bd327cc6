"""FedTHE's Figures 6 and 7 on a small stand-in: LP, FT and LP-FT on a network that the kit pretrains itself."""

from dataclasses import replace

from fedlib.core import Local, Recipe, Schedule
from fedlib.paper import Block
from fedlib.papers.fedthe.settings import Parameters
from fedlib.personalize.transfer import Transfer
from fedlib.protocols.downstream import PRETRAINING, Downstream
from fedlib.setting import Setting
from fedlib.tools.names import counted
from fedlib.train.fedavg import FedAvg

EPOCHS = 8
PHASE = Local(lr=0.1, batch_size=32, epochs=2)
RECIPES = {
    "LP": Recipe(FedAvg(), Transfer(probe_epochs=EPOCHS)),
    "FT": Recipe(FedAvg(), Transfer(tune_epochs=EPOCHS)),
    "LP-FT": Recipe(FedAvg(), Transfer(probe_epochs=EPOCHS // 2, tune_epochs=EPOCHS // 2)),
}


def setting(p: Parameters, strong: bool) -> Setting:
    """Pretraining on three domains (strong: Figure 6) or, for a quarter of the rounds, on one (weak: Figure 7)."""
    domains, rounds = (PRETRAINING, p.rounds) if strong else (PRETRAINING[1:2], max(2, p.rounds // 4))
    schedule = Schedule(rounds, PHASE, replace(PHASE, lr=0.05))
    return Setting("strong" if strong else "weak", Downstream(domains), "cnn", schedule)


def strong(p: Parameters) -> list[Block]:
    return [Block([setting(p, True)], RECIPES)]


def weak(p: Parameters) -> list[Block]:
    return [Block([setting(p, False)], RECIPES)]


def said(p: Parameters) -> str:
    """What was pretrained on what, and what every result of the study has to carry."""
    strong, weak = setting(p, True), setting(p, False)
    return (
        "stand-in for a pretrained ResNet-50 on CIFAR-10: cnn on digits5, pretrained with labels on "
        f"{', '.join(strong.protocol.pretraining)} ({strong.schedule.rounds} rounds; weak: {', '.join(weak.protocol.pretraining)}, "
        f"{weak.schedule.rounds} rounds), then {EPOCHS} epochs on plain; domain = lowres; "
        f"{counted(len(p.seeds), 'seed')}, {p.origin}"
    )
