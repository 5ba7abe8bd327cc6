"""Wrong input of every kind: the message says what is wrong, where, and what to do; it comes before training, and no file is left."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedlib import reproduce
from fedlib.adapt.bn_adapt import BNAdapt
from fedlib.adapt.tent import Tent
from fedlib.cache.store import key_of
from fedlib.core import Local, Recipe, Schedule
from fedlib.data import load
from fedlib.data.dataset import Dataset
from fedlib.personalize.fine_tune import FineTune
from fedlib.personalize.fisher import WithFisher
from fedlib.personalize.select import Selected
from fedlib.protocols.brfl import BRFL
from fedlib.protocols.btgfl import BTGFL
from fedlib.protocols.fedicon import Domains
from fedlib.protocols.ttpfl import TTPFL
from fedlib.protocols.upfl import UPFL
from fedlib.setting import Request, Setting
from fedlib.stages.engine import Engine
from fedlib.train.fedavg import FedAvg
from fedlib.train.fedbn import FedBN
from tests import tiny
from tests.trust import job

SMALL = Schedule(rounds=2, local=job.LOCAL, personal=job.LOCAL)


@dataclass(frozen=True)
class Spoilt:
    """tiny's clients, one of them with ``train`` training images, ``tests`` images in every test, or all of them targets."""

    train: int = 9
    tests: int = 7
    sources: bool = True

    def build(self, seed, root=None):
        built = tiny.Protocol().build(seed, root)
        first, *others = built.clients
        tests = {name: tuple(draw.head(self.tests) for draw in draws) for name, draws in first.tests.items()}
        clients = [replace(first, train=first.train.head(self.train), tests=tests), *others]
        return replace(built, clients=tuple(replace(c, source=self.sources) for c in clients))


def running(recipes=None, *, setting=None, **options):
    """An experiment that must not begin to train."""

    def attempt(folder):
        job.run(folder / "cache", recipes or {"FedAvg": Recipe(FedAvg())}, (setting or job.SETTING,), **options)

    return attempt


def on(protocol=None, model="mlp_small", schedule=SMALL):
    return Setting("here", protocol or tiny.Protocol(), model, schedule)


def building(make):
    return lambda folder: make().build(0, str(folder / "data"))


def images(n, *shape, dtype=np.uint8):
    return np.zeros((n, *(shape or (8, 8, 3))), dtype)


def npz(**changes):
    """Load an .npz of six training and four test images after ``changes``."""

    def attempt(folder):
        arrays = {"x_train": images(6), "y_train": np.arange(6) % 3, "x_test": images(4), "y_test": np.arange(4) % 3} | changes
        np.savez(folder / "mine.npz", **{name: array for name, array in arrays.items() if array is not None})
        load(str(folder / "mine.npz"))

    return attempt


def raw(content):
    """Load a file named .npz of other content."""

    def attempt(folder):
        (folder / "mine.npz").write_bytes(content)
        load(str(folder / "mine.npz"))

    return attempt


def one_array(folder):
    with (folder / "mine.npz").open("wb") as file:
        np.save(file, images(3))
    load(str(folder / "mine.npz"))


