"""Trained federations to start from instead of training: ``fedlib.pretrained("digits/fedthe")``.

Beside the results of a run, the folder ``pretrained`` holds the last states of its trainings and their small personal parts
(``fedlib export`` makes it), as safetensors, and ``manifest.json``: data, settings, seeds, methods, versions, and the accuracy that the run
measured on each test. Everything after training runs from them as it would from the training itself, and so it does from several together:
``fedlib.pretrained("cifar10-jpeg/btfl-three + mine/fedrep")``. What they do not hold raises ``NotHeld`` before anything is computed.
"""

import dataclasses
import functools
import hashlib
import json
import sysconfig
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedlib.cache.store import describe, key_of, read
from fedlib.core import FINAL, RECEIVED, Client, Personalizer, Recipe, State, Task
from fedlib.federation import Trajectory, cohorts, unflatten
from fedlib.plain import plain, rebuilt
from fedlib.setting import Setting
from fedlib.tools.names import check_name
from fedlib.tools.parameters import PROJECT

FOLDER, MANIFEST, FORMAT = "pretrained", "manifest.json", 1
TOGETHER = " + "  # between the names of several
CARRIED = "carried"
# Where they are looked for: beside the results, and, those that come with an installed package, with its notebooks.
HOMES = (PROJECT / "figures", Path(sysconfig.get_path("data")) / "share" / "fedlib" / "pretrained")
# What a training's key names besides what was trained: with what it was computed, which does not matter to who starts from its end.
COMPUTED_WITH = ("torch", "engine")
# Notebook parameters that no one may change who starts from a trained federation.
TRAINED = ("dataset", "clients", "rounds", "local_epochs", "lr", "momentum", "batch_size", "split")
OTHER_DATA = "the training images, their labels or their distribution over clients are others"


class NotHeld(FileNotFoundError):
    """What a trained federation does not hold."""


