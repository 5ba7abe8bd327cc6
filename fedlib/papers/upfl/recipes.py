"""UPFL's methods by their published names, with the rates of its appendix table 4 for each data set.

Two cells of that table are doubtful and followed all the same: FedTTA-Prox has the same rates on CIFAR-10 and FEMNIST, and on MNIST an
adaptation rate ten times below FedTTA's. ODPFL-HN's rates on CIFAR-100 are absent from the print; CIFAR-10's stand in. FedTTA++ shares
FedTTA-Prox's training, as only its patience is printed.
"""

from collections.abc import Sequence
from importlib.resources import files

import pandas as pd

from fedlib.adapt.fedadg import FedADGPredict
from fedlib.adapt.fedmd import Newcomer
from fedlib.adapt.fedsr import FedSRPredict
from fedlib.adapt.fedtta import FedTTA as FedTTAStep
from fedlib.adapt.fedtta import FedTTAPlus
from fedlib.adapt.odpfl_hn import ODPFLWrite
from fedlib.adapt.pfl import PFLEnsemble, PFLSampled
from fedlib.adapt.whole_client import TentAll
from fedlib.core import Adapter, NoAdapt, Recipe, TrainMethod
from fedlib.data import about
from fedlib.train.afl import AFL
from fedlib.train.fedadg import FedADG
from fedlib.train.fedavg import FedAvg
from fedlib.train.fedmd import SIZES, FedMD
from fedlib.train.fedper import FedPer
from fedlib.train.fedprox import FedProx
from fedlib.train.fedsr import FedSR
from fedlib.train.fedtta import FedTTA, Rates
from fedlib.train.gma import GMA
from fedlib.train.hetero import HeteroFedTTA, HeteroTent
from fedlib.train.odpfl_hn import ODPFLHN
from fedlib.train.scaffold import SCAFFOLD

# FedADG's features where UPFL's appendix has another number than the network (128 on MNIST, 512 elsewhere).
FEATURES = {"mnist": 128, "femnist": 512}
# Of HeteroFedTTA's base logits.
STRENGTHS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def recipes(dataset: str = "cifar10", *, own: bool = True, widths: tuple[int, int] = (4096, 1024)) -> dict[str, Recipe]:
    """The fourteen methods in the order of the print.

    own: PFL-Ensemble scores training clients on their own model (main table) and not on the ensemble (drift and concept studies); widths:
    of FedADG's generator and discriminator. Raises KeyError for a data set without rates.
    """
    family = rates_of(dataset)
    rates, features = _rates(family), FEATURES.get(family)
    plain = FedAvg(weighting="samples", lr=rates["FedAvg", "eta"])
    personal = FedPer(lr=rates["PFL-Sampled", "eta"])
    proximal = FedTTA(_meta(rates, "FedTTA-Prox"), mu=rates["FedTTA-Prox", "mu"])
    inner = rates["FedTTA-Prox", "eta_inner"]
    stages: dict[str, tuple[TrainMethod, Adapter]] = {
        "FedAvg": (plain, NoAdapt()),
        "FedProx": (FedProx(rates["FedProx", "mu"], rates["FedProx", "eta"]), NoAdapt()),
        "SCAFFOLD": (SCAFFOLD(rates["SCAFFOLD", "eta_g"], rates["SCAFFOLD", "eta_l"]), NoAdapt()),
        "AFL": (AFL(rates["AFL", "gamma_lambda"], rates["AFL", "gamma_omega"]), NoAdapt()),
        "GMA": (GMA(rates["GMA", "tau"], rates["GMA", "eta_g"], "samples", rates["GMA", "eta_l"], zero_sign=0), NoAdapt()),
        "FedADG": (FedADG(lr=rates["FedADG", "eta_f"], widths=widths, features=features), FedADGPredict(features)),
        "FedSR": (FedSR(rates["FedSR", "alpha_l2r"], rates["FedSR", "alpha_cmi"], rates["FedSR", "eta"]), FedSRPredict()),
        "PFL-Sampled": (personal, PFLSampled()),
        "PFL-Ensemble": (personal, PFLEnsemble(own)),
        "ODPFL-HN": (ODPFLHN(*(rates["ODPFL-HN", f"eta_{part}"] for part in ("local", "encoder", "hn"))), ODPFLWrite()),
        "Tent": (plain, TentAll(rates["Tent", "eta"])),
        "FedTTA": (FedTTA(_meta(rates, "FedTTA")), FedTTAStep(rates["FedTTA", "eta_inner"])),
        "FedTTA-Prox": (proximal, FedTTAStep(inner)),
        "FedTTA++": (proximal, FedTTAPlus(inner, int(rates["FedTTA++", "patience"]))),
    }
    return {name: Recipe(train, None, adapt) for name, (train, adapt) in stages.items()}


def rates_of(dataset: str) -> str:
    """The printed data set whose rates a data set takes: of copies and parts its own, of the embedded digits and a user's CIFAR-10."""
    record = about(dataset)
    return record.printed or ("cifar10" if record.small or record.own else dataset)


def hetero(strengths: Sequence[float] = STRENGTHS, networks: tuple[str, ...] = SIZES, batch_size: int = 100) -> dict[str, Recipe]:
    """Clients with networks of three sizes (section 4.6): ``Tent``, and ``HeteroFedTTA:<lambda>`` for every strength of the base logits.

    batch_size: of public images.
    """
    learners = {"Tent": HeteroTent()} | {f"HeteroFedTTA:{s:g}": HeteroFedTTA(strength=s) for s in strengths}
    methods = {name: FedMD(one, networks, batch_size) for name, one in learners.items()}
    return {name: Recipe(method, None, Newcomer(method)) for name, method in methods.items()}


def hyperparameters() -> pd.DataFrame:
    """Appendix table 4 by ``method, dataset, parameter``; ``value`` is text as printed, ``note`` tells where it stands."""
    return pd.read_csv(files(__package__) / "hyperparameters.csv", dtype=str, keep_default_na=False)


def printed_rates() -> pd.DataFrame:
    """Appendix table 4: methods and their rates down, printed data sets across; empty where nothing is printed."""
    table = hyperparameters().set_index(["method", "parameter", "dataset"])["value"]
    return table.unstack("dataset", fill_value="", sort=False)


def _meta(rates: dict[tuple[str, str], float], method: str) -> Rates:
    return Rates(*(rates[method, f"eta_{step}"] for step in ("inner", "outer", "adapt")))


def _rates(dataset: str) -> dict[tuple[str, str], float]:
    """Numbers of the appendix table by (method, parameter)."""
    table = hyperparameters()
    numbers = table[table["value"].str.fullmatch(r"[\d.]+")]
    found = {
        name: {(row.method, row.parameter): float(row.value) for row in numbers[numbers["dataset"] == name].itertuples()}
        for name in ("cifar10", dataset)
    }
    if not found[dataset]:
        raise KeyError(f"UPFL prints no rates for {dataset!r}; it has them for {', '.join(sorted(set(table['dataset'])))}")
    missing = {key: value for key, value in found["cifar10"].items() if key[0] == "ODPFL-HN" and dataset == "cifar100"}
    return missing | found[dataset]
