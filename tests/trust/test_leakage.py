"""Labels of the tests, and their images while anything is learnt, are out of reach: of every method of every paper, in every protocol."""

from dataclasses import dataclass, replace

import pytest
import torch

from fedlib import federation
from fedlib.adapt.knn_per import BestMix
from fedlib.augment.transform import Transform
from fedlib.core import Benchmark, Client, Local, Samples, Schedule, Stream
from fedlib.group import Group
from fedlib.papers.atp import recipes as atp
from fedlib.papers.atp.settings import SHORT
from fedlib.papers.btfl import recipes as btfl
from fedlib.papers.fedicon import recipes as fedicon
from fedlib.papers.fedthe import recipes as fedthe
from fedlib.papers.upfl import recipes as upfl
from fedlib.personalize.rates import Rates
from fedlib.protocols.brfl import BRFL
from fedlib.protocols.brfl_imagenet import BRFLImageNet
from fedlib.protocols.btgfl import BTGFL
from fedlib.protocols.downstream import Downstream
from fedlib.protocols.fedicon import Domains
from fedlib.protocols.ttpfl import TTPFL
from fedlib.protocols.upfl import PARTITIONS, UPFL
from fedlib.setting import Request, Setting
from tests.trust import job

SIDE = 8


def noise(n, seed):
    draws = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (n, 1, SIDE, SIDE), generator=draws, dtype=torch.uint8)
    return Samples(images, torch.randint(0, 3, (n,), generator=draws))


@dataclass(frozen=True)
class Noise:
    """Four clients, the last of them without labels if ``target``; permuted: test labels in another order."""

    permuted: bool = False
    target: bool = False

    def build(self, seed, root=None):
        clients = [Client(k, noise(10, k), noise(4, 10 + k), {"test": (self._labelled(noise(5, 20 + k)),)}) for k in range(4)]
        if self.target:
            clients[3] = replace(clients[3], train=noise(0, 0), val=noise(0, 0), source=False)
        public = noise(6, 99).images
        return Benchmark(tuple(clients), Transform((0.5,), (0.25,), "none"), (1, SIDE, SIDE), tuple("abc"), "noise", public=public)

    def _labelled(self, samples):
        return replace(samples, labels=samples.labels.flip(0)) if self.permuted else samples


class Blind(Stream):
    """A stream that fails the test when an adapter asks it for anything but what a stream has."""

    def __getattr__(self, name):
        pytest.fail(f"an adapter asked its stream for {name!r}")


def without_tests(clients):
    return [replace(client, tests={}) for client in clients]


@pytest.fixture
def guarded(monkeypatch):
    """Training and personal parts get clients that have no tests at all, adapters get streams that fail when asked for labels."""
    train, fit, stream = federation.run, Group._fitted, Client.stream

    def blind(self, *arguments):
        seen = stream(self, *arguments)
        return Blind(seen.images, seen.column, seen.client, seen.draw)

    def fitted(group, *arguments):
        return fit(replace(group, benchmark=replace(group.benchmark, clients=without_tests(group.benchmark.clients))), *arguments)

    def trained(task, method, clients, *arguments, **options):
        return train(task, method, without_tests(clients), *arguments, **options)

    def guard():
        monkeypatch.setattr(Client, "stream", blind)
        monkeypatch.setattr(Group, "_fitted", fitted)
        monkeypatch.setattr(federation, "run", trained)

    return guard


def first_of_each(recipes):
    """One recipe for every kind of adapter and of personal part."""
    kinds = {(type(r.personalize), type(r.adapt)): name for name, r in reversed(recipes.items())}
    return {name: recipes[name] for name in kinds.values()}


ATP = atp.recipes(rates=Rates(rounds=1, cohort=2, batch_size=4), batch_size=4, grids=SHORT)
# An oracle's choice is made where scores meet labels; what it chooses among knows none.
ORACLE = replace(fedthe.METHODS["kNN-Per (oracle)"], oracle=BestMix("test"))
METHODS = {
    "fedthe": (fedthe.METHODS | {"kNN-Per (oracle)": ORACLE} | fedthe.interpolations("models", 3), "mlp_small", Noise()),
    "btfl": (btfl.recipes() | btfl.switches() | btfl.terms(), "mlp_small", Noise()),
    "atp": (ATP, "shallow_cnn", Noise(target=True)),
    "fedicon": (fedicon.recipes(classifier_rounds=1), "fedicon_cnn_small", Noise()),
    "upfl": (upfl.recipes("digits", widths=(6, 4)), "mlp_small", Noise(target=True)),
    "upfl, three networks": (upfl.hetero((0.5,), ("mlp_small", "mlp", "mlp_big"), batch_size=3), "mlp_small", Noise(target=True)),
}


def compared(recipes, model, protocol, guarded, folder):
    local = Local(lr=0.05, batch_size=5, epochs=1)
    setting = Setting("here", protocol, model, Schedule(2, local, local))
    request = Request(rounds=(-1,), costly_samples=2)
    rows = job.run(folder / "open", recipes, (setting,), request=request)
    guarded()
    closed = job.run(folder / "closed", recipes, (replace(setting, protocol=replace(protocol, permuted=True)),), request=request)
    job.assert_same_cache(folder / "open", folder / "closed")
    assert not rows["loss"].equals(closed["loss"])


@pytest.mark.parametrize("paper", METHODS)
def test_no_method_depends_on_test_labels_or_learns_from_test_images(paper, guarded, tmp_path):
    recipes, *rest = METHODS[paper]
    compared(first_of_each(recipes), *rest, guarded, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("paper", METHODS)
def test_no_variant_does_either(paper, guarded, tmp_path):
    compared(*METHODS[paper], guarded, tmp_path)


PROTOCOLS = {
    "BRFL": BRFL(n_clients=6, alpha=1.0, columns=("original", "ooc", "natural", "mixture"), natural_size=300),
    "BRFL, ImageNet": BRFLImageNet("digits", n_clients=6),
    "BTGFL": BTGFL(n_clients=6, alpha=1.0, natural_size=300),
    "BTGFL, domains": BTGFL("digits5", n_clients=6, alpha=1.0),
    **{f"TTPFL, {shift}": TTPFL(shift=shift, n_clients=20) for shift in ("label", "feature", "hybrid")},
    "TTPFL, domains": TTPFL("digits5", n_clients=4, held_out="fonts"),
    **{f"UPFL, {partition}": UPFL(partition=partition) for partition in PARTITIONS},
    "FedICON, covariate": Domains(),
    "FedICON, domain": Domains(shift="domain", held_out="clutter"),
    "downstream": Downstream(),
}


def pixels(*parts):
    return {image.numpy().tobytes() for part in parts for image in part.images}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_no_test_image_is_in_a_training_or_validation_part(name):
    """Of any client; but UPFL's tests of training clients are their validation parts, and BTGFL's external tests draw on the validation
    parts of others, as the papers have it."""
    built = PROTOCOLS[name].build(0)
    learnt = pixels(*(client.train for client in built.clients))
    validated = pixels(*(client.val for client in built.clients))
    assert learnt
    assert not learnt & validated
    for client in built.clients:
        for column, draws in client.tests.items():
            seen = pixels(*draws)
            assert seen
            assert not seen & learnt, column
            if name.startswith("BTGFL"):
                assert not seen & pixels(client.val), column
            elif column != "validation":
                assert not seen & validated, column
    if built.public is not None:
        assert not pixels(Samples(built.public, None)) & (learnt | validated)
