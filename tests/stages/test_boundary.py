import copy
import random
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from fedlib import experiment
from fedlib.core import NoAdapt, Output, Recipe
from fedlib.models import state_of
from fedlib.personalize.select import Selected
from fedlib.setting import Setting
from fedlib.stages import boundary
from fedlib.stages.boundary import MethodError, MisbehavedError, called, check_output, check_state, marks, watched
from fedlib.train.fedavg import FedAvg
from tests import tiny

TASK = tiny.task()
STREAM = tiny.client(0).stream("original")
GOOD = torch.zeros(len(STREAM), tiny.CLASSES)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (None, "None: an adapter returns Output"),
        ((GOOD, {}), "a tuple: an adapter returns Output"),
        (GOOD, "a Tensor: an adapter returns Output"),
        (GOOD.numpy(), "an ndarray: an adapter returns Output"),
        (Output(GOOD.numpy()), "scores as an ndarray: expected"),
        (Output(GOOD.long()), "scores of type torch.int64: float32 or float64"),
        (Output(GOOD.half()), "scores of type torch.float16: float32 or float64"),
        (Output(GOOD[1:]), r"scores \(6, 3\): expected .* n=7 and C=3"),
        (Output(GOOD.T), r"scores \(3, 7\)"),
        (Output(GOOD[:, 0]), r"scores \(7,\)"),
        (Output(GOOD.clone().requires_grad_()), "scores with gradients"),
        (Output(GOOD.to("meta")), "scores on meta: the stream is on cpu"),
        (Output(GOOD, None), "extras as None: a dictionary"),
        (Output(GOOD, {"weight": [1.0] * 7}), "the extra 'weight' as a list"),
        (Output(GOOD, {"weight": torch.zeros(6)}), r"the extra 'weight' as \(6,\): one value per sample"),
        (Output(GOOD, {"weight": torch.tensor(1.0)}), "the extra 'weight'"),
        (Output(GOOD, {"weight": torch.full((7,), float("nan"))}), "NaN in the extra 'weight'"),
        (Output(GOOD, {"scores": GOOD}), "an extra called 'scores', as the experiment calls what it keeps"),
    ],
)
def test_an_output_that_breaks_the_contract_is_refused_by_name(output, message):
    with pytest.raises(MisbehavedError, match=f"^Mine (returned )?{message}"):
        check_output(output, TASK, STREAM, "Mine")


def test_what_keeps_the_contract_passes():
    for scores in (GOOD, GOOD.double(), GOOD.expand(4, -1, -1)):
        output = Output(scores, {"weight": torch.zeros(7), "bits": torch.zeros(7, 3, dtype=torch.bool)})
        assert check_output(output, TASK, STREAM, "Mine") is output


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (None, "parts as None"),
        ({"a": 1.0}, "'a' as a float"),
        ({"a": torch.zeros(2, requires_grad=True)}, "gradients in 'a'"),
        ({"a": torch.inference_mode()(torch.zeros)(2)}, r"'a' from torch.inference_mode\(\): work under torch.no_grad"),
        ({"a": torch.zeros(3)}, r"'a' \(3,\): \[2, ...\], one row per client"),
    ],
)
def test_states_are_tensors_by_name(state, message):
    with pytest.raises(MisbehavedError, match=message):
        check_state(state, "Mine", "parts", 2)
    assert check_state({"a": torch.zeros(2), "shared.b": torch.tensor(1)}, "Mine", "parts", 2)


@pytest.mark.parametrize("layout", ["plain", "channels_last", "expanded", "empty"])
def test_every_write_is_noticed(layout):
    tensor = torch.zeros(2, 3, 4, 4)
    tensor = {
        "plain": tensor,
        "channels_last": tensor.contiguous(memory_format=torch.channels_last),
        "expanded": torch.zeros(1, 3).expand(4, 3),
        "empty": torch.zeros(0, 3),
    }[layout]
    before = marks([tensor])
    assert marks([tensor]) == before
    if layout != "empty":
        tensor.numpy()[0, 0] = 1  # not counted by torch
        assert marks([tensor]) != before