@dataclasses.dataclass(frozen=True, eq=False)
class Pretrained:
    """A trained federation. ``name``; ``folder``; ``manifest``: the content of its manifest.json.

    ``settings``, ``seeds``, ``methods``: what there is to run from it; ``accuracy``: what the run that it comes from measured.
    """

    name: str
    folder: Path
    manifest: dict

    def __str__(self) -> str:
        told: dict[str, tuple[dict, dict]] = {}
        for f in self.federations:
            states = f"seed {f['seed']}, before round {' and '.join(map(str, self.rounds(f)))} of {f['rounds']}"
            training = f"{json.dumps(f['manifest']['train'])} of {f['setting']['model']} on {f['images']}, {states}"
            for names, new in zip(told.setdefault(training, ({}, {})), ([f["setting"]["label"]], f["measured"]), strict=True):
                names |= dict.fromkeys(new)
        return "\n  ".join([self.name, *(f"{what}: {'; '.join(s)}\n    {', '.join(m)}" for what, (s, m) in told.items())])

    __repr__ = __str__

    @property
    def federations(self) -> list[dict]:
        return self.manifest["federations"]

    @property
    def settings(self) -> list[Setting]:
        """The settings that were trained, as ``fedlib.run`` takes them: under each label the run's first, and one for every other number of
        rounds and every other network, which end the label then. Those of protocols and networks of a user's are left out."""
        told: dict[str, dict[tuple, Setting]] = {}
        for setting in filter(None, (rebuilt(f["setting"]) for f in self.federations)):
            told.setdefault(setting.label, {}).setdefault((setting.schedule.rounds, setting.model), setting)
        return [
            dataclasses.replace(setting, label=label + (rounds != first[0]) * f", {rounds} rounds" + (model != first[1]) * f", {model}")
            for label, found in told.items()
            for first in [next(iter(found))]
            for (rounds, model), setting in found.items()
        ]

    @property
    def seeds(self) -> list[int]:
        return sorted({f["seed"] for f in self.federations})

    @property
    def methods(self) -> list[str]:
        """The methods of the run that can start here."""
        return list(dict.fromkeys(method for f in self.federations for method in f["measured"]))

    @property
    def accuracy(self) -> pd.DataFrame:
        """Percent, the mean over clients: setting, seed, method, round, column, accuracy, n (test images of all clients)."""
        rows = [
            {"setting": f["setting"]["label"], "seed": f["seed"], "method": method, "round": int(round), "column": column}
            | {"accuracy": accuracy, "n": n}
            for f in self.federations
            for method, told in f["measured"].items()
            for round, columns in told["rounds"].items()
            for column, (accuracy, n) in columns.items()
        ]
        return pd.DataFrame(rows)

    @property
    def profile(self) -> str:
        return self.manifest["run"]["profile"]

    @property
    def parameters(self) -> dict[str, Any]:
        """The notebook parameters of the run."""
        return self.manifest["run"]["parameters"]

    def rounds(self, federation: Mapping) -> list[int]:
        """The rounds before which a training's states are held, of those that can be asked for."""
        held = {state["round"] for state in self.manifest["states"] if state["training"] == federation["training"]}
        return sorted(held & {federation["rounds"], federation["rounds"] + 1})

    def resolved(self, federation: Mapping) -> set[int]:
        """The same, and how a request may call them."""
        last = federation["rounds"]
        return {t for round in self.rounds(federation) for t in (round, RECEIVED if round == last else FINAL)}

    def check(self, recipes: Mapping[str, Recipe], seeds: Sequence[int]) -> None:
        """Raise NotHeld for a method or a seed that cannot start here."""
        if absent := sorted(set(seeds) - set(self.seeds)):
            raise NotHeld(f"{self.name} holds seed {_listed(self.seeds)}, not {_listed(absent)}")
        for name, recipe in recipes.items():
            train = describe(recipe.train)
            own = {f["training"]: f["seed"] for f in self.federations if f["manifest"]["train"] == train}
            what = ""
            if not own:
                others = dict.fromkeys(json.dumps(f["manifest"]["train"]) for f in self.federations)
                what = f"no training {json.dumps(train)}, only {' and '.join(others)}"
            elif absent := sorted({*seeds} - {*own.values()}):
                what = f"the training {json.dumps(train)} with seed {_listed(sorted({*own.values()}))}, not {_listed(absent)}"
            elif _persists(recipe.personalize) and describe(recipe.personalize) not in self._parts(own):
                what = f"no personal part {json.dumps(describe(recipe.personalize))}, which lives through all rounds"
            if what:
                left = "; ".join(self.manifest["left_out"])
                raise NotHeld(
                    f"{name} cannot start from {self.name}: it holds {what}"
                    + (f" (left out of it: {left})" if left else "")
                    + f". fedlib.pretrained({self.name!r}) lists the methods that can"
                )

    def _parts(self, trainings: Collection[str]) -> list:
        manifests = [part["manifest"] for part in self.manifest["parts"]]
        return [manifest["personalize"] for manifest in manifests if manifest["train"] in trainings]

    def held(self, manifest: dict, setting: Setting, seed: int, rounds: Sequence[int]) -> "Held":
        """The training with this key's content, whose states before ``rounds`` are wanted. Raises NotHeld, naming what differs from the
        nearest one, or the rounds that there are."""
        wanted, nearest = describe(manifest), None
        for f in self.federations:
            differs = [name for name in sorted({*wanted, *f["manifest"]} - {*COMPUTED_WITH}) if wanted.get(name) != f["manifest"].get(name)]
            differs += ["length"] if f["rounds"] != setting.schedule.rounds else []
            if not differs:
                break
            if nearest is None or len(differs) < len(nearest[0]):
                nearest = differs, f
        else:
            raise NotHeld(f"{self.name} holds no such training as {setting.label}, seed {seed}: {_told(*nearest, wanted, setting)}")
        if missing := sorted(set(rounds) - set(self.rounds(f))):
            there = " and ".join(map(str, self.rounds(f)))
            raise NotHeld(
                f"{self.name} holds the states of {setting.label} before rounds {there} of {f['rounds']}, not before "
                f"{', '.join(map(str, missing))}: ask for these, or train, which keeps every round"
            )
        return Held(self, f, key_of(wanted | {"start": f["training"]}) if _elsewhere(wanted, f["manifest"]) else f["training"])


