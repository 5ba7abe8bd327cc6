"""The papers' full schedules on real images, entry by entry: ``python -m fedlib.campaign [--entry fedthe ...] [-p name value ...]``.

Each entry is a notebook in profile ``paper`` whose results go to ``figures/<data>/<entry>``. Every round and every stage is cached, so a
campaign that was stopped goes on where it was when the command is given again, and entries whose results are there are skipped. Its
progress is in ``campaign.txt`` in the cache folder. Beside the results of an entry that ends, its trained federations are exported
(``fedlib export``). Parameters given with -p go to every chosen entry. ``--profile smoke`` tries the list on
the embedded digits. In the background: ``nice -n 19 python -m fedlib.campaign -p data_root /my/data > campaign.log 2>&1 &``.
"""

import argparse
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import torch

from fedlib.commands.export import export
from fedlib.common import LISTS, PLACES
from fedlib.published import PAPERS
from fedlib.published.accounting import write_account
from fedlib.reproduce import CONTINUES, end_on_signals, given_values, located, options_of, prepared
from fedlib.start import FOLDER, MANIFEST
from fedlib.tools.batch import execute_all
from fedlib.tools.files import atomic
from fedlib.tools.names import check_name
from fedlib.tools.parameters import PROFILES, PROJECT, declared

STATUS_EVERY = 60  # seconds between two looks at the running entry


@dataclass(frozen=True)
class Entry:
    """One run. data: the images it needs, which name its folder unless ``folder`` does; hours: core-hours it is expected to take, from the
    measured rates of local training on two cores; parameters: of its notebook, in profile ``paper``, where they may name further images."""

    notebook: str
    data: str
    hours: float
    parameters: dict = field(default_factory=dict)
    folder: str | None = None


