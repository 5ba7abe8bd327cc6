"""What a trimmed cache still answers, and that whatever it no longer holds comes back with the same bits."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fedlib import federation
from fedlib.cache import contents as cache
from fedlib.cache import trim
from fedlib.cache.store import DROPPED, Store
from fedlib.group import Group
from fedlib.personalize.ditto import Ditto
from fedlib.setting import Request
from fedlib.train.fedavg import FedAvg
from tests.test_federation import ROUNDS, Momentum, a_task, assert_same, bits, trained
from tests.trust import job

ALL, REQUEST = float("inf"), {"rounds": (0, -1), "extras": ("weight",)}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("cache")
    return root, job.run(root)


@pytest.fixture(params=[ALL, 0], ids=["last states stay", "no states stay"])
def trimmed(made, tmp_path, monkeypatch, request):
    """A copy of the cache of a run, trimmed; and what the run gave."""
    os.system(f"cp -r {made[0]}/. {tmp_path}/")
    monkeypatch.setattr(trim, "SMALL", 0)
    freed = size(made[0]) - size(tmp_path)
    assert freed == 0
    freed = trim.trim(tmp_path, 0, request.param)
    assert size(made[0]) - size(tmp_path) == freed > 0
    return tmp_path, made[1], request.param


def size(root):
    return sum(path.stat().st_size for path in root.rglob("*.safetensors"))


def longer(rounds):
    return (replace(job.SETTING, schedule=replace(job.SETTING.schedule, rounds=rounds)),)


@pytest.fixture
def worked(monkeypatch):
    """(what was done, round) of every training round, lasting personal phase and adaptation."""
    done = []

    def watch(owner, name, round_of):
        original = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, **o: done.append((name, round_of(a))) or original(*a, **o))

    watch(FedAvg, "update", lambda a: a[4])
    watch(Ditto, "fit", lambda a: a[5])
    watch(Group, "_fitted", lambda a: a[2])
    watch(Group, "_adapted", lambda a: a[2])
    return done


def test_the_same_run_only_reads(trimmed, worked):
    root, frame, _ = trimmed
    again = job.run(root)
    job.assert_same_rows(again, frame)
    assert again[["cached", "train_cached"]].all(axis=None)
    assert not worked


def test_what_stays(trimmed, made):
    root, _, limit = trimmed
    for folder in (root / "train").iterdir():
        names = Store(root).names("train", folder.name)
        assert [name for name in names if name.startswith("round-")] == (["round-00003", "round-00004"] if limit else [])
    for folder in (root / "personalize").iterdir():
        assert Store(root).names("personalize", folder.name) == (["round-00004"] if limit else [])
    assert all(Store(root).load("adapt", folder.name, "scores") for folder in (root / "adapt").iterdir())
    before, after = ({e.key: (e.rounds, len(e.folders), e.about) for e in cache.entries(place)} for place in (made[0], root))
    assert before == after


@pytest.mark.parametrize("trimmed", [ALL], indirect=True)
def test_a_longer_run_goes_on_from_the_last_state(trimmed, worked):
    root, _, _ = trimmed
    went_on = job.run(root, settings=longer(5))
    assert {t for name, t in worked if name == "update"} == {4, 5}
    assert {t for name, t in worked if name == "fit"} == {5, 6}
    job.assert_same_rows(went_on, job.run(None, settings=longer(5)))


@pytest.mark.parametrize("trimmed", [0], indirect=True)
def test_a_longer_run_without_any_state_starts_anew_and_says_so(trimmed):
    root, _, _ = trimmed
    with pytest.warns(UserWarning, match="starts over: it has to continue, but its states were dropped to save space"):
        went_on = job.run(root, settings=longer(5))
    job.assert_same_rows(went_on, job.run(None, settings=longer(5)))


def test_an_earlier_round_is_trained_again_from_the_start_once(trimmed, worked, made):
    root, frame, _ = trimmed
    request = Request((2, 0, -1), extras=("weight",))
    with pytest.warns(UserWarning, match="starts over: its round [12] is needed, but its states were dropped") as said:
        earlier = job.run(root, request=request)
    assert len([w for w in said if "starts over" in str(w.message)]) == 3  # trainings
    assert [t for name, t in worked if name == "update"] == [1, 2, 3] * 2  # of FedAvg
    job.assert_same_rows(earlier, job.run(None, request=request))
    worked.clear()
    job.run(root, request=request)
    assert not worked
    job.assert_same_rows(job.run(root), frame)
    for folder in (root / "train").iterdir():
        assert not (folder / DROPPED).exists()
        assert Store(root).names("train", folder.name) == Store(made[0]).names("train", folder.name)


def keep_last(root, participation=0.67):
    """Trim a training of ``test_federation`` as ``trim`` does, by its participation."""
    store = Store(root)
    federation.run(a_task(participation=participation), FedAvg(), job.tiny.clients(), store, "key", {"participation": participation})
    return store, trim.trim(root, 0, ALL)


def test_at_partial_participation_what_the_others_still_hold_stays(tmp_path):
    store, freed = keep_last(tmp_path)
    assert freed > 0
    assert store.names("train", "key") == ["round-00003", "round-00004", "round-00005"]
    again = trained(store)
    assert again.cached
    whole = trained(Store(None))
    for t in (ROUNDS, ROUNDS + 1):  # a warning is an error
        assert_same(again.received(t, 3), whole.received(t, 3))


@pytest.mark.parametrize("victim", ["round-00003", "round-00004", "round-00005", DROPPED])
@pytest.mark.parametrize("content", [b"", b"[]"])
@pytest.mark.filterwarnings("default:.*(set aside|starts over)")
def test_a_damaged_file_heals(tmp_path, victim, content, worked):
    store, _ = keep_last(tmp_path)
    path = store.folder("train", "key") / (victim if victim == DROPPED else f"{victim}.safetensors")
    path.write_bytes(content)
    whole = bits(trained(Store(None)))
    worked.clear()
    assert_same(bits(trained(store), (5, 4, 3)), whole[:1:-1])
    again = {"round-00004": [3, 4], "round-00005": [4]}.get(victim, [1, 2, 3, 4])  # from the state before the damaged one, where it stays
    assert [t for _, t in worked] == again
    assert_same(bits(trained(store)), whole)
    again = trained(store)
    assert again.cached
    assert_same(bits(again), whole)


@pytest.mark.parametrize("whole_run", [False, True])
@pytest.mark.parametrize("limit", [ALL, 0])
@pytest.mark.filterwarnings("default:.*starts over")
def test_what_clients_hold_comes_back_too(tmp_path, whole_run, limit):
    store, method = Store(tmp_path), Momentum(whole_run)
    whole = trained(store, method).state(ROUNDS + 1)
    assert trim.trim(tmp_path, 0, limit) > 0
    again = trained(store, method)
    assert again.cached
    for group, state in again.state(ROUNDS + 1).items():
        assert_same([state], [whole[group]])
    if not whole_run:
        assert_same(bits(again), bits(trained(Store(None), method)))
        trim.trim(tmp_path, 0, limit)
        final = trained(store, method, rounds=6).state(7)
        assert_same(final.values(), trained(Store(None), method, rounds=6).state(7).values())


@pytest.mark.filterwarnings("default:.*starts over")
def test_who_found_the_training_whole_gets_what_was_dropped_since(tmp_path):
    store = Store(tmp_path)
    trained(store)
    reader = trained(store)
    assert reader.cached
    assert trim.trim(tmp_path, 0, 0) > 0
    assert_same(bits(reader), bits(trained(Store(None))))


@pytest.mark.parametrize("killed", [1, 2])
@pytest.mark.filterwarnings("default:.*starts over")
def test_begun_anew_and_killed_it_still_has_its_last_state_and_goes_on(tmp_path, monkeypatch, worked, killed):
    store, _ = keep_last(tmp_path, participation=1.0)
    whole, after = bits(trained(Store(None), participation=1.0)), federation._after

    def dying(task, method, server, cohort, round):
        if round == killed:
            raise KeyboardInterrupt
        return after(task, method, server, cohort, round)

    monkeypatch.setattr(federation, "_after", dying)
    with pytest.raises(KeyboardInterrupt):
        trained(store, participation=1.0).state(1)
    monkeypatch.setattr(federation, "_after", after)
    worked.clear()
    assert_same(bits(trained(store, participation=1.0), (5,)), whole[4:])
    assert not worked
    again = trained(store, participation=1.0)
    assert again.cached
    assert_same(bits(again), whole)
    assert [t for _, t in worked] == list(range(killed, ROUNDS + 1))
    assert not (store.folder("train", "key") / DROPPED).exists()


@pytest.mark.filterwarnings("default:.*starts over")
def test_a_state_that_another_processor_has_rounded_otherwise_stays(tmp_path):
    """Scores may rest on it, of other methods in the same table."""
    store, _ = keep_last(tmp_path, participation=1.0)
    kept = {name: tensor + 1e-6 for name, tensor in store.load("train", "key", "round-00005").items()}
    store.save("train", "key", "round-00005", kept, {})
    with pytest.warns(UserWarning, match="training key, begun anew, comes out otherwise than its state before round 5 in the cache"):
        found = bits(trained(store, participation=1.0))
    assert_same(found[:4], bits(trained(Store(None), participation=1.0))[:4])
    assert_same(found[4:], [{name.removeprefix("model/"): tensor for name, tensor in kept.items()}])


def test_killed_half_way_nothing_is_lost(made, tmp_path, monkeypatch, worked):
    os.system(f"cp -r {made[0]}/. {tmp_path}/")
    monkeypatch.setattr(trim, "SMALL", 0)
    unlink, left = Path.unlink, [3]

    def dying(path, *arguments, **options):
        if path.suffix == ".safetensors" and not path.name.startswith("."):
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
        unlink(path, *arguments, **options)

    monkeypatch.setattr(Path, "unlink", dying)
    with pytest.raises(KeyboardInterrupt):
        trim.trim(tmp_path, 0, 0)
    monkeypatch.setattr(Path, "unlink", unlink)
    job.assert_same_rows(job.run(tmp_path), made[1])
    assert not worked
    assert trim.trim(tmp_path, 0, 0) > 0
    job.assert_same_rows(job.run(tmp_path), made[1])
    assert not worked


def test_what_others_use_or_compute_stays(made, tmp_path, monkeypatch):
    os.system(f"cp -r {made[0]}/. {tmp_path}/")
    monkeypatch.setattr(trim, "SMALL", 0)
    before = size(tmp_path)
    with Store(tmp_path).in_use():
        for entry in cache.entries(tmp_path):
            Store(tmp_path).note("train", entry.key, {})
        assert trim.trim(tmp_path, 0, 0) == 0
    first, *others = cache.entries(tmp_path)
    with job.computing(tmp_path, first.key):
        assert trim.trim(tmp_path, 0, 0) > 0
    assert not any((folder / DROPPED).exists() for folder in first.folders)
    assert all((other.folders[0] / DROPPED).exists() for other in others)
    assert trim.trim(tmp_path, time.time() + 1, 0) == 0  # not used since
    assert size(tmp_path) < before


def test_down_to_the_limit_the_trainings_with_fewest_rounds_lose_their_states_first(made, tmp_path, monkeypatch):
    os.system(f"cp -r {made[0]}/. {tmp_path}/")
    monkeypatch.setattr(trim, "SMALL", 0)
    shown = {"ditto": job.RECIPES["ditto"]}
    job.run(tmp_path, shown, settings=longer(6))
    trim.trim(tmp_path, 0, ALL)
    total = sum(entry.size for entry in cache.entries(tmp_path))
    shorter = {entry.key: entry.size for entry in cache.entries(tmp_path) if entry.rounds < 6}
    trim.trim(tmp_path, 0, total - 1)
    lost = [entry.key for entry in cache.entries(tmp_path) if not Store(tmp_path).names("train", entry.key)]
    assert len(set(shorter.values())) > 1
    assert lost == [max(shorter, key=shorter.get)], "of as many rounds the largest"
    assert sum(entry.size for entry in cache.entries(tmp_path)) < total
    trim.trim(tmp_path, 0, 0)
    assert not any(Store(tmp_path).names("train", entry.key) for entry in cache.entries(tmp_path))


def test_small_personal_parts_stay(made, tmp_path):
    os.system(f"cp -r {made[0]}/. {tmp_path}/")
    trim.trim(tmp_path, 0, 0)
    assert {**job.tensors(tmp_path)}.keys() == {name for name in job.tensors(made[0]) if not name.startswith("train/")}