@dataclasses.dataclass(frozen=True, eq=False)
class Held:
    """One training of a trained federation. key: under which the cache keeps what is computed from it: the training's own, unless other
    versions or another device would have given other bits."""

    start: Pretrained
    federation: dict
    key: str

    def trajectory(self, task: Task, clients: Sequence[Client], device: str) -> Trajectory:
        """The last states as ``fedlib.federation.run`` would give them."""
        training, rounds = self.federation["training"], task.schedule.rounds
        files = {s["round"]: s["file"] for s in self.start.manifest["states"] if s["training"] == training}

        # One object per round lets recipes share its frozen features.
        @functools.lru_cache(maxsize=4)
        def load(t: int):
            if t not in files:
                raise NotHeld(f"{self.start.name} holds the states before rounds {', '.join(map(str, sorted(files)))}, not {t}")
            return unflatten(read(self.start.folder / files[t], f"{training}/round-{t:05d}", device))

        sources = [k for k, client in enumerate(clients) if client.source]
        return Trajectory(rounds, sources, cohorts(len(sources), rounds, task.schedule.participation, task.seed), load, True)

    def part(self, manifest: dict, round: int, device: str) -> State | None:
        """The personal parts of all clients with this key's content; None where they are to be fitted to the received model."""
        return self._file(manifest, f"round-{round:05d}", device)

    def carried(self, method: Personalizer, manifest: dict, round: int, device: str) -> State:
        """What personal parts that live through all rounds carry into ``round``. Raises NotHeld where that is unknown."""
        if (state := self._file(manifest, carried_name(round), device)) is not None:
            return state
        wanted = self._wanted(manifest)
        own = [p for p in self.start.manifest["parts"] if all(p["manifest"][n] == wanted[n] for n in ("personalize", "train"))]
        differs = sorted({name for part in own for name in wanted if part["manifest"].get(name) != wanted[name]})
        why = f"with another {', '.join(differs)}" if differs else f"as {', '.join(p['name'] for p in own) or 'nothing'}"
        raise NotHeld(f"{self.start.name} holds the personal part {type(method).__name__} {why}, not for round {round} as asked")

    def _wanted(self, manifest: dict) -> dict:
        return describe(manifest) | {"train": self.federation["training"]}

    def _file(self, manifest: dict, name: str, device: str) -> State | None:
        wanted = self._wanted(manifest)
        for part in self.start.manifest["parts"]:
            if part["name"] == name and part["manifest"] == wanted:
                return read(self.start.folder / part["file"], f"{part['key']}/{name}", device)
        return None


def begun(start: "str | Pretrained | None", recipes: Mapping[str, Recipe], seeds: Sequence[int]) -> Pretrained | None:
    """The trained federation to start from, if any, after a look at whether these recipes and seeds can."""
    start = pretrained(start) if isinstance(start, str) else start
    if start is not None:
        start.check(recipes, seeds)
    return start


def carried_of(method: Personalizer, personal: State) -> State:
    """What the next phase reads of a personal part that lives through all rounds; empty where that is all of it."""
    return {name: tensor for name, tensor in personal.items() if name.startswith(getattr(method, "carries", ()))}


def carried_name(round: int) -> str:
    """The cache file of what a personal part carries into ``round``."""
    return f"{CARRIED}-{round:05d}"


def left_before(round: int, names: Sequence[str], kind: str) -> list[tuple[int, str]]:
    """The cache files of a personal part from which ``round`` may go on, the latest first, each with the round after which it stands:
    those of a ``kind``, and what was carried into a round."""
    found = ((int(t) - (what == CARRIED), f"{what}-{t}") for what, t in (name.split("-") for name in names) if what in (kind, CARRIED))
    return sorted((pair for pair in found if pair[0] < round), reverse=True)


