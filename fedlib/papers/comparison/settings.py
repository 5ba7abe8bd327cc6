"""The bench on which the methods of all five papers are compared: protocols, who runs where and why not, networks, schedule.

One data set, one network and one schedule on nine protocols. Two protocols need domains, which the data set may lack: they take a relative
of it. FedTTA needs a network without batch norm; it and its baseline have group norm in its place (on the digits a dense network), and
steps as FedTTA's. The result of a method is its final model.

Every method has the same clients, the same labelled images (``fedlib.protocols.validated``) and the same number of federated training steps
times samples: a training that passes through an image twice per step (two views, a step within a step) has half the rounds. What a personal
part learns from these images comes on top, as its paper has it: FedTHE's and BTFL's heads an epoch after every round, TTT's whole network
one of two objectives, fine-tuning one epoch after the last.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from fedlib.common import LABELLED, Common, listed, own_path
from fedlib.core import FINAL, Clients, Local, Recipe, Schedule, TrainMethod
from fedlib.data import about as about_data
from fedlib.data import counts, shown
from fedlib.models import MODELS
from fedlib.paper import Block
from fedlib.papers.comparison.candidates import candidates
from fedlib.papers.comparison.recipes import CUT, METHODS, PERSONAL, baseline, passes, recipes, without_batch_norm
from fedlib.papers.fedicon.recipes import FEDAVG, views_of
from fedlib.personalize.rates import Rates
from fedlib.protocols.brfl import BRFL
from fedlib.protocols.btgfl import BTGFL
from fedlib.protocols.fedicon import Domains
from fedlib.protocols.ttpfl import SHIFTS, TTPFL
from fedlib.protocols.upfl import UPFL
from fedlib.protocols.validated import Validated
from fedlib.setting import Setting
from fedlib.tools.names import check_name, counted

REAL = ("cifar10", "digits5", "pacs")  # printed data sets
LOADED = {"pacs": "pacs64"}  # at a size that is not the papers'
DATASETS = ("digits", "cifar10", "cifar10_jpeg")
DOMAINS = ("digits5", "digits5_fedbn", "pacs")

# Protocol -> what its clients bring: labelled images, or nothing (they are new).
LABELS, NEW = "labels", "new"
PROTOCOLS = {
    "BRFL": LABELS,
    "BTGFL": LABELS,
    **{f"TTPFL {shift}": NEW for shift in SHIFTS},
    "UPFL new clients": NEW,
    "FedICON covariate": LABELS,
    "FedICON attribute": LABELS,
    "FedICON domain": LABELS,
}
OFFERS = {LABELS: LABELLED, NEW: ("validation",)}
# Test columns of a protocol where not all are shown, and one name for columns that are named after domains.
COLUMNS = {"UPFL new clients": ("test",), "FedICON attribute": ("natural",)}
SHOWN = {"FedICON covariate": "corrupted", "FedICON domain": "unseen domain"}

# Why a method does not run on clients of a kind. What is not here runs.
_LABELS = "learns a personal part from the client's own labels, and new clients bring none"
REASONS = {
    NEW: dict.fromkeys(PERSONAL, _LABELS)
    | {
        "kNN-Per": "its memory holds the client's own labelled images, and new clients bring none",
        "TTT": "tunes model and rotation head on the client's own training images, and new clients bring none",
        "EATA": "its regulariser needs the client's own training images, and new clients bring none",
    },
    LABELS: {},
}
LEFT_OUT = "left out by the parameters of this run (methods or protocols)"
CONFIDENCE = ("confidence", "right")  # of every image: how sure the answer is, and whether it is right

# What a run in profile smoke shows where the parameters do not say: the others train or choose several times over.
CHEAP = ["curve", "heatmap", "beside", "tests", "accuracies", "cost", "ranks", "differences", "answer", "advice"]
# Of profile small, what says who leads where, and on one protocol of each paper: it trains these until they stop improving.
MAIN = ["curve", "heatmap", "tests", "accuracies", "ranks", "differences", "answer", "advice"]
EACH = ["BRFL", "BTGFL", "TTPFL hybrid", "UPFL new clients", "FedICON covariate"]
_DIGITS = {
    "dataset": "digits",
    "domains": "digits5",
    "model": "fedicon_cnn_small",
    "plain_model": "mlp",
    "clients": 10,
    "domain_clients": 1,
    # ATP's on the digits: a fifth of the published step, which throws this network's rates off at once (``causes``).
    "rate_lr": 0.02,
}
# population: clients of TTPFL and UPFL; pool: images of TTPFL; images: for training, per domain; timed_samples: of the timed stream.
PROFILES = {
    "smoke": _DIGITS
    | {"clients": 8, "population": 20, "pool": 600, "images": 100, "rounds": 4, "local_epochs": 2, "classifier_rounds": 1, "rate_rounds": 5}
    | {"lr": 0.02, "momentum": 0.9, "contrast_lr": 0.02, "seeds": [0], "costly_samples": 1, "timed_samples": 40, "tables": CHEAP},
    "small": _DIGITS
    | {"population": 20, "pool": 1200, "images": 100, "rounds": 60, "local_epochs": 2, "classifier_rounds": 3, "rate_rounds": 30}
    | {"lr": 0.02, "momentum": 0.9, "contrast_lr": 0.02, "seeds": [0, 1, 2], "costly_samples": 20, "timed_samples": 100}
    | {"tables": MAIN, "protocols": EACH},
    "paper": {"dataset": "cifar10", "domains": "digits5_fedbn", "model": "fedicon_cnn", "plain_model": "fedicon_cnn_gn", "clients": 20}
    | {"domain_clients": 1}
    | {"population": 100, "pool": 0, "images": 743, "rounds": 100, "local_epochs": 5, "classifier_rounds": 5, "rate_rounds": 200}
    | {"lr": 0.01, "momentum": 0.9, "contrast_lr": 0.005, "rate_lr": 0.1, "seeds": [0, 1, 2], "costly_samples": 0, "timed_samples": 1000},
}


@dataclass(frozen=True)
class Parameters(Common):
    """The parameters of ``notebooks/comparison.ipynb`` besides the common ones.

    domains: data set of the two protocols that need domains; held_out: the one that nobody trains on (None: the last); images: training
    images per domain; domain_clients: clients that share those of one; model, plain_model: network with batch norm, and without for FedTTA;
    clients: of BRFL, BTGFL and FedICON's attribute shift; population: of TTPFL and UPFL, training and new clients together, even; pool:
    images that enter TTPFL, 0 for all; lr, momentum: of training; contrast_lr, classifier_rounds: of FedICON's; rate_rounds, rate_lr: of
    learning ATP's rates; timed_samples: images of the timed stream; protocols: names, or ``all``. FedTTA's network keeps its ``lr`` of 0.1
    without momentum.
    """

    FOLLOWS = ("domains",)

    domains: str | None = None
    held_out: str | None = None
    images: int | None = None
    domain_clients: int | None = None
    model: str | None = None
    plain_model: str | None = None
    population: int | None = None
    pool: int | None = None
    momentum: float | None = None
    contrast_lr: float | None = None
    classifier_rounds: int | None = None
    rate_rounds: int | None = None
    rate_lr: float | None = None
    timed_samples: int | None = None
    protocols: list[str] | str | None = None

    def __post_init__(self):
        super().__post_init__()
        for name, valid in {"dataset": DATASETS, "domains": DOMAINS, "model": MODELS, "plain_model": MODELS}.items():
            if (value := getattr(self, name)) is not None and (name in ("model", "plain_model") or own_path(value) is None):
                check_name(value, valid, name)
        if self.held_out is not None and self.domains is not None:
            check_name(self.held_out, about_data(self.domains).domains, "domain")
        self.check_methods(METHODS)
        for name in self.own:
            candidates(name, self.extras[name].recipe)
        for name in listed(self.protocols):
            check_name(name, PROTOCOLS, "protocol")
        self.check_least(images=1, domain_clients=1, population=2, pool=0, classifier_rounds=1, rate_rounds=1, timed_samples=1)
        self.check_positive("contrast_lr", "rate_lr")
        if None not in (self.rounds, self.classifier_rounds) and self.rounds <= self.classifier_rounds and self.allows("FedICON"):
            raise ValueError(
                f"parameter rounds must be more than classifier_rounds ({self.classifier_rounds}), got {self.rounds}: "
                "take more rounds, fewer classifier_rounds, or methods without FedICON"
            )
        if self.momentum is not None and not 0 <= self.momentum < 1:
            raise ValueError(f"parameter momentum must lie in [0, 1), got {self.momentum}")
        if self.population is not None and self.population % 2:
            raise ValueError(f"parameter population must be even, since half of UPFL's clients train; got {self.population}")

    def clients_of(self) -> dict[str, Validated]:
        """Protocol by name, those that ``protocols`` allows and the data sets have the images for."""
        natural = {"natural_size": 300 if about_data(self.dataset).small else 2000}
        brfl = BRFL(self.dataset, self.clients, alpha=0.1, corruption_draws=1, **natural)
        names = about_data(self.domains).domains
        held_out = self.held_out or ["", *names][-1]
        shared = {"n_train": self.images}
        apart = {"n_clients": max(1, len(names) - 1) * self.domain_clients} if self.domain_clients > 1 else {}
        joint = {"n_clients": max(1, len(names)) * self.domain_clients} if self.domain_clients > 1 else {}
        table = {
            "BRFL": brfl,
            # Rates, confusions and choices come from the labels of all clients' validation parts.
            "BTGFL": BTGFL(self.dataset, self.clients, alpha=0.1, others="test", **natural),
            **{f"TTPFL {shift}": TTPFL(self.dataset, shift, self.population, images=self.pool) for shift in SHIFTS},
            "UPFL new clients": UPFL(self.dataset, n_clients=self.population),
            "FedICON covariate": Domains(self.domains, **shared, **joint),
            "FedICON attribute": replace(brfl, alpha=1.0),
            "FedICON domain": Domains(self.domains, "domain", held_out, **shared, **apart),
        }
        lacking = self.lacking()
        chosen = [name for name in table if name in (self.protocols or table) and name not in lacking]
        if not chosen:
            raise ValueError(f"no protocol is left of {self.protocols}: {'; '.join(dict.fromkeys(lacking.values()))}")
        return {name: Validated(table[name], shifted=PROTOCOLS[name] == LABELS) for name in chosen}

    def lacking(self) -> dict[str, str]:
        """Protocols that need what the data sets do not have, with the reason."""
        domains, natural = about_data(self.domains).lacks("domains"), about_data(self.dataset).lacks("natural shift")
        found = {"FedICON covariate": domains, "FedICON attribute": natural, "FedICON domain": domains}
        return {protocol: reason for protocol, reason in found.items() if reason}

    def table(self, protocol: str, plain: bool = False, **rates) -> dict[str, Recipe]:
        """All recipes that can run there, on the network with batch norm or without (``plain``), a user's included. rates: fields of ATP's
        ``Rates`` in place of the bench's."""
        if plain:
            return without_batch_norm(self.dataset)
        # A quarter of the source clients, as published.
        if protocol in SHOWN:
            # The clients of a domain that is held out train nothing.
            sources = (len(about_data(self.domains).domains) - (protocol == "FedICON domain")) * self.domain_clients
        elif protocol.startswith("UPFL"):
            sources = self.population // 2
        else:
            sources = round(0.8 * self.population) if PROTOCOLS[protocol] == NEW else self.clients
        own = Rates(**{"rounds": self.rate_rounds, "lr": self.rate_lr, "cohort": max(1, sources // 4)} | rates)
        views = views_of(self.domains if protocol in SHOWN else self.dataset)
        options = {"views": views, "classifier_rounds": self.classifier_rounds, "contrast_lr": self.contrast_lr, "rates": own}
        return recipes(PROTOCOLS[protocol] != NEW, **options) | self.beside(self.model, OFFERS[PROTOCOLS[protocol]], FEDAVG)

    def recipes(self, protocol: str, **rates) -> dict[str, Recipe]:
        """What runs on the network with batch norm: the methods that ``methods`` allows and ``REASONS`` does not exclude, and the
        baselines that their gains need. rates: as in ``table``."""
        return self._chosen(protocol, self.table(protocol, **rates))

    def plain_recipes(self, protocol: str) -> dict[str, Recipe]:
        """What runs on the network without batch norm."""
        return self._chosen(protocol, self.table(protocol, plain=True))

    def _chosen(self, protocol: str, table: Mapping[str, Recipe]) -> dict[str, Recipe]:
        names = [name for name in table if self.allows(name) and name not in REASONS[PROTOCOLS[protocol]]]
        # One's own on cut streams count against no adaptation on the same images.
        needed = {*names, *map(baseline, names), *(CUT for name in names if name in self.own and table[name].costly)}
        return {name: recipe for name, recipe in table.items() if name in needed}

    def setting(self, protocol: str, plain: bool = False, clients: Clients | None = None, train: TrainMethod | None = None) -> Setting:
        """A protocol's clients (or others in their place) with one of the two networks and the bench's schedule, which has the rounds
        that ``train`` can make of the bench's steps times samples."""
        local = self.local(Local(lr=self.lr, momentum=self.momentum, batch_size=32, epochs=self.local_epochs))
        if plain:
            # FedTTA's steps are clipped and, without momentum, larger.
            local = replace(local, lr=0.1, momentum=0.0, weight_decay=1e-4, clip=10.0)
        schedule = Schedule(self._rounds(train), local, replace(local, epochs=1))
        return Setting(protocol, clients or self.clients_of()[protocol], self.plain_model if plain else self.model, schedule)

    def _rounds(self, train: TrainMethod | None) -> int:
        once = getattr(train, "classifier_rounds", 0)  # in which an image is seen once
        return self.rounds if train is None else once + max(1, (self.rounds - once) // passes(train))

    def blocks(
        self,
        protocol: str,
        table: Mapping[str, Recipe],
        plain: bool = False,
        clients: Clients | None = None,
        what: str = "",
        *,
        seeds: Sequence[int] | None = None,
        **request,
    ) -> list[Block]:
        """The final models of ``table``, in parts that share a schedule. what: is filed beside the protocol; seeds: other than the run's;
        request: of the block, besides or in place of the usual."""
        parts: dict[Setting, dict[str, Recipe]] = {}
        for name, recipe in table.items():
            parts.setdefault(self.setting(protocol, plain, clients, recipe.train), {})[name] = recipe
        request = {"rounds": (FINAL,), "columns": COLUMNS.get(protocol), "extras": CONFIDENCE} | request
        return [Block([setting], some, request, protocol, what, optional=True, seeds=seeds) for setting, some in parts.items()]


def first(p: Parameters) -> Setting:
    """The clients that the notebook shows: of the first protocol."""
    return p.setting(next(iter(p.clients_of())))


def reason(method: str, protocol: str, p: Parameters) -> str | None:
    """Why a method, of the user's too, does not run on a protocol, None where it does."""
    kind = PROTOCOLS[protocol]
    return (REASONS[kind] | p.refused(p.model, OFFERS[kind])).get(method)


def coverage(p: Parameters) -> pd.DataFrame:
    """Methods down, a user's last, protocols across: "runs", or why not."""
    lacking, names = p.lacking(), (*METHODS, *p.own)
    table = {place: {m: lacking.get(place) or reason(m, place, p) or "runs" for m in names} for place in PROTOCOLS}
    return pd.DataFrame(table).rename_axis("method")


def reasons(p: Parameters) -> pd.DataFrame:
    """What does not run and why, in words: method, reason, protocols."""
    table = coverage(p).rename_axis(columns="protocol").stack().rename("reason").reset_index()
    table = table[table["reason"] != "runs"]
    return table.groupby(["method", "reason"], sort=False)["protocol"].agg(", ".join).reset_index()


def about(p: Parameters, cut: bool = True) -> str:
    """One line that has to stand beside every result: data, stand-ins, networks, schedule, seeds, and cut streams where methods that need
    them may be among what is shown (``cut``)."""
    chosen = set(p.clients_of())
    places = {p.dataset: "CIFAR-10"} if chosen - set(SHOWN) else {}
    places |= {LOADED.get(p.domains, p.domains): "Digit-5"} if chosen & set(SHOWN) else {}
    named = [shown(name) + ("" if counts(name, REAL) else f" (stand-in for {of})") for name, of in places.items()]
    costly = cut and any(recipe.costly for protocol in chosen for recipe in p.recipes(protocol).values())
    short = f", per-sample methods on {counted(p.costly_samples, 'image')} of each stream" if p.costly_samples and costly else ""
    # Runs of before momentum was a parameter, which ``fedlib answer`` reads, have None and trained with it.
    steps = " without momentum" if p.momentum == 0 else ""
    length = f"{counted(p.rounds, 'round')} x {counted(p.local_epochs, 'epoch')}{steps}, {counted(len(p.seeds), 'seed')}"
    plain = f" (FedTTA: {p.plain_model})" if any(p.plain_recipes(protocol) for protocol in chosen) else ""
    return f"{' and '.join(named)}, {_who(p)}, {p.model}{plain}, {length}{short}, {p.origin}"


def _who(p: Parameters) -> str:
    """How many clients there are, of the protocols that are run."""
    new = {name: p.population if PROTOCOLS[name] == NEW else p.clients for name in p.clients_of()}
    words = {name: counted(p.domain_clients, "client") + " a domain" if name in SHOWN else counted(n, "client") for name, n in new.items()}
    return " and ".join(dict.fromkeys(words.values()))