@dataclass(frozen=True)
class Meddler:
    """An adapter that does its work and something else; ``deed`` says what."""

    deed: str
    version: int = 1

    def run(self, task, state, personal, stream):
        output = NoAdapt().run(task, state, personal, stream)
        deeds = {
            "images": lambda: stream.images.zero_(),
            "images by numpy": lambda: stream.images.numpy().fill(0),
            "model": lambda: next(iter(state.values())).mul_(2),
            "model by numpy": lambda: next(iter(state.values())).numpy().fill(0),
            "frozen": lambda: output.scores.zero_(),
            "transform": lambda: object.__setattr__(task.transform, "mean", (9.0,)),
            "dtype": lambda: torch.set_default_dtype(torch.float64),
            "gradients": lambda: torch.set_grad_enabled(False),
            "torch draws": lambda: torch.rand(1),
            "numpy draws": lambda: np.random.rand(1),  # noqa: NPY002
            "python draws": random.random,
            "mode": lambda: task.model.train(),
            "nothing": lambda: None,
        }
        deeds[self.deed]()
        return output


SETTING = Setting("tiny", tiny.Protocol(), "mlp", tiny.task().schedule)
PLAIN = {"plain": Recipe(FedAvg())}


def scores(recipes, cache):
    rows = experiment.run([SETTING], recipes, [0], cache=str(cache))
    return rows[rows["method"] == "plain"]["accuracy"].tolist()


@pytest.mark.parametrize(
    ("deed", "named"),
    [
        ("images", "the stream's images"),
        ("images by numpy", "the stream's images"),
        ("model", "the received model"),
        ("transform", "the transform"),
        ("dtype", "torch's default type"),
        ("gradients", "torch's gradient mode"),
        ("torch draws", "torch's global random state"),
        ("numpy draws", "NumPy's global random state"),
        ("python draws", "Python's global random state"),
    ],
)
def test_a_method_that_meddles_is_named_and_poisons_nothing(deed, named, tmp_path):
    alone = scores(PLAIN, tmp_path / "alone")
    with pytest.raises(MisbehavedError, match=rf"Meddler \(client 0, test original, round 2\) changed {named}.*work on a clone"):
        experiment.run([SETTING], {"meddler": Recipe(FedAvg(), None, Meddler(deed))}, [0], cache=str(tmp_path / "cache"))
    assert not list((tmp_path / "cache" / "adapt").rglob("*.safetensors")), "nothing is saved"
    assert scores(PLAIN, tmp_path / "cache") == alone
    assert torch.get_default_dtype() is torch.float32


def test_a_write_into_the_model_that_torch_does_not_count_is_noticed_before_anything_is_saved(tmp_path):
    named = r"Meddler \(test original, round 2\) changed the received model of client 0 \(extractor"
    with pytest.raises(MisbehavedError, match=named):
        experiment.run([SETTING], {"meddler": Recipe(FedAvg(), None, Meddler("model by numpy"))}, [0], cache=str(tmp_path))
    assert not list((tmp_path / "adapt").rglob("*.safetensors"))


def test_the_content_of_a_model_is_read_once_for_all_streams_of_a_test(tmp_path, monkeypatch):
    read = []
    checksum = boundary._checksum
    monkeypatch.setattr(boundary, "_checksum", lambda tensor: read.append(tensor.shape) or checksum(tensor))
    rows = experiment.run([SETTING], PLAIN, [0], cache=str(tmp_path))
    tests = len(rows["column"].unique())
    assert rows["client"].nunique() > 1
    largest = max(read, key=torch.Size.numel)
    assert len(largest) == 2, "a matrix of weights, no images"
    assert read.count(largest) == 2 * tests
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("deed", ["frozen", "mode", "nothing"])
def test_what_a_method_does_to_its_own_copies_is_its_own_affair(deed, tmp_path):
    alone = scores(PLAIN, tmp_path / "alone")
    assert scores({"meddler": Recipe(FedAvg(), None, Meddler(deed))} | PLAIN, tmp_path / "cache") == alone


