"""ATP's parameters by profile, and the step from a printed block to the settings and recipes that are run for it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedlib.common import Common, own_path
from fedlib.core import Local, Recipe, Schedule
from fedlib.data import about as about_data
from fedlib.data import check_set
from fedlib.models import MODELS, PRETRAINED
from fedlib.models.places import blocks
from fedlib.papers.atp.recipes import FEDAVG, GRIDS, RECIPES, Grids, recipes
from fedlib.personalize.rates import Rates
from fedlib.protocols.ttpfl import SHIFTS, TTPFL
from fedlib.setting import Request, Setting
from fedlib.tools.names import check_name

PROFILES = {
    "smoke": {
        **{"dataset": "digits", "cifar100": "digits", "digits5": "digits5", "pacs": "digits5", "model": "shallow_cnn"},
        **{"clients": 20, "domain_clients": 5, "images": 0, "rounds": 5, "local_epochs": 1, "rate_rounds": 5, "rate_lr": 0.02},
        **{"test_batch": 20, "seeds": [0], "costly_samples": 6},
        **{"targets": 60, "last_rounds": 1},
    },
    # On the digits of one domain all methods end at 99 %; on five domains together there is something to adapt to.
    "small": {
        **{"dataset": "digits5", "cifar100": "digits", "digits5": "digits5", "pacs": "digits5", "model": "shallow_cnn"},
        **{"clients": 40, "domain_clients": 5, "images": 1500, "rounds": 60, "local_epochs": 1, "rate_rounds": 60, "rate_lr": 0.005},
        **{"test_batch": 20, "seeds": [0, 1, 2], "costly_samples": 20},
        **{"targets": 60, "last_rounds": 3, "tables": ["T1", "F2", "T3", "F4", "F9", "A16"]},
    },
    "paper": {
        **{"dataset": "cifar10", "cifar100": "cifar100", "digits5": "digits5_fedbn", "pacs": "pacs", "images": 0},
        **{"rounds": 200, "local_epochs": 1, "seeds": [0, 1, 2, 3, 4], "costly_samples": 0},
        **{"targets": 0, "last_rounds": 1},
    },
}
# Stand in for the published grids in the other two profiles.
SHORT = Grids((1e-3, 1e-2, 1e-1), (4, 16, 64), (0.0, 0.1), (-1, 20), (2, 5), GRIDS.blocks, memo_limit=2)
SHORTEST = Grids((1e-2, 1e-1), (4, 64), (0.1,), (-1, 20), (2, 5), ("block1", "head"), memo_limit=2)
BY_PROFILE = {"smoke": SHORTEST, "small": SHORT, "paper": GRIDS}


@dataclass(frozen=True)
class Printed:
    """A part of the paper's experiments under its printed names. lr: of global training; clients: in all, or per domain."""

    dataset: str
    model: str
    lr: float
    rates: Rates
    clients: int
    sources: int
    factor: float = 16.0
    images: int = 0


BLOCKS = {
    "cifar10": Printed("cifar10", "resnet18", 0.01, Rates(200, 60), 300, 240),
    "cifar10_cnn": Printed("cifar10", "shallow_cnn", 0.1, Rates(400, 60), 300, 240),
    "cifar100": Printed("cifar100", "resnet50", 0.01, Rates(200, 60), 300, 240, factor=51.0),
    "digits5": Printed("digits5", "resnet18", 0.01, Rates(200, 10, lr=0.5, batch_size=200), 10, 40, images=7430),
    "pacs": Printed("pacs", "resnet18", 0.05, Rates(500, 21, lr=0.5, batch_size=200), 7, 21),
}
# Printed domain -> domain of the images that are used.
DOMAINS = {
    ("digits5", "digits5_fedbn"): {d: d.replace("-", "_") for d in ("MNIST", "SVHN", "USPS", "SynthDigits", "MNIST-M")},
    ("digits5", "digits5"): {"MNIST": "plain", "SVHN": "clutter", "USPS": "lowres", "SynthDigits": "fonts", "MNIST-M": "blend"},
    ("pacs", "pacs"): {"Art": "art_painting", "Cartoon": "cartoon", "Photo": "photo", "Sketch": "sketch"},
    ("pacs", "digits5"): {"Art": "blend", "Cartoon": "fonts", "Photo": "plain", "Sketch": "lowres"},
}
# What clients bring: the tested ones are new, and those that train have a validation part.
NEW = ("validation",)
BY_DOMAIN = ("digits5", "pacs")  # blocks whose clients come in domains


