import math
import pickle
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from fedlib import experiment
from fedlib.adapt.fedthe import FedTHE
from fedlib.adapt.fedthe_plus import FedTHEPlus
from fedlib.adapt.memo import MEMO
from fedlib.core import Local, NoAdapt, Output, Recipe, Schedule, Task
from fedlib.models import PRETRAINED
from fedlib.personalize.fine_tune import FineTune
from fedlib.personalize.head import PersonalHead
from fedlib.protocols.brfl import BRFL
from fedlib.setting import Request, Setting
from fedlib.stages.boundary import MisbehavedError
from fedlib.stages.engine import Engine
from fedlib.train.fedavg import FedAvg
from tests import tiny
from tests.trust.job import assert_same_rows

LOCAL = Local(lr=0.05, batch_size=4, epochs=1)
SETTING = Setting("here", tiny.Protocol(), "mlp", Schedule(rounds=2, local=LOCAL, personal=LOCAL))
CE, BSM = FedAvg(), FedAvg(loss="balanced_softmax")
RECIPES = {
    "plain": Recipe(CE),
    "tuned": Recipe(CE, FineTune()),
    "memo": Recipe(CE, FineTune(), MEMO(views=2, steps=1), costly=True),
    "fedthe": Recipe(BSM, PersonalHead(), FedTHE()),
    "fedthe+": Recipe(BSM, PersonalHead(), FedTHEPlus(views=2, steps=1), costly=True),
}


def run(cache, settings=(SETTING,), recipes=RECIPES, seeds=(0,), **options):
    return experiment.run(settings, recipes, seeds, cache=cache and str(cache), **options)


def with_schedule(**fields):
    return replace(SETTING, schedule=replace(SETTING.schedule, **fields))


@pytest.fixture
def calls(monkeypatch):
    """How often each stage computes anything."""
    counts = Counter()

    def watch(kind, name):
        original = getattr(kind, name)

        def counted(*arguments, **options):
            counts[f"{kind.__name__}.{name}"] += 1
            return original(*arguments, **options)

        monkeypatch.setattr(kind, name, counted)

    for kind, name in ((FedAvg, "update"), (FineTune, "fit"), (PersonalHead, "fit"), (FedTHE, "run"), (NoAdapt, "run"), (Task, "predict")):
        watch(kind, name)
    return counts


def test_one_row_per_client_and_draw(tmp_path):
    frame = run(tmp_path, seeds=(0, 1))
    assert len(frame) == 5 * 2 * 3 * 3
    assert list(frame["method"].unique()) == list(RECIPES)
    assert frame.groupby("column")["draw"].max().to_dict() == {"original": 0, "corrupted": 1}
    assert set(frame["round"]) == {2}
    assert set(frame["dataset"]) == {"noise"}
    assert frame["n"].isin([6, 7]).all()
    assert not frame[["cached", "train_cached"]].any(axis=None)
    assert frame.groupby(["method", "seed"])["accuracy"].mean().nunique() > 5


def test_a_second_run_is_equal_and_computes_nothing(tmp_path, calls):
    first = run(tmp_path)
    calls.clear()
    second = run(tmp_path)
    assert not calls
    assert second[["cached", "train_cached"]].all(axis=None)
    assert_same_rows(first, second)
    assert first["seconds"].tolist() == second["seconds"].tolist()


def test_look_reads_what_run_scored(tmp_path, calls):
    request = Request(costly_samples=3, extras=("weight",))
    rows = run(tmp_path, request=request)
    calls.clear()
    for method in ("memo", "fedthe"):
        benchmark, outputs = experiment.look(
            SETTING, RECIPES[method], 0, "corrupted", request=Request(costly_samples=3), cache=str(tmp_path)
        )
        of_method = rows.query("method == @method and column == 'corrupted'")
        assert list(outputs) == list(of_method[["client", "draw"]].itertuples(index=False, name=None))
        for ((k, draw), output), row in zip(outputs.items(), of_method.itertuples(), strict=True):
            labels = benchmark.clients[k].tests["corrupted"][draw].labels[: row.n]
            assert row.accuracy == 100 * (output.scores.argmax(1) == labels).double().mean().item()
            assert method == "memo" or output.extras["weight"].tolist() == row.weight.tolist()
    assert not calls
    with pytest.raises(ValueError, match="Did you mean 'corrupted'"):
        experiment.look(SETTING, RECIPES["plain"], 0, "corupted", cache=str(tmp_path))