# The column of MNIST and the appendix's tables; FedADG apart, which takes as long as all others. Figure 4 is of 1,000 of MNIST's images.
UPFL = {"tables": ["T1", "AF2", "AT1", "AT2", "AT3"], "seeds": [0, 1, 2]}
UPFL["methods"] = ["FedAvg", "FedProx", "SCAFFOLD", "AFL", "GMA", "FedSR", "PFL-Sampled", "PFL-Ensemble", "ODPFL-HN"]
UPFL["methods"] += ["Tent", "FedTTA", "FedTTA-Prox", "FedTTA++"]
FEDTHE = {"tables": ["T1", "T3", "F2a", "F2b"], "alphas": [0.1], "seeds": [0]}
# What starts from the first two of its four trainings (plain cross-entropy, Balanced Softmax) and keeps no personal model over all rounds.
TWO = ["FedAvg", "MEMO-G", "FedAvg+FT", "FedRoD", "kNN-Per", "kNN-Per (oracle)", "T3A", "MEMO-P", "TSA", "FedTHE", "FedTHE+"]
TWO += ["TwoHead", "TwoHead:+BSM", "TwoHead:+BSM+FA", "TwoHead:+BSM+EM", "TwoHead:+BSM+FA+EM", "FedTHE:batch", "FedTHE:-history"]
TWO += ["FedTHE:-BSM", "FedTHE+:-BSM", "FedAvg+FT:+BSM", "FedAvg+FT:+BSM+BSMpers"]
# Exhibits that need no further training, and whose costly methods see the first images of each stream.
AFTER = {"tables": ["T1", "T3", "T7", "T8", "T10", "T13", "F2a", "F2b", "F14", "F15", "F16", "F17", "F19"]}
AFTER |= {"costly_samples": 50, "side_samples": 20}
# All but APFL, Ditto, TTT and GMA, which would take nine core-hours more.
CURVES = ["FedAvg", "MEMO-G", "FedAvg+FT", "FedRep", "FedRoD", "kNN-Per", "MEMO-P", "T3A", "FedTHE", "FedTHE+"]
LPFT = ["MEMO-P", "MEMO-P:+LPFT"]
# The others, which end one by one; the cache shares what they share.
ALONE = FEDTHE | {"tables": ["T1"]}
RESPLIT = FEDTHE | AFTER | {"methods": TWO, "tables": ["T1", "T13"], "split": "resplit"}
LEAKING = ALONE | {"split": "resplit"}
# At the milder concentration, per-sample methods on 200 images of a stream: what starts from the first two trainings, and in Table 1 two
# more, which each bring their own.
DIR1 = FEDTHE | {"alphas": [1.0], "costly_samples": 200}
DIR1_CURVES = [name for name in CURVES if name != "FedRep"]
DIR1_TWO = [*DIR1_CURVES, "kNN-Per (oracle)"]
# At Dir(0.1) the same, but for MEMO on the global model, also on the clients of two further seeds.
THREE_SEEDS = FEDTHE | {"tables": ["T1"], "costly_samples": 200, "seeds": [0, 1, 2]}
THREE_SEEDS["methods"] = [name for name in DIR1_TWO if name != "MEMO-G"]
BTFL = {"officehome": "none", "imagenet32": "none", "alphas": [0.1], "architectures": [], "label_counts": [10], "seeds": [0]}
# Of what starts from three of its four trainings (plain cross-entropy, Balanced Softmax, its own) all but TTT.
BTFL_THREE = ["FedAvg", "FedAvg+FT", "FedRoD", "kNN-Per", "FedTHE", "MEMO-P", "BTFL", "BTFL (code)"]
# Test-time methods on untrained weights.
BTFL_TIMES = ["TTT", "MEMO-P", "FedTHE", "BTFL"]
# With the network of Table 5's first block, from which Figure 4 is drawn too.
ATP = {"model": "shallow_cnn", "tables": ["T5", "F4"], "seeds": [0]}
# One network with batch norm for every method but FedTTA's two, the costly sections apart. The model without adaptation still gains one to
# three points per ten rounds after 40 rounds, one to two after 60, 0.7 after 80, and 0.3 from there to 100. ATP's published step diverges
# on BRFL's clients in one training of three by then; half of it (rate_lr 0.05) does not.
COMPARISON = {
    "model": "fedicon_cnn_small",
    "plain_model": "fedicon_cnn_gn_small",
    "rounds": 100,
    "local_epochs": 2,
    "lr": 0.02,
    "contrast_lr": 0.02,
}
COMPARISON |= {"rate_rounds": 100, "costly_samples": 16, "seeds": [0, 1, 2]}
GRID = {"tables": ["curve", "heatmap", "beside", "tests", "accuracies", "ranks", "differences", "answer", "advice"]}
ONE_SET = {"tables": [*GRID["tables"], "cost"]}
ONE_SET |= {"protocols": ["BRFL", "BTGFL", "TTPFL feature", "TTPFL label", "TTPFL hybrid", "FedICON attribute"]}
TUNED = {"tables": ["tuning", "tuned"], "protocols": ["BRFL", "BTGFL"]}
HALVES = {"tables": ["halves"], "protocols": ["BRFL"]}
# With momentum the model of clients who hold two classes each swings by points from round to round.
STEADY = {"rounds": 120, "lr": 0.1, "momentum": 0.0, "contrast_lr": 0.1, "protocols": ["UPFL new clients"]}
STEADY |= {"tables": [*GRID["tables"], "cost", "tuning", "tuned", "halves"]}
OF_DOMAINS = {"domains": "pacs", "domain_clients": 4, "images": 1300, "protocols": ["FedICON covariate", "FedICON domain"]}
# In the order in which they are worked through.
ENTRIES = {
    "upfl": Entry("upfl", "mnist_5k", 6, UPFL),
    "upfl-fedadg": Entry("upfl", "mnist_5k", 4, {"tables": ["T1"], "methods": ["FedAvg", "FedADG"], "seeds": [0, 1]}),
    "upfl-concept": Entry("upfl", "mnist_5k", 3, {"tables": ["F4"], "seeds": [0, 1, 2]}),
    "fedthe-two": Entry("fedthe", "cifar10_jpeg", 6, FEDTHE | AFTER | {"methods": TWO}),
    "fedthe-gma": Entry("fedthe", "cifar10_jpeg", 3, ALONE | {"methods": ["GMA"]}),
    "fedthe-personal": Entry("fedthe", "cifar10_jpeg", 9, ALONE | {"methods": ["FedAvg", "APFL", "FedRep", "Ditto", "TTT"]}),
    "fedthe": Entry("fedthe", "cifar10_jpeg", 3, FEDTHE),
    "fedthe-lpft": Entry("fedthe", "cifar10_jpeg", 1, FEDTHE | {"tables": ["T3"], "methods": LPFT}),
    "fedthe-curves": Entry("fedthe", "cifar10_jpeg", 9, FEDTHE | {"tables": ["F8"], "methods": CURVES}),
    "btfl-three": Entry("btfl", "cifar10_jpeg", 10, BTFL | {"tables": ["T1", "T2", "F6", "B13"], "methods": BTFL_THREE}),
    "btfl-personal": Entry("btfl", "cifar10_jpeg", 7, BTFL | {"tables": ["T2"], "methods": ["FedAvg", "FedRep", "TTT"]}),
    "btfl-times": Entry("btfl", "cifar10_jpeg", 0.5, BTFL | {"tables": ["T3"], "methods": BTFL_TIMES, "timed_samples": 50}),
    "btfl": Entry("btfl", "cifar10_jpeg", 2, BTFL | {"tables": ["T1", "T2", "F6", "B13"]}),
    "atp": Entry("atp", "cifar10_jpeg", 5, ATP),
    "fedthe-resplit": Entry("fedthe", "cifar10_jpeg", 8, RESPLIT),
    "fedthe-resplit-gma": Entry("fedthe", "cifar10_jpeg", 3, LEAKING | {"methods": ["GMA"]}),
    "fedthe-resplit-fedrep": Entry("fedthe", "cifar10_jpeg", 3, LEAKING | {"methods": ["FedRep"]}),
    "fedthe-resplit-rest": Entry("fedthe", "cifar10_jpeg", 8, LEAKING | {"methods": ["APFL", "Ditto", "TTT"]}),
    "fedthe-dir1": Entry("fedthe", "cifar10_jpeg", 7, DIR1 | {"tables": ["T1"], "methods": [*DIR1_TWO, "GMA", "FedRep"]}),
    "fedthe-dir1-curves": Entry("fedthe", "cifar10_jpeg", 2, DIR1 | {"tables": ["F9"], "methods": DIR1_CURVES}),
    "fedthe-dir1-rest": Entry("fedthe", "cifar10_jpeg", 6, DIR1 | {"tables": ["T1"], "methods": ["APFL", "Ditto", "TTT"]}),
    "fedthe-seeds": Entry("fedthe", "cifar10_jpeg", 10, THREE_SEEDS),
    "fedthe-seeds-all": Entry("fedthe", "cifar10_jpeg", 28, FEDTHE | {"seeds": [0, 1, 2]}),
    "comparison": Entry("comparison", "cifar10_jpeg", 18, COMPARISON | ONE_SET),
    "comparison-upfl-all": Entry("comparison", "cifar10_jpeg", 18, COMPARISON | STEADY),
    "comparison-pacs": Entry("comparison", "cifar10_jpeg", 7, COMPARISON | GRID | OF_DOMAINS, "pacs64"),
    "comparison-tuned-all": Entry("comparison", "cifar10_jpeg", 20, COMPARISON | TUNED),
    "comparison-halves-all": Entry("comparison", "cifar10_jpeg", 10, COMPARISON | HALVES),
    "atp-seeds": Entry("atp", "cifar10_jpeg", 14, ATP | {"seeds": [0, 1, 2]}),
}

