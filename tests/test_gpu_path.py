"""Every method on a GPU that is not there (``tests.ghost``): no operation mixes devices, and the host waits only where it is named."""

import importlib
import pkgutil
from collections import Counter
from dataclasses import dataclass, fields, is_dataclass, replace

import pytest
import torch

import fedlib.adapt
import fedlib.personalize
import fedlib.train
from fedlib import experiment
from fedlib.adapt.atp import ATPGrid
from fedlib.adapt.fedthe_terms import SmoothedFeatures
from fedlib.augment import augmix, views
from fedlib.augment.transform import Transform
from fedlib.core import Benchmark, Client, Local, Recipe, Samples, Schedule, Task
from fedlib.models import build, state_of
from fedlib.papers.atp import recipes as atp
from fedlib.papers.btfl import recipes as btfl
from fedlib.papers.fedicon import recipes as fedicon
from fedlib.papers.fedthe import recipes as fedthe
from fedlib.papers.upfl import recipes as upfl
from fedlib.personalize.head import PersonalHead
from fedlib.personalize.rates import Rates
from fedlib.personalize.transfer import Transfer
from fedlib.setting import Request, Setting
from fedlib.stages.engine import Engine
from fedlib.train.fedavg import model_loss
from fedlib.train.local import train
from tests.ghost import GHOST, GhostGPU

LOCAL = Local(lr=0.05, batch_size=4, epochs=1, momentum=0.5, clip=1.0)
SHORT = atp.Grids((1e-2,), (4,), (0.1,), (20,), (2,), ("head",), memo_limit=2)


def chosen(recipes: dict, *names: str) -> dict:
    return {name: recipes[name] for name in names}


FEDICON = fedicon.recipes("cifar", classifier_rounds=1)
VARIANTS = ("FedAvg", "FedICON-us", "FedICON:1 epoch", "FedICON:momentum", "FedICON:LIE+TTA", "FedICON:GIS+TTA")
assert {*VARIANTS} <= {*FEDICON}
MORE = {"Transfer": Recipe(fedthe.CE, Transfer(1, 1)), "SmoothedFeatures": Recipe(fedthe.BSM, PersonalHead(), SmoothedFeatures())}
HETERO = {f"public: {name}": recipe for name, recipe in upfl.hetero((0.8,), batch_size=4).items()}
RATES = Rates(2, 2, batch_size=4)
ATP = {"q-FFL": Recipe(atp.TRAIN["q-FFL"]), "grid": Recipe(atp.FEDAVG, RATES, ATPGrid(None, 4))}
# Each paper's network and methods, variants that compute the same with other numbers left out.
PAPERS = {
    "fedthe": ("cnn", fedthe.RECIPES | MORE | chosen(fedthe.ABLATIONS, "TSA", "MEMO-P:+LPFT") | fedthe.interpolations("heads", 2)),
    "btfl": ("cnn", chosen(btfl.recipes(), "BTFL") | chosen(btfl.switches(), "paper") | btfl.terms()),
    "atp": ("shallow_cnn", atp.recipes(rates=RATES, grids=SHORT) | ATP),
    "fedicon": ("fedicon_cnn", {name: recipe for name, recipe in FEDICON.items() if name not in VARIANTS}),
    "upfl": ("convnet", upfl.recipes("cifar10", widths=(64, 32)) | HETERO),
}
# Where the host reads from the GPU, or hands it something and waits: in which papers' methods, and why. None of it is in a training step;
# a place where it does not happen any more has to go.
START = "once for a run: data, networks, fresh parts and tables are brought to the device"
ROUND = "once for a client or round, beside trainings of hundreds of steps"
STREAM = "once for a stream or a class: which samples belong together is a matter of values"
BATCH = "once for a batch of a stream: what to do with it depends on values"
CHECK = "what came in or out is checked, or read to be scored and written"
ALL = "fedthe btfl atp fedicon upfl"
STOPS = {
    ("core", "to"): (ALL, START),
    ("samples", "to"): (ALL, START),
    ("samples", "identity"): (ALL, CHECK),
    ("experiment", "make_task"): (ALL, START),
    ("cache/store", "digest"): (ALL, CHECK),
    ("stages/boundary", "check_output"): (ALL, CHECK),
    ("experiment", "_evaluate"): (ALL, CHECK),
    ("federation", "_finite"): (ALL, CHECK),
    ("models/__init__", "build_head"): ("fedthe btfl fedicon", START),
    ("models/__init__", "build_linear"): ("fedthe", START),
    ("personalize/apfl", "init"): ("fedthe", START),
    ("train/fedadg", "init"): ("upfl", START),
    ("train/fedmd", "sized"): ("upfl", START),
    ("train/fedtta", "adaptation_of"): ("upfl", START),
    ("train/odpfl_hn", "init"): ("upfl", START),
    ("train/fedavg", "class_counts"): ("fedthe btfl fedicon", ROUND),
    ("train/afl", "aggregate"): ("upfl", ROUND),
    ("train/qffl", "aggregate"): ("atp", ROUND),
    ("train/odpfl_hn", "aggregate"): ("upfl", ROUND),
    ("personalize/classifier", "_memory"): ("fedicon", ROUND),
    ("personalize/fisher", "_fisher"): ("fedicon", ROUND),
    ("personalize/knn_per", "_best_mix"): ("fedthe", ROUND),
    ("personalize/select", "fit"): ("atp", ROUND),
    ("adapt/fedthe", "ensemble"): ("fedthe btfl fedicon", STREAM),
    ("adapt/fedthe", "history"): ("fedthe btfl fedicon", STREAM),
    ("adapt/fedsr", "run"): ("upfl", STREAM),
    ("adapt/knn_per", "run"): ("fedthe", STREAM),
    ("adapt/t3a", "predict"): ("fedthe atp fedicon", STREAM),
    ("adapt/ttt", "_mode_matters"): ("fedthe", STREAM),
    ("adapt/whole_client", "walk"): ("upfl", STREAM),
    ("models/__init__", "negative_features"): ("btfl", CHECK),
    ("adapt/btfl", "quantize"): ("btfl", CHECK),
    ("adapt/btfl", "mixture_weight"): ("btfl", CHECK),
    ("adapt/btfl", "prior_scan"): ("btfl", STREAM),
    ("adapt/btfl", "run"): ("btfl", STREAM),
    ("adapt/btfl", "_closed_form"): ("btfl", "once for a term of a series that ends where its rest is small; not the method's default"),
    ("adapt/bbse", "adjust"): ("atp", BATCH),
    ("adapt/eata", "__call__"): ("fedicon", BATCH),
    ("adapt/batchwise", "step_after"): ("fedicon", BATCH),
    ("personalize/rates", "fit"): ("atp", "once: whether the rates diverged"),
    ("adapt/fedtta", "run"): ("upfl", "once for a step: whether to go on depends on the entropy"),
}
# What is read where neither all nor any of what was asked about would do.
ANSWERS = {"_closed_form": (1, 0), "adjust": (1,), "__call__": (1,)}