def pretrained(name: str) -> Pretrained:
    """The trained federation ``name``: ``<data>/<run>`` of those under figures/, or the path, from here or from the project, of a folder
    that ``fedlib export`` has made. Several with ``" + "`` between them are one, as if one run had made it: its parameters are the first
    one's, with the methods, tables and other lists of all. The name of a run that itself started from trained federations stands for these.

    ``fedlib.run(..., start=...)`` then trains nothing. Raises ValueError for an unknown name, for a damaged file and for several that were
    not trained alike, FileNotFoundError for a missing file.

    >>> import fedlib
    >>> start = fedlib.pretrained("digits/fedthe")
    >>> methods = fedlib.recipes_of("fedthe", "FedRoD", "FedTHE")
    >>> rows = fedlib.run(start.settings, methods, start.seeds, start=start, cache=None)
    >>> ours, theirs = fedlib.table(rows)["ooc"], start.accuracy.query("column == 'ooc'").set_index("method")["accuracy"]
    >>> bool((ours - theirs).abs().max() < 0.5)
    True
    """
    if TOGETHER in name:
        return functools.reduce(_together, map(pretrained, name.split(TOGETHER)))
    paths = [(place, path) for place in HOMES for path in place.glob(f"**/{MANIFEST}")]
    found = {path.parent.relative_to(place).as_posix().removesuffix(f"/{FOLDER}"): path for place, path in paths}
    # Notebooks run in a folder of their own, and are given paths relative to the project.
    given = [place / Path(name).expanduser() / inner / MANIFEST for place in (Path(), PROJECT) for inner in ("", FOLDER)]
    path = next((p for p in given if name not in found and p.is_file()), None)
    if path is not None:
        where = path.parent.parent if path.parent.name == FOLDER else path.parent
        return _read("/".join(where.resolve().parts[-2:]), path)
    if name not in found and (begun_from := _begun_from(name)) not in (None, name):
        return pretrained(begun_from)
    if not found:
        raise ValueError(
            f"no trained federation {name!r}, and none at all in {' or '.join(map(str, HOMES))}: an installed package brings the digits' "
            "alone. The others are in figures/ of the repository: clone it, and give the path of such a folder"
        )
    return _read(check_name(name, found, "trained federation (nor is this the path of a folder of one)"), found[name])


def _begun_from(name: str) -> str | None:
    """What the run of this name or path started from, if it did."""
    for place in (*HOMES, Path(), PROJECT):
        try:
            return json.loads((place / Path(name).expanduser() / "run.json").read_text(encoding="utf-8"))["parameters"]["start"]
        except (OSError, json.JSONDecodeError, KeyError):
            continue
    return None


def _read(name: str, path: Path) -> Pretrained:
    remedy = f"restore it (git checkout -- {path.parent}) or export it again"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            raise ValueError(f"{path} has format {manifest['format']}, and this version reads {FORMAT}: export it again")
        files = {file: told["digest"] for file, told in manifest["files"].items()}
        _ = manifest["run"]["parameters"], manifest["federations"], manifest["states"], manifest["parts"], manifest["left_out"]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged ({error!r}): {remedy}") from error
    for file, digest in files.items():
        place = path.parent / Path(file).name
        if not place.is_file():
            raise FileNotFoundError(f"{name}: {place} is missing: {remedy}")
        if digest_of(place) != digest:
            raise ValueError(f"{name}: {place} is damaged, its content does not match the digest in {MANIFEST}: {remedy}")
    return Pretrained(name, path.parent, manifest)


def _together(ours: Pretrained, theirs: Pretrained) -> Pretrained:
    """Both as one. Raises ValueError where they differ in a parameter of which a training has one value."""
    run, other = ours.parameters, theirs.parameters
    for name in TRAINED:
        if name in run and name in other and run[name] != other[name]:
            raise ValueError(
                f"{ours.name} and {theirs.name} do not go together: their parameter {name} is {run[name]!r} and {other[name]!r}"
            )
    # No list stands for all that there are.
    lists = {name: None for name in ("methods", "tables") if run.get(name) is None or other.get(name) is None}
    for name in run.keys() - lists.keys():
        if isinstance(run[name], list) and isinstance(other.get(name), list):
            lists[name] = [*run[name], *(value for value in other[name] if value not in run[name])]
    first, second = (one.manifest | {kind: _placed(one, kind) for kind in ("states", "parts")} for one in (ours, theirs))
    joined = {kind: first[kind] + second[kind] for kind in ("states", "parts", "left_out")}
    joined |= {"federations": merged(first["federations"] + second["federations"]), "files": first["files"] | second["files"]}
    run = ours.manifest["run"] | {"parameters": run | lists}
    return Pretrained(f"{ours.name}{TOGETHER}{theirs.name}", ours.folder, ours.manifest | joined | {"run": run})