def cut_short(folder):
    np.savez_compressed(folder / "mine.npz", x_train=np.random.default_rng(0).integers(0, 256, (9, 8, 8, 3), np.uint8))
    content = (folder / "mine.npz").read_bytes()
    (folder / "mine.npz").write_bytes(content[: len(content) // 2])
    load(str(folder / "mine.npz"))


def command(*arguments):
    return lambda folder: reproduce.main([*arguments, "-p", "output", str(folder / "out"), "-p", "cache", str(folder / "cache")])


def a_folder_that_is_a_file(folder):
    (folder / "file").write_text("")
    job.run(folder / "file", {"FedAvg": Recipe(FedAvg())})


def dataset(x, y, classes="abc", **fields):
    return lambda folder: Dataset("mine", x, y, tuple(classes), **fields)


NAN = float("nan")
LABELS = np.arange(6) % 3
THREE = BRFL(n_clients=3, alpha=10.0, columns=("original",), natural_size=100)
SELECTED = Selected((Tent(), Tent(lr=0.1)))
CASES = {
    # Parameters
    "rate zero": (lambda f: Local(lr=0.0), "lr > 0"),
    "rate no number": (lambda f: Local(lr=NAN), "lr > 0"),
    "momentum one": (lambda f: Local(momentum=1.0), "momentum < 1"),
    "batches of none": (lambda f: Local(batch_size=0), "batch_size >= 1"),
    "unknown optimiser": (lambda f: Local(optimizer="sdg"), "Did you mean 'sgd'"),
    "no rounds": (lambda f: Schedule(rounds=0), "rounds >= 1"),
    "participation above one": (lambda f: Schedule(participation=1.5), r"participation in \(0, 1\]"),
    "alpha zero": (lambda f: BRFL(alpha=0.0), "alpha > 0"),
    "alpha negative": (lambda f: BTGFL(alpha=-0.1), "alpha > 0"),
    "alpha no number": (lambda f: BRFL(alpha=NAN), "alpha > 0"),
    "train size zero": (lambda f: BRFL(train_size=0.0), "train_size and test_size must lie in"),
    "severity six": (lambda f: BRFL(severity=6), r"severity 1\.\.5"),
    "unknown split": (lambda f: BRFL(split="fix"), "Did you mean 'fixed'"),
    "unknown test column": (lambda f: BRFL(columns=("originl",)), "Did you mean 'original'"),
    "unknown shift": (lambda f: TTPFL(shift="labels"), "Did you mean 'label'"),
    "odd number of clients": (lambda f: UPFL(n_clients=9), "n_clients even"),
    "domain without name": (lambda f: Domains(shift="domain"), "held_out names the domain"),
    "unknown device": (lambda f: Engine(device="gpu"), "unknown device 'gpu'"),
    "unknown precision": (lambda f: Engine(dtype="float23"), "Did you mean 'float32'"),
    "stacks of none": (lambda f: Engine(chunk_size=0), "chunk_size >= 1"),
    "no threads": (lambda f: Engine(threads=0), "threads >= 1"),
    "a key of a function": (lambda f: key_of({"loss": key_of}), "cannot hold a function"),
    "a key of a path": (lambda f: key_of({"dataset": Path("images")}), "write it as text, 'images'"),
    "a column that is a word": (lambda f: Request(columns="original"), r"write \('original',\)"),
    "a round that is a number": (lambda f: Request(rounds=3), r"rounds takes several, got 3 alone"),
    # Requests
    "no recipes": (lambda f: job.run(f / "cache", {}), "no recipes were given"),
    "no seeds": (running(seeds=()), "no seeds were given"),
    "column that no client has": (running(request=Request(columns=("orginal",))), "Did you mean 'original'"),
    "round after the last": (running(request=Request(rounds=(9,))), r"round 9 is outside 1\.\.4"),
    "round that is not kept": (
        running(setting=on(schedule=replace(SMALL, rounds=4, save_every=2)), request=Request(rounds=(2,))),
        "not kept with save_every=2: evaluate at",
    ),
    "unknown model": (running(setting=on(model="resnet19")), "Did you mean 'resnet18'"),
    "images too small for the network": (running(setting=on(model="cnn")), "at least 8 pixels, got 6 x 6"),
    "unknown data set": (running(setting=on(BRFL("digitz"))), "Did you mean 'digits'"),
    "cache folder that is a file": (a_folder_that_is_a_file, "set another cache folder"),
    # Clients and streams
    "more clients than images": (building(lambda: TTPFL(n_clients=2000)), "cannot split 1797 samples over 2000 clients"),
    "clients with too few images": (building(lambda: BRFL(n_clients=200, alpha=10.0)), "lower n_clients=200"),
    "clients that do not fit the domains": (building(lambda: Domains(n_clients=7)), "take a multiple of 5"),
    "unknown domain": (building(lambda: Domains(shift="domain", held_out="font")), "Did you mean 'fonts'"),
    "images without domains": (building(lambda: Domains("digits")), "has no domains"),
    "absent data": (building(lambda: BRFL("cifar10_jpeg")), "no cifar10_jpeg.npz, .* or cifar10.npz in .*data.*Another folder"),
    "client without training images": (running(setting=on(Spoilt(train=0))), "client 0 has no training images"),
    "empty stream": (running(setting=on(Spoilt(tests=0))), "client 0 has no images in its test 'original'"),
    "nobody trains": (running(setting=on(Spoilt(sources=False))), "none of 3 clients takes part"),
    # Networks
    "Tent without batch norm": (running({"Tent": Recipe(FedAvg(), None, Tent())}), "Tent needs batch norm, and MLP has none"),
    "BN-Adapt without batch norm": (running({"BN": Recipe(FedAvg(), None, BNAdapt())}), "BNAdapt needs batch norm"),
    "tuned Tent without batch norm": (running({"Tent": Recipe(FedAvg(), None, SELECTED)}), "Tent needs batch norm"),
    "Fisher without batch norm": (running({"EATA": Recipe(FedAvg(), WithFisher(FineTune()))}), "WithFisher needs batch norm"),
    "FedBN without batch norm": (running({"FedBN": Recipe(FedBN())}), "FedBN needs batch norm, and MLP has none"),
    "batch of one with batch norm": (
        running(setting=on(THREE, "shallow_cnn", replace(SMALL, local=replace(job.LOCAL, batch_size=2)))),
        "client 0 has 359 training images.*batches of 2 leave one image alone.*smallest=2",
    ),
    # Files
    "labels beyond the classes": (dataset(images(6, 3, 8, 8), LABELS + 1), r"labels must lie in 0\.\.2, got 1\.\.3"),
    "images of floats": (dataset(images(6, 3, 8, 8, dtype=np.float32), LABELS), "images must be uint8"),
    "too few labels": (dataset(images(6, 3, 8, 8), LABELS[:5]), r"labels must be int64 \[6\]"),
    "file of NaN images": (npz(x_train=np.full((6, 8, 8, 3), NAN)), r"mine\.npz: x_train must be uint8.*got float64.*astype\('uint8'\)"),
    "file with channels first": (npz(x_test=images(4, 3, 8, 8)), "put the channels last"),
    "file of flat images": (npz(x_train=images(6, 192)), r"x_train must be uint8 \[N, H, W\]"),
    "file with one-hot labels": (npz(y_train=np.eye(6, dtype=int)), "y_train must be integers.*one class number per image"),
    "file with labels of floats": (npz(y_train=LABELS + 0.5), "y_train must be integers.*got float64"),
    "file with a label too few": (npz(y_train=LABELS[:5], y_test=np.arange(5) % 3), r"y_train must be integers \[6\]"),
    "file with a negative label": (npz(y_test=np.array([-1, 0, 1, 2])), "y_test must count classes from 0, got -1"),
    "file with two sizes": (npz(x_test=images(4, 9, 9, 3)), "images of one shape"),
    "file without a part": (npz(y_test=None), "no y_test; the file must hold"),
    "file of objects": (npz(y_train=np.array([{}] * 6)), r"mine\.npz: it holds Python objects, which are not read"),
    "file that is text": (raw(b"just some text"), r"mine\.npz: "),
    "file that is empty": (raw(b""), r"mine\.npz: damaged, or not an \.npz file"),
    "file that is one array": (one_array, r"mine\.npz: damaged, or not an \.npz file"),
    "file cut short": (cut_short, r"mine\.npz: damaged, or not an \.npz file"),
    "no such file": (lambda f: load(str(f / "mine.npz")), r"no \.npz file and no folder .*mine\.npz"),
    # Command line
    "unknown paper": (command("--paper", "fedth"), "Did you mean 'fedthe'"),
    "unknown parameter": (command("--paper", "atp", "-p", "round", "3"), "Did you mean 'rounds'"),
    "parameter of a wrong type": (command("--paper", "atp", "-p", "rounds", "many"), "rounds must be int or None, got 'many'"),
    "parameter out of range": (command("--paper", "upfl", "-p", "clients", "1"), "clients must be at least 2"),
    "method of another paper": (command("--paper", "atp", "-p", "methods", "[FedTHE]"), "unknown method 'FedTHE'"),
    "value that is no YAML": (command("--paper", "atp", "-p", "seeds", "[0, 1"), "error: "),
}


@pytest.mark.parametrize("case", CASES)
def test_wrong_input_is_refused_before_work_with_a_remedy(case, tmp_path, monkeypatch):
    attempt, message = CASES[case]
    monkeypatch.setattr(FedAvg, "update", lambda *arguments: pytest.fail("training began"))
    with pytest.raises((ValueError, TypeError, OSError, SystemExit), match=message):
        attempt(tmp_path)
    assert not list(tmp_path.rglob("*.safetensors"))
    assert not (tmp_path / "out").exists()


def test_divergence_leaves_only_what_is_finite(tmp_path):
    setting = on(schedule=replace(SMALL, local=replace(job.LOCAL, lr=1e20)))
    with pytest.raises(FloatingPointError, match=r"diverged: client \d, round 1.*Lower the learning rate"):
        running(setting=setting)(tmp_path)
    assert all(torch.isfinite(tensor).all() for tensor in job.tensors(tmp_path / "cache").values())


def test_clients_with_one_image_and_streams_of_one_run(tmp_path):
    """Legal, if poor: every recipe gives a row for every client and test."""
    frame = job.run(None, settings=(on(Spoilt(train=1, tests=1)),))
    assert (frame[frame["client"] == 0]["n"] == 1).all()
    assert set(frame["method"]) == set(job.RECIPES)
    assert frame["accuracy"].between(0, 100).all()


def test_a_class_that_nobody_has(tmp_path):
    """Digits without threes: clients, training and scores go on, and nobody is asked for a three."""
    whole = load("digits")
    kept = np.flatnonzero(whole.labels != 3)
    x, y, test = whole.images[kept].transpose(0, 2, 3, 1), whole.labels[kept], whole.is_test[kept]
    np.savez(tmp_path / "mine.npz", x_train=x[~test], y_train=y[~test], x_test=x[test], y_test=y[test], classes=np.array(whole.classes))
    protocol = BRFL(str(tmp_path / "mine.npz"), n_clients=3, alpha=1.0, columns=("original",), natural_size=100)
    built = protocol.build(0)
    assert built.report("original")["3"].eq(0).all()
    frame = job.run(None, {"FedAvg": Recipe(FedAvg())}, (on(protocol, schedule=replace(SMALL, rounds=1)),))
    assert len(frame) == 2 * 3


def test_a_stream_that_is_not_finite_is_named(tmp_path):
    """Images are bytes, so that a NaN can only arise in the network; here in the personal part of one client."""

    @dataclass(frozen=True)
    class Sick(FineTune):
        def fit(self, task, received, clients, personal, round):
            part = super().fit(task, received, clients, personal, round)
            return {name: stack.index_fill(0, torch.tensor([1]), NAN) for name, stack in part.items()}

    with pytest.raises(FloatingPointError, match=r"NoAdapt \(client 1, test original, round 2\) gave scores that are not finite"):
        running({"sick": Recipe(FedAvg(), Sick())}, setting=on())(tmp_path)
    assert not list((tmp_path / "cache" / "adapt").rglob("*.safetensors"))
