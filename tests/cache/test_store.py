import hashlib
import math
import os
import pickle
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlib.cache.store import FORMAT, NotCached, Store, describe, digest, key_of
from fedlib.core import Local, Schedule
from fedlib.stages.engine import Engine

TENSORS = {
    "b": torch.arange(3),
    "a": torch.tensor([[1.5, -2.0], [0.0, float("inf")]]),
    "flag": torch.tensor([True, False]),
    "scalar": torch.tensor(2.0, dtype=torch.float64),
    "empty": torch.zeros(0, 3),
}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def saved(store):
    store.save("train", "key", "round-1", TENSORS, {"rate": 0.1})
    return store.folder("train", "key") / "round-1.safetensors"


def assert_equal(loaded):
    assert list(loaded) == list(TENSORS)
    for name, tensor in TENSORS.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)


def test_what_is_saved_is_loaded(store):
    saved(store)
    assert_equal(store.load("train", "key", "round-1"))
    assert store.names("train", "key") == ["round-1"]
    store.remove("train", "key", "round-1")
    store.remove("train", "key", "round-1")
    assert store.load("train", "key", "round-1") is None
    assert (store.names("train", "key"), store.names("train", "other")) == ([], [])


def test_views_of_one_memory_and_any_layout(store):
    base = torch.arange(24.0).view(2, 3, 2, 2)
    tensors = {"first": base[0], "second": base[1], "all": base, "last": base.contiguous(memory_format=torch.channels_last)}
    store.save("s", "k", "n", tensors, {})
    loaded = store.load("s", "k", "n")
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())
    assert digest(loaded) == digest(tensors)


def test_digest_of_an_empty_selection_of_numpy():
    nothing = torch.from_numpy(np.arange(3)[np.arange(0)])
    assert digest({"labels": nothing}) == digest({"labels": torch.arange(0)})


def test_no_root_keeps_nothing():
    store = Store(None)
    store.save("s", "k", "n", TENSORS, {})
    assert store.load("s", "k", "n") is None
    assert store.names("s", "k") == []
    store.remove("s", "k", "n")


def damage(name, content):
    return {
        "truncated": content[: len(content) // 2],
        "header only": content[:8],
        "empty": b"",
        "pickle": pickle.dumps({"a": 1}),
        "text": b"not a tensor file at all, just some text",
        "huge header": b"\xff" * 16 + content,
    }[name]


@pytest.mark.parametrize("name", ["truncated", "header only", "empty", "pickle", "text", "huge header"])
def test_a_damaged_file_is_set_aside(store, name):
    path = saved(store)
    content = damage(name, path.read_bytes())
    path.write_bytes(content)
    with pytest.warns(UserWarning, match="set aside as round-1.damaged"):
        assert store.load("train", "key", "round-1") is None
    assert not path.exists()
    assert path.with_suffix(".damaged").read_bytes() == content
    assert store.names("train", "key") == []
    saved(store)
    assert_equal(store.load("train", "key", "round-1"))


def test_where_no_file_can_be_opened_none_is_set_aside(store, monkeypatch):
    path = saved(store)

    def refuse(*_, **__):
        raise OSError("too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("fedlib.cache.store.safe_open", refuse)
        patched.setattr(Path, "open", refuse)
        with pytest.raises(OSError, match="too many open files"):
            store.load("train", "key", "round-1")
    assert path.exists()
    assert_equal(store.load("train", "key", "round-1"))


def test_a_file_of_another_program_or_format_is_set_aside(store):
    from safetensors.torch import save_file

    path = saved(store)
    for metadata in (None, {"format": "0", "digest": digest(TENSORS)}, {"format": str(FORMAT)}):
        save_file(TENSORS, path, metadata)
        with pytest.warns(UserWarning, match="damaged or foreign"):
            assert store.load("train", "key", "round-1") is None


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_no_flipped_bit_of_the_tensors_or_their_description_passes(tmp_path_factory, data):
    store = Store(tmp_path_factory.mktemp("store"))
    path = saved(store)
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded = store.load("train", "key", "round-1")
    # The flip may hit the manifest, which is for readers only, or blank space: then the tensors must be the right ones.
    if loaded is None:
        assert len(caught) == 1
    else:
        assert_equal(loaded)


def test_every_byte_of_the_tensor_data_is_guarded(store):
    content = saved(store).read_bytes()
    size = sum(t.numel() * t.element_size() for t in TENSORS.values())
    for position in range(len(content) - size, len(content)):
        flipped = bytearray(content)
        flipped[position] ^= 1
        saved(store).write_bytes(flipped)
        with pytest.warns(UserWarning, match="digest"):
            assert store.load("train", "key", "round-1") is None


def test_nothing_is_unpickled(store, tmp_path):
    class Trap:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "sprung"),))

    path = saved(store)
    torch.save({"a": Trap()}, path)
    with pytest.warns(UserWarning, match="damaged"):
        assert store.load("train", "key", "round-1") is None
    assert not (tmp_path / "sprung").exists()