def test_without_a_cache_the_same_numbers(tmp_path):
    assert_same_rows(run(None), run(tmp_path))


def test_jobs_beyond_the_trainings_share_the_clients_of_a_round(tmp_path, monkeypatch):
    shared, made = [], experiment.make_task

    def recorded(setting, benchmark, seed, engine, root):
        shared.append(engine.processes)
        return made(setting, benchmark, seed, engine, root)

    monkeypatch.setattr(experiment, "make_task", recorded)
    recipes = {"tuned": RECIPES["tuned"]}
    assert_same_rows(run(tmp_path, recipes=recipes, n_jobs=5), run(None, recipes=recipes))
    assert set(shared) == {5, 1}
    shared.clear()
    run(None, recipes=recipes, engine=Engine(processes=3))
    assert set(shared) == {3}


def test_groups_that_are_cached_whole_are_read_before_processes_start(tmp_path, monkeypatch):
    """Only from the first training on of which something is missing, work goes to processes."""
    recipes = {name: RECIPES[name] for name in ("tuned", "fedthe")}
    first = run(tmp_path, recipes=recipes)
    handed = []

    def here(n_jobs, **options):
        return lambda jobs: [handed.append(arguments[4]) or function(*arguments) for function, arguments, _ in jobs]

    monkeypatch.setattr(experiment, "Parallel", here)
    assert_same_rows(run(tmp_path, recipes=recipes, n_jobs=2), first)
    assert handed == []
    more = run(tmp_path, recipes=recipes, seeds=[0, 1], n_jobs=2)
    assert handed
    assert set(handed) == {1}
    assert_same_rows(more[more["seed"] == 0].reset_index(drop=True), first)


@dataclass(frozen=True)
class Constant:
    """Predicts the first class."""

    version: int = 1

    def run(self, task, state, personal, stream):
        return Output(torch.tensor([[1.0, 0.0, 0.0]]).repeat(len(stream), 1))


def test_accuracy_is_the_share_of_right_predictions_and_loss_the_cross_entropy():
    frame = run(None, recipes={"constant": Recipe(CE, None, Constant())})
    for row in frame.itertuples():
        labels = tiny.client(row.client).tests[row.column][row.draw].labels
        assert row.accuracy == pytest.approx(100 * (labels == 0).double().mean().item())
        # Softmax of (1, 0, 0): e / (e + 2) and 1 / (e + 2).
        assert row.loss == pytest.approx(math.log(math.e + 2) - (labels == 0).double().mean().item())


@dataclass(frozen=True)
class Several:
    """The received model and two others."""

    version: int = 1

    def run(self, task, state, personal, stream):
        scores = task.frozen(state, stream)[1]
        return Output(torch.stack([scores, -scores, scores.flip(-1)]))


def test_each_of_several_predictors_has_its_own_accuracy_and_loss():
    extras = ("accuracies", "losses", "nothing")
    asked = run(None, recipes={"plain": Recipe(CE), "three": Recipe(CE, None, Several())}, request=Request(extras=extras))
    plain, three = (asked[asked["method"] == name].reset_index() for name in ("plain", "three"))
    assert plain["accuracies"].isna().all()
    assert three["nothing"].isna().all()
    assert three["accuracies"].map(lambda values: values[0]).tolist() == plain["accuracy"].tolist()
    assert three["losses"].map(lambda values: values[0]).tolist() == pytest.approx(plain["loss"].tolist())
    assert three["accuracies"].map(lambda values: values.mean()).tolist() == pytest.approx(three["accuracy"].tolist())
    assert three["losses"].map(len).eq(3).all()


def test_adaptation_never_reads_labels(tmp_path):
    """With the labels of the tests in another order every score keeps its bits, and only accuracies change."""
    frames = [run(tmp_path / str(s), (replace(SETTING, protocol=tiny.Protocol(shuffled=s)),)) for s in (False, True)]
    files = [sorted(p.relative_to(tmp_path / s) for p in (tmp_path / s / "adapt").rglob("*.safetensors")) for s in ("False", "True")]
    assert files[0] == files[1]
    assert len(files[0]) == 2 * len(RECIPES)
    for path in files[0]:
        a, b = (load_file(tmp_path / s / path) for s in ("False", "True"))
        assert all(torch.equal(a[name], b[name]) for name in a if not name.endswith("seconds"))
    assert (frames[0]["accuracy"] != frames[1]["accuracy"]).any()


