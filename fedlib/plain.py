"""Settings as JSON data, and back: what a trained federation says of the setting that it was trained in."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedlib.cache.store import describe
from fedlib.core import Local, Schedule
from fedlib.protocols import PROTOCOLS
from fedlib.protocols.validated import Validated
from fedlib.setting import Setting


def plain(setting: Setting) -> dict:
    """A setting as JSON data, all fields of its protocol named; without the place where this machine keeps a user's images."""
    protocol, model = setting.protocol, setting.model
    fields = {f.name: getattr(protocol, f.name) for f in dataclasses.fields(protocol)} if dataclasses.is_dataclass(protocol) else {}
    return {
        "label": setting.label,
        "protocol": {"class": next(iter(describe(protocol))), "fields": _without_places(describe(fields))},
        "model": model if isinstance(model, str) else describe(model),
        "schedule": dataclasses.asdict(setting.schedule),
    }


def _without_places(told: Any) -> Any:
    """JSON data with the last part of every absolute path alone."""
    if isinstance(told, dict):
        return {name: _without_places(value) for name, value in told.items()}
    if isinstance(told, list):
        return [_without_places(value) for value in told]
    return Path(told).name if isinstance(told, str) and Path(told).is_absolute() else told


def rebuilt(told: Mapping) -> Setting | None:
    """The setting that ``plain`` has described; None for a protocol or a network that is not the package's own."""
    known = {protocol.__name__: protocol for protocol in (*PROTOCOLS, Validated)}
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
