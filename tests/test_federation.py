from dataclasses import dataclass, replace

import pytest
import torch
from filelock import FileLock

from fedlib import federation
from fedlib.cache.store import Store
from fedlib.federation import cohorts
from fedlib.train.fedavg import FedAvg
from tests import tiny

ROUNDS = 4


@dataclass(frozen=True)
class Momentum:
    """FedAvg with a vector of every client's own (``client_drift``), which the cohort updates and the server keeps."""

    whole_run: bool = False
    version: int = 1

    def init(self, task, clients):
        model = FedAvg().init(task, clients)["model"]
        return {"model": model, "client_drift": {"bias": torch.zeros(len(clients), 3, dtype=task.dtype)}}

    def update(self, task, server, cohort, round):
        return FedAvg().update(task, server, cohort, round)

    def aggregate(self, task, server, messages, cohort, round):
        drift = server["client_drift"]["bias"].clone()
        for client, message in zip(cohort, messages, strict=True):
            drift[client.id] = 0.5 * drift[client.id] + message["head.bias"] - server["model"]["head.bias"]
        model = FedAvg().aggregate(task, server, messages, cohort, round)["model"]
        model["head.bias"] = model["head.bias"] + drift.mean(0)
        return {"model": model, "client_drift": {"bias": drift}}


class Interrupted(BaseException):
    pass


@dataclass(frozen=True)
class Stopping:
    """``method``, which dies before it aggregates round ``at``."""

    method: object
    at: int
    version: int = 1

    def init(self, task, clients):
        return self.method.init(task, clients)

    def update(self, task, server, cohort, round):
        return self.method.update(task, server, cohort, round)

    def aggregate(self, task, server, messages, cohort, round):
        if round == self.at:
            raise Interrupted
        return self.method.aggregate(task, server, messages, cohort, round)


def a_task(**fields):
    return tiny.task(dtype=torch.float32, **{"rounds": ROUNDS, "participation": 0.67} | fields)


def trained(store, method=None, clients=None, **fields):
    return federation.run(a_task(**fields), method or FedAvg(), clients or tiny.clients(), store, "key", {}, progress=False)


def bits(trajectory, rounds=range(1, ROUNDS + 2)):
    """The model before each round."""
    return [trajectory.state(t)["model"] for t in rounds]


def assert_same(first, second):
    for a, b in zip(first, second, strict=True):
        assert list(a) == list(b)
        assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("method", [FedAvg(), Momentum()])
@pytest.mark.parametrize("at", [1, 2, 4])
def test_resumed_equals_uninterrupted(tmp_path, method, at):
    whole = bits(trained(Store(None), method))
    store = Store(tmp_path)
    with pytest.raises(Interrupted):
        trained(store, Stopping(method, at))
    assert store.names("train", "key")[-1] == f"round-{at:05d}"
    resumed = trained(store, method)
    assert not resumed.cached
    assert_same(bits(resumed), whole)
    again = trained(store, method)
    assert again.cached
    assert_same(bits(again), whole)


@pytest.mark.parametrize("method", [FedAvg(), Momentum()])
@pytest.mark.parametrize("victim", ["round-00001", "round-00003", "round-00005"])
def test_a_damaged_round_is_computed_again(tmp_path, method, victim):
    store = Store(tmp_path)
    whole = bits(trained(store, method))
    path = store.folder("train", "key") / f"{victim}.safetensors"
    path.write_bytes(path.read_bytes()[:-3])
    repaired = trained(store, method)
    with pytest.warns(UserWarning, match="set aside"):
        assert_same(bits(repaired), whole)
    assert path.exists()


@pytest.mark.parametrize("victim", ["round-00005", "clients-00005"])
def test_client_groups_are_computed_again_with_the_damaged_final_model(tmp_path, victim):
    store, method = Store(tmp_path), Momentum(whole_run=True)
    whole = trained(store, method).state(ROUNDS + 1)
    path = store.folder("train", "key") / f"{victim}.safetensors"
    path.write_bytes(path.read_bytes()[:-3])
    repaired = trained(store, method)
    with pytest.warns(UserWarning, match="set aside"):
        assert_same(repaired.state(ROUNDS + 1).values(), whole.values())
    assert_same(trained(store, method).state(ROUNDS + 1).values(), whole.values())


def test_a_complete_training_is_not_read_before_a_state_is_asked_for(tmp_path, monkeypatch):
    whole, loaded = bits(trained(Store(tmp_path))), []
    load = Store.load
    monkeypatch.setattr(Store, "load", lambda self, stage, key, name: loaded.append(name) or load(self, stage, key, name))
    again = trained(Store(tmp_path))
    assert again.cached
    assert not loaded
    assert_same(bits(again), whole)


