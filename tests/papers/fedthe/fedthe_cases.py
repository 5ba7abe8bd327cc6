"""FedTHE's parameters as its notebook gives them, and at their smallest."""

from dataclasses import fields

from fedlib.papers.fedthe import settings as fedthe
from fedlib.papers.fedthe.settings import Parameters

NAMESPACE = dict.fromkeys(field.name for field in fields(Parameters)) | {"split": "fixed", "jobs": 1, "device": "cpu", "cache": "cache"}


def parameters(profile="smoke", **given):
    return fedthe.parameters(NAMESPACE | {"profile": profile} | given)


def smallest(tmp_path_factory):
    """Everything at its smallest, on three clients, with a cache and an output folder of its own."""
    sizes = {"clients": 3, "network_clients": 2, "rounds": 2, "side_rounds": 1, "network_rounds": 1, "imagenet_rounds": 1}
    folders = {"cache": str(tmp_path_factory.mktemp("cache")), "output": str(tmp_path_factory.mktemp("output"))}
    cheap = ["FedAvg", "FedAvg+FT", "T3A", "FedTHE", "FedTHE:-history"]
    return parameters(**sizes, **folders, methods=cheap, local_epochs=1, long_rounds=[2, 2], costly_samples=1, side_samples=1)
