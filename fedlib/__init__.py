"""fedlib: five papers on federated learning under test-time distribution shift, on a common benchmark.

Everything a notebook needs is here, and is loaded on first use. ``fedlib.methods()`` lists the methods.

>>> import fedlib
>>> setting = fedlib.Setting("digits", fedlib.BRFL("digits", n_clients=4), "cnn", fedlib.Schedule(rounds=1, local=fedlib.Local(epochs=1)))
>>> rows = fedlib.run([setting], fedlib.recipes_of("fedthe", "FedAvg", "T3A"), seeds=[0], cache=None)
>>> list(fedlib.table(rows).index)
['FedAvg', 'T3A']
"""

import importlib

__version__ = "0.3.0"

_HOMES = {
    "fedlib.experiment": ("run", "look"),
    "fedlib.setting": ("Setting", "Request"),
    "fedlib.stages.engine": ("Engine",),
    "fedlib.start": ("pretrained",),
    "fedlib.extras": ("register",),
    "fedlib.commands.pairs": ("pairs",),
    "fedlib.catalogue": ("methods", "recipes_of", "table", "bars"),
    "fedlib.data": ("load", "Dataset"),
    "fedlib.core": (
        *("Client", "Clients", "Samples", "Stream", "Benchmark", "Local", "Schedule", "Task", "State", "Server"),
        *("TrainMethod", "Personalizer", "Adapter", "Output", "NoAdapt", "Recipe"),
    ),
    "fedlib.protocols": ("BRFL", "BTGFL", "TTPFL", "UPFL", "Domains"),
    "fedlib.augment.transform": ("Transform",),
    "fedlib.models": ("Net",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
__all__ = sorted(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'fedlib' has no attribute {name!r}; it offers {', '.join(__all__)}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