def test_client_groups_that_are_read_after_training_exist_for_the_final_model_only(tmp_path):
    method = Momentum(whole_run=True)
    whole = trained(Store(None), method).state(ROUNDS + 1)
    with pytest.raises(Interrupted):
        trained(Store(tmp_path), Stopping(method, 3))
    assert not trained(Store(tmp_path), method).cached
    again = trained(Store(tmp_path), method)
    assert again.cached
    assert_same([again.state(ROUNDS + 1)["client_drift"]], [whole["client_drift"]])
    with pytest.raises(ValueError, match="final model only"):
        again.state(2)


def test_client_groups_of_an_earlier_round_are_refused_before_training(tmp_path):
    trained = lambda asked: federation.run(  # noqa: E731
        a_task(), Momentum(whole_run=True), tiny.clients(), Store(tmp_path), "key", {}, evaluated=asked, progress=False
    )
    with pytest.raises(ValueError, match=r"Momentum: .* for the final model only: ask for round -1, not 2"):
        trained([2, ROUNDS + 1])
    assert Store(tmp_path).names("train", "key") == ["clients-00001", "round-00001"]
    assert not trained([ROUNDS + 1]).cached


def test_two_runs_same_bits_another_seed_other_bits():
    first, second = bits(trained(Store(None))), bits(trained(Store(None)))
    assert_same(first, second)
    other = federation.run(a_task(seed=1), FedAvg(), tiny.clients(), Store(None), "key", {}, progress=False)
    assert not torch.equal(other.state(3)["model"]["head.weight"], first[2]["head.weight"])


@pytest.mark.parametrize("method", [FedAvg(), Momentum()])
def test_a_longer_run_goes_on_and_a_shorter_one_is_there(tmp_path, method):
    store = Store(tmp_path)
    short = bits(trained(store, method, rounds=2), range(1, 4))
    long = trained(store, method)
    assert not long.cached
    assert_same(bits(long), bits(trained(Store(None), method)))
    again = trained(store, method, rounds=2)
    assert again.cached
    assert_same(bits(again, range(1, 4)), short)


def test_client_groups_keep_only_their_latest_value(tmp_path):
    store = Store(tmp_path)
    trained(store, Momentum())
    assert [name for name in store.names("train", "key") if name.startswith("clients-")] == ["clients-00005"]
    drift = store.load("train", "key", "clients-00005")["client_drift/bias"]
    whole = trained(Store(None), Momentum()).state(ROUNDS + 1)["client_drift"]["bias"]
    assert torch.equal(drift, whole)
    assert drift.abs().min() > 0


def test_cohorts_are_shared_derived_and_a_prefix_of_longer_runs():
    drawn = cohorts(10, 6, 0.3, seed=4)
    assert drawn == cohorts(10, 6, 0.3, seed=4)
    assert drawn == cohorts(10, 20, 0.3, seed=4)[:6]
    assert drawn != cohorts(10, 6, 0.3, seed=5)
    assert drawn[:2] == [[1, 6, 9], [1, 5, 6]], "as in trainings that are published or cached"
    assert all(len(set(cohort)) == 3 and cohort == sorted(cohort) and set(cohort) <= set(range(10)) for cohort in drawn)
    assert len({tuple(cohort) for cohort in drawn}) > 1
    assert {k for cohort in cohorts(10, 40, 0.3, seed=4) for k in cohort} == set(range(10))
    assert cohorts(3, 2, 1.0, seed=0) == [[0, 1, 2]] * 2
    assert [len(cohort) for cohort in cohorts(3, 2, 0.01, seed=0)] == [1, 1]


def test_only_the_cohort_trains():
    seen = []

    @dataclass(frozen=True)
    class Watching(FedAvg):
        def update(self, task, server, cohort, round):
            seen.append([client.id for client in cohort])
            return super().update(task, server, cohort, round)

    trajectory = trained(Store(None), Watching())
    assert seen == trajectory.cohorts == cohorts(3, ROUNDS, 0.67, seed=0)


def test_clients_outside_the_cohort_hold_the_previous_model():
    """Targets (here the first and the last client) never train; they hold the current model in every round."""
    target = lambda k: replace(tiny.client(k), source=False)  # noqa: E731
    members = [target(8), *tiny.clients(), target(9)]
    trajectory = trained(Store(None), clients=members)
    for t in range(1, ROUNDS + 2):
        current, previous = trajectory.state(t)["model"], trajectory.state(max(1, t - 1))["model"]
        received = trajectory.received(t, len(members))
        in_cohort = range(3) if t == ROUNDS + 1 else trajectory.cohorts[t - 1]
        for k, model in enumerate(received):
            is_current = k in (0, 4) or k - 1 in in_cohort
            assert torch.equal(model["head.bias"], (current if is_current else previous)["head.bias"])
    assert any(len(cohort) < 3 for cohort in trajectory.cohorts)