@dataclass(frozen=True)
class Broken:
    version: int = 1

    def run(self, task, state, personal, stream):
        return Output(torch.full((len(stream), 3), float("nan")))


@dataclass(frozen=True)
class Vote:
    """An oracle of the tests: class 0 or 1 for everything, whichever is more frequent in the first draw of ``original``."""

    column: str = "original"

    def choose(self, output, labels):
        assert len(labels) == len(output.scores)
        return float((labels == 1).sum() > (labels == 0).sum())

    def scores(self, output, choice):
        return torch.eye(3, dtype=output.scores.dtype)[int(choice)].expand(output.scores.shape)


def test_an_oracle_chooses_where_scores_meet_labels(tmp_path, calls):
    """One choice per client, from its original test, for all columns and draws; the stages below know nothing of it."""
    recipes = {"tuned": Recipe(CE, FineTune()), "oracle": Recipe(CE, FineTune(), oracle=Vote())}
    frame = run(tmp_path, recipes=recipes)
    assert calls["NoAdapt.run"] == 9
    frame = frame[frame["method"] == "oracle"]
    assert len(frame) == 9
    chosen = set()
    for row in frame.itertuples():
        tests = tiny.Protocol().build(0).clients[row.client].tests
        original = tests["original"][0].labels
        choice = int((original == 1).sum() > (original == 0).sum())
        chosen.add(choice)
        assert row.accuracy == pytest.approx(100 * (tests[row.column][row.draw].labels == choice).double().mean().item())
    assert chosen == {0, 1}


def test_scores_that_are_no_numbers_raise(tmp_path):
    with pytest.raises(FloatingPointError, match=r"^broken: Broken \(client 0, test original, round 2\) gave scores") as found:
        run(tmp_path, recipes={"broken": Recipe(CE, None, Broken()), "fine": Recipe(CE)})
    # Also from another process.
    assert pickle.loads(pickle.dumps(found.value)).method == "broken"
    assert not list((tmp_path / "adapt").rglob("*.safetensors"))