def images(n: int, seed: int) -> Samples:
    draws = torch.Generator().manual_seed(seed)
    return Samples(torch.randint(0, 256, (n, 3, 32, 32), generator=draws, dtype=torch.uint8), torch.randint(10, (n,), generator=draws))


@dataclass(frozen=True)
class Noise:
    """Three clients with images of CIFAR-10's shape; the last takes no part in training."""

    def build(self, seed: int, root: str | None = None) -> Benchmark:
        tests = [{"original": (images(6, 100 + k),)} for k in range(3)]
        clients = [Client(k, images(n, k), images(5, 40 + k), tests[k], source=k < 2) for k, n in enumerate((10, 6, 6))]
        transform = Transform((0.5,) * 3, (0.25,) * 3, "sample")
        return Benchmark(tuple(clients), transform, (3, 32, 32), tuple("abcdefghij"), "noise", "all", (), images(8, 9).images)


@pytest.fixture
def no_check(monkeypatch):
    """An engine takes the ghost for a device."""
    monkeypatch.setattr(Engine, "__post_init__", lambda self: None)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("paper", PAPERS)
def test_every_method_stays_on_its_device(paper, no_check):
    model, recipes = PAPERS[paper]
    # UPFL's schedules have no momentum, with which SCAFFOLD cannot be.
    local = replace(LOCAL, momentum=0.0) if paper == "upfl" else LOCAL
    setting = Setting("here", Noise(), model, Schedule(2, local, local))
    with GhostGPU(ANSWERS) as gpu:
        rows = experiment.run(
            [setting], recipes, [0], request=Request(costly_samples=2), cache=None, engine=Engine(device=GHOST, chunk_size=2)
        )
    assert set(rows["method"]) == set(recipes)
    named = {place for place, (papers, _) in STOPS.items() if paper in papers.split()}
    assert (sorted(set(gpu.stops) - named), sorted(named - set(gpu.stops))) == ([], [])


CASES = [(n, c, a, "sgd") for n in ("cnn", "resnet20gn", "mlp") for c in (1, 3) for a in ("batch", "sample")]