def test_everyone_receives_the_current_model_at_full_participation():
    trajectory = trained(Store(None), participation=1.0, clients=[*tiny.clients(), replace(tiny.client(3), source=False)])
    received = trajectory.received(3, 4)
    assert all(model is received[0] for model in received)
    assert torch.equal(received[0]["head.bias"], trajectory.state(3)["model"]["head.bias"])


def test_a_round_is_loaded_as_one_object(tmp_path):
    trajectory = trained(Store(tmp_path))
    assert trajectory.state(2)["model"] is trajectory.state(2)["model"]


@pytest.mark.parametrize("t", [0, ROUNDS + 2])
def test_rounds_out_of_range(t):
    with pytest.raises(ValueError, match=r"outside 1\.\.5"):
        trained(Store(None)).state(t)


def test_divergence_is_an_error_that_names_client_and_round():
    local = replace(a_task().schedule.local, lr=1e30)
    with pytest.raises(FloatingPointError, match=r"client \d, round 1.*Lower the learning rate"):
        trained(Store(None), local=local)


def test_sparse_checkpoints_resume_to_the_same_bits(tmp_path):
    whole = trained(Store(None))
    store = Store(tmp_path)
    with pytest.raises(Interrupted):
        trained(store, Stopping(FedAvg(), 4), save_every=2)
    sparse = trained(store, save_every=2)
    assert torch.equal(sparse.state(ROUNDS + 1)["model"]["head.weight"], whole.state(ROUNDS + 1)["model"]["head.weight"])
    with pytest.raises(ValueError, match="not kept"):
        sparse.state(2)


def test_resplit_draws_the_training_part_anew_every_round():
    seen = []

    @dataclass(frozen=True)
    class Watching(FedAvg):
        def update(self, task, server, cohort, round):
            seen.append([client.train.labels for client in cohort])
            return super().update(task, server, cohort, round)

    members = [replace(tiny.client(k), pool=tiny.samples(40, k)) for k in range(2)]
    trained(Store(None), Watching(), members, participation=1.0)
    for k in range(2):
        assert len({tuple(round[k].tolist()) for round in seen}) == ROUNDS
        assert all(len(round[k]) == 9 for round in seen)


def test_the_folder_is_locked_while_training_and_free_afterwards(tmp_path):
    states = []

    @dataclass(frozen=True)
    class Watching(FedAvg):
        def update(self, task, server, cohort, round):
            try:
                FileLock(tmp_path / "train" / "key" / ".lock").acquire(timeout=0)
            except TimeoutError:
                states.append("locked")
            return super().update(task, server, cohort, round)

    trained(Store(tmp_path), Watching())
    assert states == ["locked"] * ROUNDS
    with FileLock(tmp_path / "train" / "key" / ".lock").acquire(timeout=0):
        pass


def test_a_diverged_client_can_be_dropped_but_not_all():
    """Client 1 sends infinities: the round is the others' mean. Where all do, dropping is no way out."""

    @dataclass(frozen=True)
    class Broken(FedAvg):
        broken: tuple[int, ...] = (1,)

        def update(self, task, server, cohort, round):
            messages = super().update(task, server, cohort, round)
            bad = {n: t * torch.inf for n, t in messages[0].items()}
            return [bad if client.id in self.broken else message for client, message in zip(cohort, messages, strict=True)]

    drop = replace(a_task().schedule.local, diverged="drop")
    members = [tiny.client(k) for k in range(3)]
    state = trained(Store(None), Broken(), members, local=drop, participation=1.0, rounds=1).state(2)["model"]
    expected = trained(Store(None), FedAvg(), [members[0], members[2]], local=drop, participation=1.0, rounds=1).state(2)["model"]
    for name in state:
        torch.testing.assert_close(state[name], expected[name])
    with pytest.raises(FloatingPointError, match="client 2, round 1"):
        trained(Store(None), Broken(broken=(0, 1, 2)), members, local=drop, participation=1.0)


@dataclass(frozen=True)
class Forgetful(FedAvg):
    """Keeps what its clients hold, but does not say so."""

    def init(self, task, clients):
        model = super().init(task, clients)
        own = {"head.bias": torch.zeros(len(clients), tiny.CLASSES)}
        return model | {"client_model": own}


def test_what_clients_hold_has_to_be_said():
    with pytest.raises(ValueError, match="needs whole_run = True"):
        trained(Store(None), Forgetful())