@dataclass(frozen=True)
class Parameters(Common):
    """The parameters of ``notebooks/atp.ipynb``. None: the profile's value, and in the paper's profile each block's own.

    cifar100, digits5, pacs: images in these data sets' places; model: network in place of the ResNets; domain_clients: per domain;
    images: of CIFAR-10 and CIFAR-100 that enter, 0 for all; targets: clients made of those that do not, 0 for the partition's own;
    last_rounds: saved models at the end of training over which results are averaged; rate_rounds, rate_lr: learning of the rates;
    test_batch: images per batch of rates and tests; lr, batch_size: of global training.
    """

    FOLLOWS = ("cifar100", *BY_DOMAIN)

    cifar100: str | None = None
    digits5: str | None = None
    pacs: str | None = None
    model: str | None = None
    domain_clients: int | None = None
    images: int | None = None
    targets: int | None = None
    last_rounds: int | None = None
    rate_rounds: int | None = None
    rate_lr: float | None = None
    test_batch: int | None = None

    def __post_init__(self):
        super().__post_init__()
        self.check_methods(RECIPES)
        for block in BY_DOMAIN:
            if (value := getattr(self, block)) is not None and own_path(value) is None:
                check_name(value, [data for of, data in DOMAINS if of == block], f"images in place of {block}")
        if self.model is not None:
            check_name(self.model, (*MODELS, *PRETRAINED), "model")
        # Of two clients both train, and none is left to adapt.
        self.check_least(clients=3, domain_clients=2, images=0, targets=0, last_rounds=1, rate_rounds=1, test_batch=2)
        self.check_positive("rate_lr")
        if self.cifar100 is not None and own_path(self.cifar100) is None:
            check_set(self.cifar100, "data set (parameter cifar100)")
        if self.rounds is not None and self.last_rounds is not None and self.last_rounds * self.save_every > self.rounds:
            # The model before the first round is none of them.
            kept = self.rounds // self.save_every
            raise ValueError(f"last_rounds={self.last_rounds} models are asked for, but a training of {self.rounds} rounds keeps {kept}")

    def asks(self, *sections: str) -> bool:
        """The picture of the clients belongs to every run."""
        return "clients" in sections or super().asks(*sections)

    def allowed(self, *names: str) -> list[str]:
        """Those of the published ``names`` that the parameter ``methods`` lets run."""
        return [name for name in names if self.allows(name)]

    @property
    def save_every(self) -> int:
        """Rounds from one saved model to the next."""
        return max(1, self.rounds // 20) if self.rounds % 20 == 0 else 1

    @property
    def last(self) -> tuple[int, ...]:
        """The models over which results are averaged, as in ``Request.rounds``: the final one (-1) and those saved before it."""
        return (-1, *(self.rounds + 1 - k * self.save_every for k in range(1, self.last_rounds)))

    def data(self, block: str) -> str:
        """Name of the images that a block uses."""
        return {"cifar100": self.cifar100, "digits5": self.digits5, "pacs": self.pacs}.get(block, self.dataset)

    def network(self, block: str) -> str:
        """Name of the network that a block uses; the ResNets start from ImageNet weights as in the paper."""
        published = BLOCKS[block].model
        return self.model if self.model and published != "shallow_cnn" else network(published)

    def published(self, block: str) -> Printed:
        """What is printed for a block, or for its images with the Shallow CNN where that takes the ResNet's place."""
        return BLOCKS["cifar10_cnn" if block == "cifar10" and self.model == "shallow_cnn" else block]

    def n_clients(self, block: str) -> int:
        """Clients of a block, in all or per domain."""
        return (self.domain_clients if block in BY_DOMAIN else self.clients) or BLOCKS[block].clients

    def n_sources(self, block: str) -> int:
        """Source clients of a block."""
        if block not in BY_DOMAIN:
            return round(0.8 * self.n_clients(block))
        return self.n_clients(block) * max(1, len(about_data(self.data(block)).domains) - 1)

    def rates(self, block: str, **changes) -> Rates:
        """How a block's rates are learned; the cohort keeps the published share of the source clients."""
        published = self.published(block)
        rates = published.rates
        cohort = max(1, round(rates.cohort / published.sources * self.n_sources(block)))
        size = {"rounds": self.rate_rounds or rates.rounds, "batch_size": self.test_batch or rates.batch_size}
        return replace(rates, **size, lr=self.rate_lr or rates.lr, cohort=cohort, **changes)

    def recipes(self, block: str = "cifar10", names: Sequence[str] | None = None, **options) -> dict[str, Recipe]:
        """A block's recipes by published name, and the user's: those of ``names`` that ``methods`` allows. options: of ``recipes``."""
        rates, grids, has = self.rates(block), BY_PROFILE[self.profile], blocks(self.network(block))
        grids = replace(grids, blocks=tuple(name for name in grids.blocks if name in has))
        # The code leaves the first batch norm of ResNet-50 out of BN-Adapt.
        stem = not self.network(block).startswith("resnet50")
        table = recipes(**{"rates": rates, "batch_size": rates.batch_size, "grids": grids, "stem": stem} | options)
        table = {n: r for n, r in table.items() if self.allows(n)} | self.beside(self.network(block), NEW, FEDAVG)
        return {n: r for n, r in table.items() if names is None or n in names}

    def settings(self, block: str = "cifar10") -> list[Setting]:
        """The three shifts of a block, or its held-out domains."""
        published, data, model = self.published(block), self.data(block), self.network(block)
        residual = model.startswith("resnet")
        # The ResNets take full batches only; batch norm after the CNN's linear layer is undefined for one image.
        local = self.local(Local(lr=published.lr if residual else 0.1, weight_decay=0.0, epochs=self.local_epochs, batch_size=20))
        local = replace(local, smallest=local.batch_size if residual else 2)
        schedule = Schedule(self.rounds, local, save_every=self.save_every)
        printed = about_data(data).printed == published.dataset
        if block in BY_DOMAIN:
            fields = {"images": published.images if printed else 0, "size": 224 if data == "pacs" and self.profile == "paper" else None}
            protocols = {
                name: TTPFL(data, n_clients=self.n_clients(block), held_out=domain, **fields)
                for name, domain in domains(block, data).items()
            }
        else:
            fields = {"n_clients": self.n_clients(block), "factor": published.factor if printed else 16.0}
            fields |= {"images": self.images, "targets": self.targets}
            protocols = {f"{shift} shift": TTPFL(data, shift, **fields) for shift in SHIFTS}
        return [Setting(label, protocol, model, schedule) for label, protocol in protocols.items()]

    def request(self, **fields) -> Request:
        """The models after the last rounds (the published code: after the last), unless others are asked for."""
        return super().request(**{"rounds": self.last} | fields)


def network(published: str) -> str:
    """The network that counts as a printed one; the ResNets start from ImageNet weights."""
    return published if published == "shallow_cnn" else f"{published}_imagenet"


def domains(block: str, data: str) -> dict[str, str]:
    """Printed domain -> domain of the images; a user's, in their order, take the places of the first ones."""
    printed = next(names for (of, _), names in DOMAINS.items() if of == block)
    return DOMAINS.get((block, data)) or dict(zip(printed, about_data(data).domains, strict=False))