@pytest.mark.parametrize(
    ("network", "chunk_size", "augment", "optimizer"), [*CASES, ("shallow_cnn", 3, "sample", "sgd"), ("cct4", 1, "sample", "adam")]
)
def test_local_training_never_waits(network, chunk_size, augment, optimizer):
    with GhostGPU() as gpu:
        transform = Transform((0.5,) * 3, (0.25,) * 3, augment)
        task = Task(build(network, (3, 32, 32), 10, 0).to(GHOST), transform, 10, Schedule(), 0, chunk_size)
        samples = [images(n, n).to(GHOST) for n in (12, 6, 10)]
        transform.normalise(samples[0].images)  # makes the transform's constants
        gpu.stops.clear()
        generators = [task.generator("local", k) for k in range(3)]
        loss = model_loss(task, "cross_entropy")
        local = replace(LOCAL, optimizer=optimizer)
        states = train(task, loss, state_of(task.model), samples, local=local, generators=generators)
    assert gpu.stops == {}
    assert {tensor.device.type for state in states for tensor in state.values()} == {GHOST}


VIEWS = {
    "AugMix": lambda x, g: augmix.views(x, 4, g, mean=(0.5,) * 3, std=(0.25,) * 3),
    "crop and flip": lambda x, g: views.crop_flip_views(x, 4, g),
    "MoCo": views.moco_views,
    **{kind: lambda x, g, kind=kind: views.contrastive_views(x, g, kind=kind) for kind in views.CONTRASTIVE},
}


@pytest.mark.parametrize("kind", VIEWS)
def test_views_never_wait(kind):
    with GhostGPU() as gpu:
        pixels = images(8, 0).images.to(GHOST)
        gpu.stops.clear()
        made = VIEWS[kind](pixels, torch.Generator().manual_seed(0))
    assert made.device.type == GHOST
    assert gpu.stops == {}


def implementations(package, call: str) -> set[str]:
    """Names of the method classes of a package: dataclasses with a version and the function that does the work."""
    modules = [importlib.import_module(f"{package.__name__}.{m.name}") for m in pkgutil.iter_modules(package.__path__)]
    found = [value for module in modules for value in vars(module).values() if is_dataclass(value) and value.__module__ == module.__name__]
    return {value.__name__ for value in found if hasattr(value, call) and any(f.name == "version" for f in fields(value))}


def used(value) -> set[str]:
    """Names of the classes of which a recipe is made."""
    if isinstance(value, tuple):
        return {name for item in value for name in used(item)}
    return {type(value).__name__}.union(*(used(getattr(value, f.name)) for f in fields(value))) if is_dataclass(value) else set()


@pytest.mark.parametrize(("package", "call"), [(fedlib.train, "update"), (fedlib.personalize, "fit"), (fedlib.adapt, "run")])
def test_no_method_is_left_out(package, call):
    """But the renderings of published loops, which exist to be slow."""
    ran = {name for _, recipes in PAPERS.values() for recipe in recipes.values() for name in used(recipe)}
    assert implementations(package, call) - ran == ({"FedTHELoop", "BTFLLoop", "TTTLoop"} if package is fedlib.adapt else set())


def test_devices_that_mix_are_refused():
    """Whatever would raise on a GPU: this is what the tests above rest on."""
    with GhostGPU():
        ghost, host = torch.ones(3).to(GHOST), torch.ones(3)
        with pytest.raises(RuntimeError, match="two different devices cuda:0, cpu"):
            ghost + host
        with pytest.raises(RuntimeError, match="two different devices"):
            torch.nn.functional.linear(ghost[None], torch.ones(2, 3))
        assert (ghost + torch.tensor(1.0)).device.type == GHOST


def waits() -> dict:
    return {
        "item": lambda x: x.sum().item(),
        "branch": lambda x: bool((x > 0).all()),
        "to the host": lambda x: x.cpu(),
        "from the host": lambda x: torch.ones(3).to(GHOST),
        "mask": lambda x: x[x > 0],
        "index of the host": lambda x: x[torch.tensor([0, 1])],
        "nonzero": lambda x: x.nonzero(),
        "bincount": lambda x: torch.bincount(x.long(), minlength=4),
        "list": lambda x: x.tolist(),
    }


@pytest.mark.parametrize("kind", waits())
def test_every_wait_is_noticed(kind):
    with GhostGPU() as gpu:
        ghost = torch.ones(3).to(GHOST)
        gpu.stops.clear()
        waits()[kind](ghost)
        assert sum(gpu.stops.values()) >= 1
        gpu.stops.clear()
        torch.ones(3).to(GHOST, non_blocking=True).add_(ghost).sum().square_()
        assert gpu.stops == Counter()