WIDTH = max(map(len, ENTRIES)) + 2


def parameters(name: str, profile: str, given: dict) -> dict:
    """The notebook parameters of the entry ``name``, those ``given`` by the caller last."""
    entry = ENTRIES[name]
    data = {"dataset": entry.data} if profile == "paper" else {}
    own = {n: value for n, value in entry.parameters.items() if n != "domains" or profile == "paper"}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    folder = entry.folder or entry.data.replace("_", "-") if profile == "paper" else f"{profile}-campaign"
    basis = {"profile": profile, "device": device, "jobs": os.cpu_count() or 1, "output": f"figures/{folder}/{name}"}
    return basis | data | own | given


WAITING, DONE, FAILED, OTHER = "waiting", "done", "failed", "other run"


def state_of(notebook: str, values: dict) -> str:
    """What the folder of a run of ``notebook`` with the parameters ``values`` holds: its results, also where they are of more seeds,
    tables, methods or protocols (``DONE``); those of a run that is not it (``OTHER``), which is left as it is; or none (``WAITING``)."""
    try:
        run = json.loads((PROJECT / values["output"] / "run.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return WAITING
    made = {"profile": run["profile"], "seeds": run["seeds"]} | run.get("parameters", {})
    asked = asked_of(notebook, values)

    def holds(name: str) -> bool:
        if name in ("seeds", *LISTS) and name in made and asked[name] != made[name]:
            # None stands for all.
            return made[name] is None or (asked[name] is not None and set(asked[name]) <= set(made[name]))
        return made.get(name) == asked[name]

    return DONE if all(holds(name) for name in values if name not in PLACES) else OTHER


def asked_of(notebook: str, values: dict) -> dict:
    """The parameters that a run of ``notebook`` with ``values`` has, as its run.json tells them."""
    path, paper = located(notebook)
    p = paper.read(declared(path) | values)
    return json.loads(json.dumps({"profile": p.profile, "seeds": p.seeds} | p.facts()))


class Failed(Exception):
    """The notebook of an entry stopped, and was reported; the other entries do not depend on it."""


@dataclass
class Status:
    """``campaign.txt``: what is done, what runs and how far, what waits, and for how long. Hours already spent survive a restart, in
    ``campaign.json`` beside it."""

    folder: Path
    entries: Sequence[str]
    state: dict[str, str]
    hours: dict[str, float] = field(default_factory=dict)

    def __post_init__(self):
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            self.hours = json.loads((self.folder / "campaign.json").read_text(encoding="utf-8"))

    def write(self, log: Path | None = None) -> None:
        """Write both files; log: the running notebook's, whose last lines show how far each of its bars is."""
        left = {name: max(0.0, ENTRIES[name].hours / (os.cpu_count() or 1) - self.hours.get(name, 0)) for name in self.entries}
        lines = [
            f"Campaign, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
            "",
            f"{'entry':{WIDTH}}{'state':12}{'hours spent':>12}{'estimated left':>16}",
        ]
        for name in self.entries:
            rest = "-" if self.state[name] in (DONE, FAILED, OTHER) else f"{left[name]:.1f}"
            lines.append(f"{name:{WIDTH}}{self.state[name]:12}{self.hours.get(name, 0):12.1f}{rest:>16}")
        if log is not None and log.exists():
            lines += ["", "Running:", *_last_of_each_bar(log.read_text(encoding="utf-8", errors="replace"))]
        for file, text in {"campaign.txt": "\n".join(lines) + "\n", "campaign.json": json.dumps(self.hours)}.items():
            with atomic(self.folder / file) as path:
                path.write_text(text, encoding="utf-8")

    @contextlib.contextmanager
    def running(self, name: str, log: Path) -> Iterator[None]:
        """Count the hours of ``name`` and write the files every minute while the block runs; "done" or, after Failed, "failed" then."""
        stop, before, start = threading.Event(), self.hours.get(name, 0), time.monotonic()

        def count() -> None:
            self.hours[name] = before + (time.monotonic() - start) / 3600

        def look() -> None:
            while not stop.is_set():
                count()
                # A full disk, or a log that goes this moment: the next look may do better.
                with contextlib.suppress(OSError):
                    self.write(log)
                stop.wait(STATUS_EVERY)

        self.state[name] = "running"
        watcher = threading.Thread(target=look, daemon=True)
        watcher.start()
        try:
            yield
            self.state[name] = DONE
        except Failed:
            self.state[name] = FAILED
        except (KeyboardInterrupt, SystemExit):
            # The same command goes on with it.
            self.state[name] = WAITING
            raise
        except Exception:
            self.state[name] = FAILED
            raise
        finally:
            stop.set()
            watcher.join()
            count()
            self.write()


def _last_of_each_bar(text: str) -> list[str]:
    """The latest lines of the last six progress bars of a log, the latest bar last."""
    latest: dict[str, str] = {}
    for line in text.splitlines():
        # A line begins with the time.
        latest.pop(what := line.partition(" ")[2].split(":")[0], None)
        latest[what] = line
    return list(latest.values())[-6:]


def _finish(notebook: str, run: Path, cache: Path) -> None:
    """The account and the trained federations beside the results of a run; one that cannot be made is no failure of the run."""
    steps = {"account": lambda: write_account(run)} if notebook in PAPERS else {}
    for what, make in (steps | {"trained federations": lambda: print(export(run, cache))}).items():
        try:
            make()
        except (ValueError, OSError) as error:
            print(f"no {what} of {run}: {error}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="fedlib campaign", description=__doc__.splitlines()[0], epilog="example: fedlib campaign --entry fedthe --list"
    )
    parser.add_argument("--entry", action="append", help=f"one of {', '.join(ENTRIES)}; may be repeated (default all)")
    parser.add_argument("--list", action="store_true", help="print the entries and whether they are done, and stop")
    options = options_of(parser, arguments, "paper")
    try:
        profile = check_name(options.profile, PROFILES, "profile")
        names = [check_name(name, ENTRIES, "entry") for name in options.entry or ENTRIES]
        given = given_values(options.p)
        if "output" in given and len(names) > 1:
            raise ValueError(
                f"{len(names)} entries cannot share the folder {given['output']!r}: choose one with --entry, or leave output out"
            )
        chosen = {name: parameters(name, profile, given) for name in names}
        runs = {name: prepared(ENTRIES[name].notebook, values, name) for name, values in chosen.items()}
    except ValueError as error:
        sys.exit(f"error: {error}")
    state = {name: state_of(ENTRIES[name].notebook, values) for name, values in chosen.items()}
    if options.list:
        print("\n".join(f"{name:{WIDTH}}{state[name]:12}{values['output']}" for name, values in chosen.items()))
        if OTHER in state.values():
            print(f"{OTHER}: the folder holds a run with other parameters, which is left as it is")
        return
    if others := [name for name in names if state[name] == OTHER]:
        folders = ", ".join(str(chosen[name]["output"]) for name in others)
        message = f"left out, as another run is there: {folders}. Move it, or choose the entry with --entry and a folder with -p output"
        if options.entry:
            sys.exit(f"error: {message}")
        print(message)
    status = Status(PROJECT / Path(str(given.get("cache", "cache"))).expanduser(), names, state)
    try:
        for name, run in runs.items():
            if state[name] == DONE and name in status.hours and not (run.folder / FOLDER / MANIFEST).exists():
                # It was stopped after its results were there.
                _finish(ENTRIES[name].notebook, run.folder, status.folder)
            if state[name] != WAITING:
                continue
            with status.running(name, run.log):
                if execute_all([run], 1, verbose=options.verbose):
                    raise Failed
                _finish(ENTRIES[name].notebook, run.folder, status.folder)
    except KeyboardInterrupt:
        sys.exit(f"\nstopped; {CONTINUES}")
    failed = [name for name in names if state[name] == FAILED]
    if failed:
        sys.exit(f"error: {len(failed)} of {len(names)} entries failed: {', '.join(failed)}")


if __name__ == "__main__":
    end_on_signals()
    main()
