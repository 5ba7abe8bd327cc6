"""The sixth paper's parameters by profile, and the setting that is run for its printed block."""

from dataclasses import dataclass

from fedlib.common import Common
from fedlib.core import Local, Recipe, Schedule
from fedlib.protocols.brfl import BRFL
from fedlib.setting import Setting

from .recipes import RECIPES

REAL = ("cifar10",)  # printed data sets
MODEL = "mlp"

PROFILES = {
    "smoke": {"dataset": "digits", "clients": 4, "rounds": 5, "local_epochs": 2, "alpha": 0.1, "seeds": [0]},
    "small": {"dataset": "digits", "clients": 10, "rounds": 10, "local_epochs": 2, "alpha": 0.1, "seeds": [0, 1, 2]},
    "paper": {"dataset": "cifar10", "clients": 20, "rounds": 100, "local_epochs": 5, "alpha": 0.1, "seeds": [0, 1, 2]},
}


@dataclass(frozen=True)
class Parameters(Common):
    """The parameters of ``sixth.ipynb`` besides the common ones. alpha: Dirichlet parameter, the smaller the more clients differ."""

    alpha: float | None = None

    def __post_init__(self):
        super().__post_init__()
        self.check_methods(RECIPES)
        self.check_positive("alpha")

    def recipes(self) -> dict[str, Recipe]:
        """The paper's methods that ``methods`` allows, and one's own."""
        return {name: r for name, r in RECIPES.items() if self.allows(name)} | self.beside(MODEL)


def setting(p: Parameters) -> Setting:
    local = p.local(Local(lr=0.1, batch_size=16, epochs=p.local_epochs))
    return Setting(f"Dir({p.alpha})", BRFL(p.dataset, n_clients=p.clients, alpha=p.alpha), MODEL, Schedule(p.rounds, local))
