"""What is run, and what to evaluate: settings, also as JSON data, and requests."""

import dataclasses
import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fedlib.protocols
from fedlib.cache.store import describe
from fedlib.core import RECEIVED, Clients, Local, Schedule
from fedlib.models import Net


@dataclass(frozen=True)
class Setting:
    """One benchmark, network and schedule under a published name (``label``). model: a name of ``fedlib.models.MODELS``, or a class of
    your own as in ``fedlib.Net``.

    Two settings that differ in how heterogeneous the clients are; ``fedlib.run`` returns rows for both:

    >>> import fedlib
    >>> schedule = fedlib.Schedule(rounds=1, local=fedlib.Local(lr=0.1, epochs=1))
    >>> settings = [Setting(f"Dir({a})", fedlib.BRFL("digits", n_clients=4, alpha=a), "mlp_small", schedule) for a in (0.1, 1.0)]
    >>> asked = Request(columns=("original",))
    >>> rows = fedlib.run(settings, fedlib.recipes_of("fedthe", "FedAvg"), seeds=[0], request=asked, cache=None)
    >>> list(fedlib.table(rows).index)
    [('Dir(0.1)', 'FedAvg'), ('Dir(1.0)', 'FedAvg')]
    """

    label: str
    protocol: Clients
    model: str | type[Net]
    schedule: Schedule


@dataclass(frozen=True)
class Request:
    """What to evaluate: rounds (``RECEIVED`` in the last one, ``FINAL`` after it, or 1, 2, ...), test columns (None: all), the length at
    which the streams of costly recipes are cut (None: not cut), and the names of per-sample quantities to return; of an output of several
    predictors also ``accuracies`` and ``losses``, one for each."""

    rounds: tuple[int, ...] = (RECEIVED,)
    columns: tuple[str, ...] | None = None
    costly_samples: int | None = None
    extras: tuple[str, ...] = ()


def plain(setting: Setting) -> dict:
    """A setting as JSON data, all fields of its protocol named; without the place where this machine keeps a user's images."""
    protocol, model = setting.protocol, setting.model
    fields = {f.name: getattr(protocol, f.name) for f in dataclasses.fields(protocol)} if dataclasses.is_dataclass(protocol) else {}
    fields = {name: Path(v).name if isinstance(v, str) and Path(v).is_absolute() else describe(v) for name, v in fields.items()}
    return {
        "label": setting.label,
        "protocol": {"class": next(iter(describe(protocol))), "fields": fields},
        "model": model if isinstance(model, str) else describe(model),
        "schedule": dataclasses.asdict(setting.schedule),
    }


def rebuilt(told: Mapping) -> Setting | None:
    """The setting that ``plain`` has described; None for a protocol or a network that is not the package's own."""
    modules = [importlib.import_module(f"fedlib.protocols.{m.name}") for m in pkgutil.iter_modules(fedlib.protocols.__path__)]
    known = {c.__name__: c for m in modules for c in vars(m).values() if isinstance(c, type) and c.__module__ == m.__name__}
    protocol = known.get(told["protocol"]["class"])
    if protocol is None or "#" in told["model"]:
        return None

    def value(told: Any) -> Any:
        """A field as it was: a tuple, or a protocol within the protocol, told by its fields that differ from their defaults."""
        if isinstance(told, dict) and len(told) == 1 and (inner := known.get(next(iter(told)))):
            return inner(**{name: value(v) for name, v in told[next(iter(told))].items()})
        return tuple(told) if isinstance(told, list) else told

    fields = {name: value(v) for name, v in told["protocol"]["fields"].items()}
    phases = {phase: Local(**told["schedule"][phase]) for phase in ("local", "personal")}
    return Setting(told["label"], protocol(**fields), told["model"], Schedule(**told["schedule"] | phases))