@dataclass(frozen=True)
class Trainer(FedAvg):
    """A training method that writes into its clients' images, or forgets its contract; ``deed`` says where."""

    deed: str = ""

    def init(self, task, clients):
        if self.deed == "images at first":
            clients[0].train.images.zero_()
        return [] if self.deed == "no server" else super().init(task, clients)

    def update(self, task, server, cohort, round):
        if self.deed == "images":
            cohort[0].train.images.zero_()
        messages = super().update(task, server, cohort, round)
        return {"message": [list(m) for m in messages], "too few": messages[1:]}.get(self.deed, messages)

    def aggregate(self, task, server, messages, cohort, round):
        if self.deed == "images at last":
            cohort[0].train.images.zero_()
        if self.deed == "half a mean":
            messages = [{name: tensor for name, tensor in message.items() if name.startswith("head.")} for message in messages]
        return {"mean": messages[0]} if self.deed == "no model" else super().aggregate(task, server, messages, cohort, round)


@pytest.mark.parametrize(
    ("deed", "named"),
    [
        ("images at first", r"\(before round 1\) changed client 0's train images"),
        ("no server", r"\(before round 1\) returned the server's state as a list: a dictionary of groups"),
        ("images", r"\(round 1\) changed client 0's train images"),
        ("message", r"\(round 1\) .*client's message as a list"),
        ("too few", r"\(round 1\) returned 2 of them from update: .*each of 3 clients"),
        ("images at last", r"\(round 1\) changed client 0's train images"),
        ("half a mean", r"\(round 1\) returned the server's model without 'extractor.*, which it had before"),
        ("no model", r"\(round 1\) returned the server's state as groups 'mean': .*'model' among them"),
    ],
)
def test_trainings_are_watched_too(deed, named, tmp_path):
    alone = scores(PLAIN, tmp_path / "alone")
    with pytest.raises(MisbehavedError, match=rf"Trainer {named}"):
        experiment.run([SETTING], {"mine": Recipe(Trainer(deed=deed))}, [0], cache=str(tmp_path / "cache"))
    # The benchmark that the process keeps is built anew, and not trained on as the method has left it.
    assert scores(PLAIN, tmp_path / "cache") == alone == scores(PLAIN, tmp_path / "alone")
    kept = {path.parent.name for path in (tmp_path / "cache" / "train").glob("*/round-00003.safetensors")}
    assert kept == {path.parent.name for path in (tmp_path / "alone" / "train").glob("*/round-00003.safetensors")}


def test_public_images_are_watched_as_well():
    task = replace(tiny.task(), public=tiny.samples(3).images.clone())
    with pytest.raises(MisbehavedError, match="Mine changed the public images"), watched(task, {}, "Mine"):
        task.public.zero_()


@dataclass(frozen=True)
class Forgetful:
    """A personal part without a row for every client."""

    persistent: bool = False
    version: int = 1

    def init(self, task, clients):
        return {}

    def fit(self, task, received, clients, personal, round):
        return {"model.head.bias": state_of(task.model)["head.bias"][:2]}


def test_personal_parts_are_checked(tmp_path):
    with pytest.raises(
        MisbehavedError, match=r"Forgetful \(round 2\) returned personal parts with 'model.head.bias' \(2,\): .*one row per client"
    ):
        experiment.run([SETTING], {"mine": Recipe(FedAvg(), Forgetful())}, [0], cache=str(tmp_path / "cache"))


@dataclass(frozen=True)
class Early(Forgetful):
    """A personal part that writes into labels before anything is trained."""

    def init(self, task, clients):
        clients[1].val.labels.zero_()
        return {}


def test_the_start_of_personal_parts_is_watched(tmp_path):
    with pytest.raises(MisbehavedError, match=r"Early \(before round 1\) changed client 1's val labels"):
        experiment.run([SETTING], {"mine": Recipe(FedAvg(), Early())}, [0], cache=str(tmp_path / "cache"))


class Counting:
    """Stages that write into themselves whatever they can, and whose results would tell."""

    version, persistent = 1, False

    def __init__(self):
        self.n, self.seen, self.prior = 0, [], None

    def _shift(self, images):
        self.n += 1
        self.seen.append(len(images))
        self.prior = images.float().mean() if self.prior is None else self.prior + images.float().mean()
        return self.n + sum(self.seen) + self.prior


class CountingAdapter(Counting):
    def run(self, task, state, personal, stream):
        logits = task.frozen(state, stream)[1].clone()
        logits[:, 0] += self._shift(stream.images)
        return Output(logits)