def test_an_interrupted_write_leaves_the_old_file(store, monkeypatch):
    path = saved(store)

    def full(tensors, temporary, metadata):
        temporary.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr("fedlib.cache.store.save_file", full)
    with pytest.raises(OSError, match=r"round-1\.safetensors: No space left.*free disk space"):
        store.save("train", "key", "round-1", {"a": torch.zeros(1)}, {})
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert_equal(store.load("train", "key", "round-1"))


def test_a_killed_writer_leaves_nothing_that_counts(store):
    path = saved(store)
    path.with_name(f".{path.name}.99999").write_bytes(b"half a file")
    assert store.names("train", "key") == ["round-1"]
    assert_equal(store.load("train", "key", "round-1"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_named(store, tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(OSError, match="make the folder writable"):
            saved(store)
    finally:
        tmp_path.chmod(0o700)


def test_a_folder_that_is_a_file_is_named(tmp_path):
    (tmp_path / "cache").write_text("")
    with pytest.raises(OSError, match="set another cache folder"):
        saved(Store(tmp_path / "cache"))


def test_the_manifest_can_be_read_without_the_kit(store):
    from safetensors import safe_open

    with safe_open(saved(store), framework="numpy") as file:
        assert file.metadata()["manifest"] == '{"rate": 0.1}'


def test_locks_exclude_each_other(store):
    from filelock import FileLock, Timeout

    with store.lock("train", "key"), pytest.raises(Timeout):
        FileLock(store.folder("train", "key") / ".lock").acquire(timeout=0.01)
    with store.lock("train", "other"), store.lock("train", "key"):
        pass


@dataclass(frozen=True)
class Method:
    rate: float = 0.1
    name: str = "a"
    schedule: Schedule = Schedule()
    levels: tuple[int, ...] = (1, 2)
    limit: int | None = None


@dataclass(frozen=True)
class Namesake:
    rate: float = 0.1
    name: str = "a"
    schedule: Schedule = Schedule()
    levels: tuple[int, ...] = (1, 2)
    limit: int | None = None


def test_keys_change_with_every_field():
    local = Local()
    changed = [
        Method(),
        Method(rate=0.1 + 1e-16 + 1e-15),
        Method(name="b"),
        Method(levels=(2, 1)),
        Method(levels=(1,)),
        Method(limit=0),
        Method(schedule=Schedule(rounds=99)),
        Method(schedule=Schedule(local=replace(local, momentum=0.5))),
        Method(schedule=Schedule(personal=replace(Schedule().personal, steps=3))),
        Namesake(),
    ]
    keys = [key_of({"method": method}) for method in changed]
    assert len(set(keys)) == len(changed)
    assert keys[0] == key_of({"method": Method()})
    assert key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1})
    assert key_of({"seed": 1}) != key_of({"seed": "1"})


def test_keys_are_the_same_in_every_process():
    text = b'{"method": {"Schedule": {"rounds": 5}}, "seed": 3}'
    assert key_of({"seed": 3, "method": Schedule(rounds=5)}) == hashlib.blake2b(text, digest_size=10).hexdigest()


def test_defaults_are_left_out_but_never_the_version():
    @dataclass(frozen=True)
    class Versioned:
        rate: float = 0.1
        version: int = 1
        hidden: int = field(default=0, repr=False)

    assert list(describe(Versioned()).values()) == [{"version": 1}]
    assert list(describe(Versioned(0.2, hidden=5)).values()) == [{"rate": 0.2, "version": 1, "hidden": 5}]
    # The package hides what changes no number.
    assert describe(Engine(processes=2)) == describe(Engine())
    assert describe(Schedule(local=Local(lr=0.5))) == {"Schedule": {"local": {"Local": {"lr": 0.5}}}}


class Plain:
    """A user's class that is no dataclass."""

    def __init__(self, rate):
        self.rate = rate


def test_an_object_of_a_plain_class_is_known_by_its_class_and_attributes():
    assert list(describe(Plain(0.5)).values()) == [{"rate": 0.5}]
    assert len({key_of({"method": Plain(rate)}) for rate in (1, 2, 1)}) == 2


def test_arrays_and_numbers_of_numpy():
    @dataclass(frozen=True)
    class Prior:
        weights: np.ndarray | None = None

    keys = {key_of({"method": Prior(weights)}) for weights in (None, np.ones(3), torch.ones(3).double(), np.zeros(3), np.ones(2))}
    assert len(keys) == 4
    assert key_of({"seed": np.int64(3)}) == key_of({"seed": 3})
    assert len({key_of({"cap": cap}) for cap in (math.inf, -math.inf, np.float64("inf"), 1.0)}) == 3


def test_what_cannot_be_described_is_an_error():
    with pytest.raises(TypeError, match="function"):
        describe({"loss": digest})
    with pytest.raises(ValueError):
        key_of({"rate": float("nan")})


def test_digest_sees_names_types_shapes_and_values():
    a = torch.arange(4.0)
    different = [{"x": a}, {"y": a}, {"x": a.view(2, 2)}, {"x": a.double()}, {"x": -a}, {"x": a, "y": a}, {}]
    assert len({digest(tensors) for tensors in different}) == len(different)
    assert digest({"x": torch.tensor(0.0)}) != digest({"x": torch.tensor(-0.0)})
    assert digest({"x": a.view(2, 2).T}) == digest({"x": a.view(2, 2).T.contiguous()})
    assert digest({"x": a, "y": a}) == digest({"y": a, "x": a})


def test_a_store_that_is_only_read_says_what_would_be_computed(tmp_path):
    Store(tmp_path).save("train", "key", "round", {"a": torch.ones(2)}, {})
    store = Store(tmp_path, only_read=True)
    assert torch.equal(store.load("train", "key", "round")["a"], torch.ones(2))
    with pytest.raises(NotCached, match="train key"), store.lock("train", "key"):
        pass


def test_a_folder_in_the_place_of_a_file_is_set_aside_or_named(tmp_path):
    store = Store(tmp_path)
    for name in ("round-00001.safetensors", "round-00002.safetensors", ".lock"):
        (tmp_path / "train" / "key" / name).mkdir(parents=True)
    with pytest.warns(UserWarning, match="set aside as round-00001.damaged"):
        assert store.load("train", "key", "round-00001") is None
    store.save("train", "key", "round-00001", {"w": torch.ones(2)}, {})
    with pytest.raises(OSError, match=r"round-00002\.safetensors is a folder where a file belongs: remove it"):
        store.save("train", "key", "round-00002", {"w": torch.ones(2)}, {})
    with pytest.raises(OSError, match=r"\.lock is a folder where a file belongs: remove it"), store.lock("train", "key"):
        pass


@pytest.mark.parametrize("place", ["train/key", "train"])
def test_a_file_in_the_place_of_a_folder_is_named(tmp_path, place):
    store, file = Store(tmp_path), tmp_path / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("")
    message = rf"{place} is a file where a folder belongs: remove it"
    with pytest.raises(OSError, match=message):
        store.save("train", "key", "round-00001", {"w": torch.ones(2)}, {})
    with pytest.raises(OSError, match=message), store.lock("train", "key"):
        pass
