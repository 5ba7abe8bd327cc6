"""Settings as JSON data, and back: what a trained federation says of the setting that it was trained in."""

import dataclasses
import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedlib import protocols
from fedlib.cache.store import describe
from fedlib.core import Local, Schedule
from fedlib.setting import Setting


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
    modules = [importlib.import_module(f"fedlib.protocols.{m.name}") for m in pkgutil.iter_modules(protocols.__path__)]
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