class CountingPart(Counting):
    def init(self, task, clients):
        return {}

    def fit(self, task, received, clients, personal, round):
        shift = self._shift(clients[0].train.images)
        return {"model.head.bias": torch.stack([state["head.bias"] + shift for state in received])}


class CountingTraining(Counting):
    plain = FedAvg()

    def init(self, task, clients):
        return self.plain.init(task, clients)

    def update(self, task, server, cohort, round):
        shift = 1e-3 * self._shift(cohort[0].train.images)
        return [{name: tensor + shift for name, tensor in m.items()} for m in self.plain.update(task, server, cohort, round)]

    def aggregate(self, task, server, messages, cohort, round):
        shift = 1e-3 * self._shift(cohort[0].train.images)
        server = self.plain.aggregate(task, server, messages, cohort, round)
        return server | {"model": {name: tensor + shift for name, tensor in server["model"].items()}}


@pytest.mark.parametrize("place", ["train", "personalize", "adapt"])
def test_what_a_users_stage_writes_into_itself_ends_with_the_call(place, tmp_path):
    """The same numbers in a second run, from the cache, and from an object that has run nothing before; and the object is as it was."""
    made = {"train": CountingTraining, "personalize": CountingPart, "adapt": CountingAdapter}[place]
    asked = {"train": FedAvg(), "personalize": None, "adapt": NoAdapt()}
    mine = made()
    recipe, other = Recipe(**asked | {place: mine}), Recipe(**asked | {place: made()})
    caches = (None, tmp_path, tmp_path, None)
    runs = [
        experiment.run([SETTING], {"mine": r}, [0], cache=c and str(c))
        for r, c in zip((recipe, recipe, recipe, other), caches, strict=True)
    ]
    assert runs[2]["cached"].all()
    assert len({tuple(run["loss"]) for run in runs}) == 1
    assert (mine.n, mine.seen, mine.prior) == (0, [], None)
    plain = experiment.run([SETTING], {"mine": Recipe(**asked)}, [0], cache=None)
    assert tuple(plain["loss"]) != tuple(runs[0]["loss"])


def test_so_it_does_within_a_stage_of_the_package():
    mine = CountingAdapter()
    with called(Selected((mine,)), "Selected") as own:
        own.candidates[0].n = 7
    assert mine.n == 0


class Stumbling:
    def __init__(self, diverges=False):
        self.diverges = diverges

    def run(self, task, state, personal, stream):
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        np.random.rand(1), torch.rand(1), random.random()  # noqa: NPY002
        raise FloatingPointError("diverged") if self.diverges else KeyError("head")


def test_a_stage_that_cannot_be_copied_deeply_is_called_all_the_same():
    mine = CountingAdapter()
    mine.prior = torch.ones(2, requires_grad=True).sum()
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(mine)
    with called(mine, "Mine") as own:
        own.n = 7
    assert mine.n == 0


def test_what_a_users_method_raises_says_whose_it_is():
    with pytest.raises(MethodError, match=r"^mine: Stumbling \(client 0, test original, round 2\) failed: KeyError: 'head'$"):
        experiment.run([SETTING], {"mine": Recipe(FedAvg(), None, Stumbling())}, [0], cache=None)
    with pytest.raises(FloatingPointError, match=r"^mine: diverged$"):
        experiment.run([SETTING], {"mine": Recipe(FedAvg(), None, Stumbling(True))}, [0], cache=None)


def test_after_an_error_global_settings_are_as_they_were():
    """The next cell of a notebook, with the method mended, trains as the first would have."""
    drawn, of_torch, of_python = np.random.get_state()[1:3], torch.get_rng_state(), random.getstate()  # noqa: NPY002
    with pytest.raises(MethodError):
        experiment.run([SETTING], {"mine": Recipe(FedAvg(), None, Stumbling())}, [0], cache=None)
    assert torch.is_grad_enabled()
    assert torch.get_default_dtype() is torch.float32
    assert all(np.array_equal(a, b) for a, b in zip(np.random.get_state()[1:3], drawn, strict=True))  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), of_torch)
    assert random.getstate() == of_python
