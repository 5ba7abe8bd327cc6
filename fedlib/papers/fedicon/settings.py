"""FedICON's parameters by profile, and the clients and schedules of its tables and figures."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from fedlib.common import LABELLED, NONE, Common, own_path
from fedlib.core import Local, Recipe, Schedule
from fedlib.data import about as about_data
from fedlib.data import load
from fedlib.models import MODELS
from fedlib.papers.fedicon.recipes import FEDAVG, RECIPES, recipes, views_of
from fedlib.protocols.brfl import BRFL
from fedlib.protocols.fedicon import Domains
from fedlib.protocols.shifts import check_partition_seed
from fedlib.setting import Setting
from fedlib.tools.names import check_name

PRINTED = {"dataset": "digits5", "office": "office10", "attribute": "cifar10"}  # data set of each family of tables
PER_CLASS = ("office10", "pacs")  # data sets of which every domain gives 50 training images of each class
DATASETS = {
    "dataset": ("digits5", "digits5_fedbn", NONE),
    "office": ("digits5", "pacs", "office10", NONE),
    "attribute": ("digits", "cifar10", "cifar10_jpeg", NONE),
}
# Columns of a table, in the order of the domains they stand for, and the parameter that names the data set of these.
COLUMNS = {"dataset": ("MNIST", "SVHN", "USPS", "SynthDigits", "MNIST-M"), "office": ("Amazon", "Caltech", "DSLR", "Webcam")}

# images: for training, per domain of the covariate shift; counts: clients in Figure 3a; epochs: local, in Figure 3b.
_DIGITS = {
    **{"dataset": "digits5", "office": "digits5", "attribute": "digits", "model": "fedicon_cnn_small", "clients": 10, "share": 1.0},
    **{"images": 100, "rounds": 15, "local_epochs": 2, "classifier_rounds": 3, "costly_samples": 6},
    **{"lr": 0.02, "contrast_lr": 0.02, "counts": [5, 10, 20], "epochs": [1, 2, 3], "partition_seed": 7000},
}
PROFILES = {
    "smoke": _DIGITS | {"rounds": 5, "seeds": [0]},
    "small": _DIGITS | {"rounds": 100, "seeds": [0, 1, 2], "tables": ["T1", "T5"]},
    "paper": {"dataset": "digits5_fedbn", "office": "office10", "attribute": "cifar10", "model": "fedicon_cnn", "clients": 20, "share": 1.0}
    | {"images": 743, "rounds": 100, "local_epochs": 5, "classifier_rounds": 5, "seeds": [0, 1, 2], "costly_samples": 0}
    | {"lr": 0.01, "contrast_lr": 0.005, "counts": [5, 10, 20, 40, 80], "epochs": [1, 3, 5, 7, 9], "partition_seed": 7000},
}


@dataclass(frozen=True)
class Parameters(Common):
    """The parameters of ``notebooks/fedicon.ipynb`` besides the common ones.

    dataset, office, attribute: images of the three families of tables, ``none`` to leave one out; model: network; images: for training,
    per domain of ``dataset``; share: part of their images that Table 3's clients keep; partition_seed: of the draw of these clients, the
    same for every seed (7000: FedTHE's published one, on CIFAR-10 in its official order); classifier_rounds: FedICON's last rounds; lr,
    contrast_lr: rates of cross-entropy and of contrastive training; counts, epochs: points of Figure 3.
    """

    WHOLE = (NONE,)
    FOLLOWS = ("office", "attribute")

    office: str | None = None
    attribute: str | None = None
    model: str | None = None
    images: int | None = None
    share: float | None = None
    classifier_rounds: int | None = None
    contrast_lr: float | None = None
    counts: list[int] | None = None
    epochs: list[int] | None = None
    partition_seed: int | None = None

    def __post_init__(self):
        super().__post_init__()
        check_partition_seed(self.partition_seed)
        for name, valid in DATASETS.items():
            if (value := getattr(self, name)) is not None and own_path(value) is None:
                check_name(value, valid, name)
        if self.model is not None:
            check_name(self.model, MODELS, "model")
        self.check_least(images=1, classifier_rounds=1)
        self.check_positive("contrast_lr")
        for name in ("counts", "epochs"):
            given = getattr(self, name)
            if given is not None and (not given or min(given) < 1 or len(set(given)) < len(given)):
                raise ValueError(f"parameter {name} must be one or more distinct whole numbers of at least 1, got {given}")
        if self.share is not None and not 0 < self.share <= 1:
            raise ValueError(f"parameter share must lie in (0, 1], got {self.share}")
        self.check_methods(RECIPES)

    def resolved(self, profiles: Mapping[str, Mapping]) -> Self:
        """As every paper's; the profile's ``counts`` are for five domains and follow the number of a user's. Raises ValueError for others
        that the domains cannot share evenly."""
        p = super().resolved(profiles)
        many = len(p.domains_of("dataset"))
        if self.counts is None and many and about_data(p.dataset).own:
            return replace(p, counts=[many * m // 5 for m in p.counts])
        if many and any(m % many for m in p.counts):
            raise ValueError(f"parameter counts must be multiples of the {many} domains of {about_data(p.dataset).shown}, got {p.counts}")
        return p

    @property
    def real(self) -> tuple[str, ...]:
        """The printed data sets whose own images count: on another network than the paper's none does."""
        return tuple(PRINTED.values()) if self.model == PROFILES["paper"]["model"] else ()

    def absent(self, family: str) -> str:
        """Why the tables of a ``family`` (``dataset``, ``office`` or ``attribute``) do not run, "" where they do."""
        name = getattr(self, family)
        if name == NONE:
            return f"switched off by the parameter {family}"
        return about_data(name).lacks("natural shift" if family == "attribute" else "domains")

    def domains_of(self, family: str) -> tuple[str, ...]:
        """The domains that run, in the order of the printed ``COLUMNS`` for which they stand."""
        return about_data(getattr(self, family)).domains[: len(COLUMNS[family])]

    def own_columns(self, family: str) -> dict[str, str]:
        """Printed columns and, where the images are a user's, the domains that stand for them."""
        return dict(zip(COLUMNS[family], self.domains_of(family), strict=False)) if about_data(getattr(self, family)).own else {}

    def recipes(self, dataset: str, names: Sequence[str], offers: Collection[str] = LABELLED) -> dict[str, Recipe]:
        """Those of ``names`` that ``methods`` allows, with the views that suit ``dataset`` and the profile's schedule; a user's
        where clients that bring ``offers`` have what they need."""
        table = recipes(views_of(dataset), classifier_rounds=self.classifier_rounds, lr=self.contrast_lr)
        table = {n: recipe for n, recipe in table.items() if self.allows(n)} | self.beside(self.model, offers, FEDAVG)
        return {name: table[name] for name in names if name in table}


def _setting(p: Parameters, label: str, protocol, momentum: float = 0.9) -> Setting:
    local = p.local(Local(lr=p.lr, momentum=momentum, batch_size=32, epochs=p.local_epochs))
    return Setting(label, protocol, p.model, Schedule(p.rounds, local, replace(local, epochs=1)))


def _protocol(p: Parameters, dataset: str, **fields) -> Domains:
    images = {"n_train": 50, "per_class": True, "n_test": None} if dataset in PER_CLASS else {"n_train": p.images}
    return Domains(dataset, **images | fields)


def first(p: Parameters) -> Setting:
    """The clients that the notebook shows: those of the first family of tables that runs."""
    runs = [clients for family, clients in FAMILIES.items() if not p.absent(family)]
    if not runs:
        why = ", ".join(dict.fromkeys(map(p.absent, FAMILIES)))
        raise ValueError(f"nothing to run: {why}. FedICON's shifts need domains (images in <domain>/<class>/) or a natural shift")
    return runs[0](p)[0]


def covariate(p: Parameters, label: str = "covariate shift", **fields) -> list[Setting]:
    """Tables 1, 4 and 5, Figures 1b and 3; ``fields``: further ones of ``Domains``."""
    if len(about_data(p.dataset).domains) > (most := len(COLUMNS["dataset"])):
        fields = {"domains": most} | fields
    return [_setting(p, label, _protocol(p, p.dataset, **fields))]


def office(p: Parameters) -> list[Setting]:
    """Table 4's second data set under covariate shift: four domains."""
    return [_setting(p, "covariate shift", _protocol(p, p.office, domains=len(COLUMNS["office"])))]


def held_out(p: Parameters) -> list[Setting]:
    """Table 2: one setting for every domain that is left out, labelled by the column it stands for."""
    fields = {"domains": len(COLUMNS["office"]), "shift": "domain"}
    pairs = zip(COLUMNS["office"], p.domains_of("office"), strict=False)
    return [_setting(p, column, _protocol(p, p.office, held_out=domain, **fields)) for column, domain in pairs]


def dirichlet(p: Parameters) -> list[Setting]:
    """Table 3: BRFL's clients at two concentrations. FedTHE's recipe, whose numbers the paper repeats, has no momentum."""
    small = about_data(p.attribute).small
    fields = {"columns": ("original", "corrupted", "natural"), "corruption_draws": 1, "natural_size": 300 if small else 2000}
    fields |= {"train_size": p.share, "test_size": p.share, "partition_seed": p.partition_seed}
    clients = [BRFL(p.attribute, p.clients, alpha, **fields) for alpha in (0.1, 1.0)]
    return [_setting(p, f"Dir({c.alpha})", c, momentum=0.9 if small else 0.0) for c in clients]


# Parameters that name the data set of a family of tables -> its clients.
FAMILIES = {"dataset": covariate, "office": office, "attribute": dirichlet}


def single_sources(p: Parameters) -> list[Setting]:
    """Figure 1b: one client with a part of one domain each time, five clients with such parts of one domain each time, and five with one
    domain each; parts of equal size."""
    names = p.domains_of("dataset")
    part = min(p.images, _fewest(p) // len(names)) if about_data(p.dataset).small or about_data(p.dataset).own else p.images
    single = [s for d in names for s in covariate(p, d, only=d, n_clients=1, n_train=part)]
    alike = [s for d in names for s in covariate(p, f"{d} x {len(names)}", only=d, n_clients=len(names), n_train=part * len(names))]
    return [*single, *alike, *covariate(p, "heterogeneous", n_train=part)]


def _fewest(p: Parameters) -> int:
    """Training images of the domain that has the fewest."""
    data = load(p.dataset, p.data_root)
    train = data.groups if data.is_test is None else data.groups[~data.is_test]
    # Without an official test part, a fifth becomes one.
    return int(np.bincount(train).min() * (0.8 if data.is_test is None else 1))


def counts(p: Parameters) -> list[Setting]:
    """Figure 3a: the same images with more and more clients."""
    return [s for m in p.counts for s in covariate(p, str(m), n_clients=m)]


def epochs(p: Parameters) -> list[Setting]:
    """Figure 3b: more and more local epochs."""
    return [s for e in p.epochs for s in covariate(replace(p, local_epochs=e), str(e))]