def _placed(start: Pretrained, kind: str) -> list[dict]:
    """Its states or parts with their files' whole paths."""
    return [told | {"file": str(start.folder / told["file"])} for told in start.manifest[kind]]


def merged(accounts: Sequence[dict]) -> list[dict]:
    """One account for each training and setting; of a method that was measured several times, on the most images."""
    found: dict[str, dict] = {}
    for told in accounts:
        one = found.setdefault(json.dumps([told["training"], told["setting"]], sort_keys=True), told | {"measured": {}})
        for method, measured in told["measured"].items():
            ours = one["measured"].setdefault(method, measured | {"rounds": {}})
            for t, columns in measured["rounds"].items():
                kept = ours["rounds"].setdefault(t, {})
                kept |= {column: cell for column, cell in columns.items() if cell[1] > kept.get(column, (0, 0))[1]}
    return [one for one in found.values() if one["measured"]]


def digest_of(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def account(setting: Setting, seed: int, key: str, images: str, parts: Mapping[str, tuple[str, bool]], rows: Sequence[dict]) -> dict:
    """What ``fedlib export`` has to know of a training and its methods, their accuracy at the last rounds among it. parts: method -> key of
    its personal part, and whether it lives through all rounds."""
    last = setting.schedule.rounds
    by = ["method", "round", "column"]
    frame = pd.DataFrame(rows)
    clients = frame[frame["round"] >= last].groupby([*by, "client"], sort=False).agg(accuracy=("accuracy", "mean"), n=("n", "max"))
    measured: dict[str, dict] = {}
    for (method, round, column), cell in clients.groupby(by, sort=False).agg(accuracy=("accuracy", "mean"), n=("n", "sum")).iterrows():
        part, persists = parts.get(method, ("", False))
        told = measured.setdefault(method, {"part": part, "persists": persists, "rounds": {}})
        told["rounds"].setdefault(str(round), {})[column] = [float(cell["accuracy"]), int(cell["n"])]
    return {"training": key, "seed": seed, "images": images, "rounds": last, "setting": plain(setting), "measured": measured}


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def _persists(method: Personalizer | None) -> bool:
    return method is not None and method.persistent


def _elsewhere(wanted: dict, manifest: dict) -> bool:
    return any(wanted.get(name) != manifest.get(name) for name in COMPUTED_WITH)


def _told(differs: Sequence[str], federation: dict, wanted: dict, setting: Setting) -> str:
    """In words, how a training that is wanted differs from one that is held."""
    theirs, ours = federation["setting"], plain(setting)
    lines = _leaves(ours["protocol"], theirs["protocol"], "clients") if "data" in differs else []
    for name in differs:
        if name == "length":
            lines.append(f"rounds is {setting.schedule.rounds}, but {federation['rounds']} there")
        elif name != "data" or not lines:
            lines += [OTHER_DATA] if name == "data" else _leaves(wanted.get(name), federation["manifest"].get(name), name)
    return "; ".join(lines)


def _leaves(ours: Any, theirs: Any, name: str) -> list[str]:
    """Where two trees of plain data differ, in words."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        # A class's name, or the word "fields", says nothing about which of its fields differs.
        step = {key: name if key[:1].isupper() or key == "fields" else f"{name}.{key}" for key in sorted({*ours, *theirs})}
        return [line for key, path in step.items() for line in _leaves(ours.get(key, "the default"), theirs.get(key, "the default"), path)]
    return [] if ours == theirs else [f"{name} is {json.dumps(ours)}, but {json.dumps(theirs)} there"]
