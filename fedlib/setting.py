"""What is run, and what to evaluate: settings and requests."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedlib.core import RECEIVED, Clients, Schedule
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


def told_apart(settings: Sequence[Setting]) -> Sequence[Setting]:
    """``settings``. Raises ValueError where two have one label, by which rows and results tell them apart."""
    labels = [setting.label for setting in settings]
    if twice := {label for label in labels if labels.count(label) > 1}:
        raise ValueError(f"settings need different labels, got {', '.join(sorted(twice))} twice")
    return settings


@dataclass(frozen=True)
class Request:
    """What to evaluate: rounds (``RECEIVED`` in the last one, ``FINAL`` after it, or 1, 2, ...), test columns (None: all), the length at
    which the streams of costly recipes are cut (at least 1; None: not cut), and the names of per-sample quantities to return; of an output
    of several predictors also ``accuracies`` and ``losses``, one for each. Raises ValueError for what asks for nothing."""

    rounds: tuple[int, ...] = (RECEIVED,)
    columns: tuple[str, ...] | None = None
    costly_samples: int | None = None
    extras: tuple[str, ...] = ()

    def __post_init__(self):
        if self.costly_samples is not None and self.costly_samples < 1:
            raise ValueError(f"costly_samples must be at least 1, or None for whole streams; got {self.costly_samples}")
        for name, value in (("rounds", self.rounds), ("columns", self.columns), ("extras", self.extras)):
            if isinstance(value, str | int):
                raise ValueError(f"{name} takes several, got {value!r} alone: write ({value!r},)")
        if self.columns is not None and not self.columns:
            raise ValueError("no test columns were given: name some, or give None for all")
        if twice := [name for i, name in enumerate(self.columns or ()) if name in self.columns[:i]]:
            raise ValueError(f"test columns are asked for twice: {', '.join(twice)}")