CHANGES = {
    "adapt": (SETTING, {"fedthe": Recipe(BSM, PersonalHead(), FedTHE(beta=0.1))}, {"FedTHE.run": 9}),
    "test images": (replace(SETTING, protocol=tiny.Protocol(brightness=9)), {"fedthe": RECIPES["fedthe"]}, {"FedTHE.run": 9}),
    "label": (replace(SETTING, label="elsewhere"), {"fedthe": RECIPES["fedthe"]}, {}),
    "personal method": (SETTING, {"fedthe": Recipe(BSM, PersonalHead(True), FedTHE())}, {"PersonalHead.fit": 2, "FedTHE.run": 9}),
    "personal phase": (
        with_schedule(personal=replace(LOCAL, lr=0.01)),
        {"fedthe": RECIPES["fedthe"]},
        {"PersonalHead.fit": 2, "FedTHE.run": 9},
    ),
    "local phase": (
        with_schedule(local=replace(LOCAL, lr=0.01)),
        {"fedthe": RECIPES["fedthe"]},
        {"FedAvg.update": 2, "PersonalHead.fit": 2, "FedTHE.run": 9},
    ),
    "a round more": (with_schedule(rounds=3), {"fedthe": RECIPES["fedthe"]}, {"FedAvg.update": 1, "PersonalHead.fit": 1, "FedTHE.run": 9}),
    "another method": (SETTING, {"fedthe": RECIPES["fedthe"], "two heads": Recipe(BSM, PersonalHead(), NoAdapt())}, {"NoAdapt.run": 9}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_recomputes_what_depends_on_it(tmp_path, calls, change):
    run(tmp_path)
    calls.clear()
    setting, recipes, expected = CHANGES[change]
    run(tmp_path, (setting,), recipes)
    assert {name: n for name, n in calls.items() if name != "Task.predict"} == expected


def test_published_weights_of_one_name_are_told_apart(tmp_path, calls, monkeypatch):
    def read(in_shape, n_classes, pretrained):
        network = tiny.net(dtype=torch.float32)
        torch.nn.init.constant_(network.head.weight, float((pretrained / "weights").read_text()))
        return network

    monkeypatch.setitem(PRETRAINED, "read", read)
    for folder in ("0.1", "0.2", "0.1"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "weights").write_text(folder)
        run(tmp_path / "cache", (replace(SETTING, model="read"),), {"plain": RECIPES["plain"]}, root=str(tmp_path / folder))
    assert calls["FedAvg.update"] == 2 * 2


def test_the_training_data_of_a_target_client_belongs_to_the_personal_key(tmp_path, calls):
    settings = [replace(SETTING, protocol=tiny.Protocol(target=seed)) for seed in (1, 2)]
    recipes = {"tuned": RECIPES["tuned"]}
    run(tmp_path, settings[:1], recipes)
    calls.clear()
    changed = run(tmp_path, settings[1:], recipes)
    assert calls["FedAvg.update"] == 0
    assert calls["FineTune.fit"] == 1
    assert_same_rows(changed, run(None, settings[1:], recipes))


def test_recipes_of_one_training_share_its_features(tmp_path, calls):
    recipes = {"plain": Recipe(BSM), "fedthe": RECIPES["fedthe"], "other": Recipe(BSM, PersonalHead(), FedTHE(beta=1.0))}
    run(tmp_path, recipes=recipes, request=Request(rounds=(1, 2)))
    assert calls["FedAvg.update"] == 2
    assert calls["Task.predict"] == 2 * 9


def test_the_final_model_of_a_short_run_is_not_a_round_of_a_longer_one(tmp_path):
    """With partial participation, clients outside the cohort of round 3 still hold model 2; after a run of two rounds all get model 3."""
    short, long = with_schedule(participation=0.34), with_schedule(participation=0.34, rounds=4)
    run(tmp_path, (short,), request=Request(rounds=(-1,)))
    assert_same_rows(run(tmp_path, (long,), request=Request(rounds=(3,))), run(None, (long,), request=Request(rounds=(3,))))


def test_only_costly_recipes_are_cut():
    frame = run(None, request=Request(costly_samples=2, extras=("weight",)))
    assert set(frame.loc[frame["method"].isin(["memo", "fedthe+"]), "n"]) == {2}
    assert set(frame.loc[~frame["method"].isin(["memo", "fedthe+"]), "n"]) == {6, 7}
    assert all(len(row.weight) == row.n for row in frame.itertuples() if row.method.startswith("fedthe"))
    assert frame.loc[frame["method"] == "plain", "weight"].isna().all()


def test_every_method_is_scored_on_the_images_of_the_costly_ones_too():
    frame = run(None, request=Request(costly_samples=2))
    costly = frame["method"].isin(["memo", "fedthe+"])
    assert frame["cut"].eq(costly).all()
    assert set(frame["cut_n"]) == {2}
    assert (frame.loc[costly, "cut_accuracy"] == frame.loc[costly, "accuracy"]).all()
    first = run(None, recipes={"plain": replace(RECIPES["plain"], costly=True)}, request=Request(costly_samples=2))
    plain = frame[frame["method"] == "plain"].reset_index(drop=True)
    assert plain["cut_accuracy"].tolist() == first["accuracy"].tolist()
    assert plain["cut_accuracy"].tolist() != plain["accuracy"].tolist()
    whole = run(None, recipes={"plain": RECIPES["plain"]})
    assert (whole["cut_accuracy"] == whole["accuracy"]).all()
    assert not whole["cut"].any()


def test_float64_and_stacks_agree_with_the_default():
    columns = ["method", "column", "draw", "client", "n"]
    frames = [
        run(None, engine=engine) for engine in (Engine(), Engine(dtype="float64", chunk_size=1), Engine(dtype="float64", chunk_size=3))
    ]
    for frame in frames[1:]:
        pd.testing.assert_frame_equal(frame[columns], frames[0][columns])
        pd.testing.assert_series_equal(frame["loss"], frames[0]["loss"], rtol=1e-4)
        assert not frame["loss"].equals(frames[0]["loss"]), "rounded to float32"
    pd.testing.assert_series_equal(frames[1]["accuracy"], frames[2]["accuracy"])


def test_threads_are_set_back():
    before = torch.get_num_threads()
    with pytest.raises(FloatingPointError):
        run(None, (with_schedule(rounds=1),), {"broken": Recipe(CE, None, Broken())}, engine=Engine(threads=before + 1))
    assert torch.get_num_threads() == before


def test_digits_end_to_end(tmp_path):
    """BRFL on digits: three clients, two rounds, three of FedTHE's methods; learning shows."""
    protocol = BRFL(n_clients=3, alpha=10.0, columns=("original", "natural"), natural_size=200, augment="none")
    schedule = Schedule(rounds=2, local=replace(LOCAL, batch_size=16, lr=0.1, epochs=3), personal=replace(LOCAL, batch_size=16))
    recipes = {name: RECIPES[name] for name in ("plain", "tuned", "fedthe")}
    request = Request(rounds=(1, -1))
    frame = run(tmp_path, (Setting("digits", protocol, "mlp", schedule),), recipes, request=request)
    accuracy = frame.groupby(["method", "column", "round"])["accuracy"].mean()
    assert accuracy["plain", "original", 1] < 40
    assert accuracy["plain", "original", 3] > 80
    assert accuracy["tuned", "original", 3] > 80
    assert accuracy["fedthe", "original", 3] > 80
    assert (frame.groupby("column")["n"].unique()["original"] == [119]).all()


def test_personal_parts_are_what_adapters_got(tmp_path, calls):
    run(tmp_path)
    before = dict(calls)
    parts = experiment.personal_parts((SETTING,), {k: RECIPES[k] for k in ("tuned", "fedthe")}, (0,), cache=str(tmp_path))
    assert calls == before
    assert set(parts) == {("here", "tuned", 0), ("here", "fedthe", 0)}
    assert parts["here", "fedthe", 0]["model.head.weight"].shape[0] == len(SETTING.protocol.build(0).clients)
    final = experiment.personal_parts((SETTING,), {"tuned": RECIPES["tuned"]}, (0,), round=-1, cache=str(tmp_path))
    assert any(not torch.equal(t, parts["here", "tuned", 0][n]) for n, t in final["here", "tuned", 0].items())


def test_a_cut_row_has_seen_what_it_counts():
    frame = run(None, request=Request(costly_samples=2))
    assert [len(seen) for seen in frame["seen"]] == frame["n"].tolist()


@dataclass(frozen=True)
class InOrder:
    """The clients of ``tiny.Protocol`` and a new one, in the order of ``places``."""

    places: tuple[int, ...]

    def build(self, seed, root=None):
        whole = tiny.Protocol(target=1).build(seed, root)
        return replace(whole, clients=tuple(whole.clients[k] for k in self.places))


@pytest.mark.parametrize("places", [(3, 0, 1, 2), (2, 1, 0, 3)], ids=["new ones first", "sources reversed"])
def test_clients_in_another_order_are_not_taken_for_each_other(tmp_path, places):
    recipes, schedule = {name: RECIPES[name] for name in ("plain", "tuned")}, replace(SETTING.schedule, participation=0.5)
    settings = {p: replace(SETTING, protocol=InOrder(p), schedule=schedule) for p in ((0, 1, 2, 3), places)}
    run(tmp_path, [settings[0, 1, 2, 3]], recipes)
    assert_same_rows(run(tmp_path, [settings[places]], recipes), run(None, [settings[places]], recipes))


class Scribbles(NoAdapt):
    def run(self, task, state, personal, stream):
        stream.images.zero_()
        return Output(torch.full((len(stream), task.n_classes), math.nan))


def test_clients_that_a_diverging_method_wrote_into_are_built_anew():
    fresh = run(None, recipes={"plain": RECIPES["plain"]})
    with pytest.raises(FloatingPointError):
        run(None, recipes={"mine": Recipe(CE, None, Scribbles())})
    assert_same_rows(run(None, recipes={"plain": RECIPES["plain"]}), fresh)


@dataclass(frozen=True)
class FromFile:
    path: str

    def build(self, seed, root=None):
        return tiny.Protocol(int(Path(self.path).read_text())).build(seed)


def test_a_protocol_that_reads_a_file_is_built_anew(tmp_path):
    protocol, means = FromFile(str(tmp_path / "brightness")), []
    for brightness in ("0", "9"):
        (tmp_path / "brightness").write_text(brightness)
        means.append(experiment.benchmark_of(protocol, 0, None).clients[0].tests["original"][0].images.float().mean())
    assert means[1] - means[0] == pytest.approx(9, abs=1e-3)


class InPlace(FedAvg):
    def aggregate(self, task, server, messages, cohort, round):
        for name, tensor in super().aggregate(task, server, messages, cohort, round)["model"].items():
            server["model"][name].copy_(tensor)
        return server


def test_a_training_that_writes_into_its_earlier_states_is_refused():
    with pytest.raises(MisbehavedError, match=r"InPlace .* changed the server's model"):
        run(None, recipes={"mine": Recipe(InPlace())})
