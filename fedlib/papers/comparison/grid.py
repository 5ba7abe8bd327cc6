"""The grid: every method on every protocol, as measured rows, and the tables that are means of them."""

from collections.abc import Mapping

import pandas as pd

from fedlib.common import average
from fedlib.data import counts, shown
from fedlib.paper import Block
from fedlib.papers.comparison.calibration import expected_calibration_error
from fedlib.papers.comparison.ranking import LEAST, SAME_TEST
from fedlib.papers.comparison.recipes import CUT, METHODS, NONE, PLAIN, baseline
from fedlib.papers.comparison.settings import CONFIDENCE, LEFT_OUT, PROTOCOLS, REAL, SHOWN, Parameters, reason
from fedlib.published.units import different
from fedlib.study import Study

# Methods whose scores are no logits: similarities to prototypes, and logits mixed with probabilities.
NOT_LOGITS = ("T3A", "kNN-Per")


def blocks(p: Parameters) -> list[Block]:
    """Every method on every protocol, on either network."""
    found = []
    for name in p.clients_of():
        found += p.blocks(name, p.recipes(name))
        found += p.blocks(name, p.plain_recipes(name), plain=True)
    if p.methods and not found:
        raise ValueError(f"none of the methods {p.methods} runs on a protocol of {list(p.clients_of())}")
    return found


def named(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with one name for columns that are named after domains."""
    return rows.assign(column=rows["setting"].map(SHOWN).fillna(rows["column"])) if len(rows) else rows


def measured(study: Study) -> pd.DataFrame:
    """The rows of the whole grid."""
    return named(study.rows(study.blocks("heatmap"))[0])


def gains(rows: pd.DataFrame, starts: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Accuracy of every client and column, draws averaged, less that of no adaptation of the same network on the same images. starts:
    method -> what its gain counts from instead; methods of which that is not among the rows are left out.

    Columns: setting, method, seed, column, client, accuracy (the gain, in points) and, as far as ``rows`` tell, ``seen`` (which images)
    and ``by_image``: of a protocol whose clients share their test, of which each has one draw, the gain on each image, in points."""
    key = ["setting", "seed", "column", "client"]
    answers = {"right": ("right", "first")} if "right" in rows and rows["right"].notna().all() else {}
    if answers:
        # A method with several predictors says of each which answers were right; an image counts by their share.
        rows = rows.assign(right=[right.reshape(-1, n).mean(0) for right, n in zip(rows["right"], rows["n"], strict=True)])
    seen = {"seen": ("seen", "first")} if "seen" in rows else {}
    each = rows.groupby([*key, "method"], sort=False).agg(accuracy=("accuracy", "mean"), **answers, **seen).reset_index()
    base = each.drop(columns=list(seen)).rename(columns={"method": "baseline", "accuracy": "without", "right": "right_without"})
    # One's own are known to be cut by their rows only.
    cut = set(rows.loc[rows["cut"].astype(bool), "method"]) - set(METHODS) if "cut" in rows else set()
    against = each["method"].map(starts or (lambda method: CUT if method in cut else baseline(method)))
    each = each.assign(baseline=against).merge(base, on=[*key, "baseline"], validate="many_to_one")
    if answers:
        shared = each[each["setting"].isin(SAME_TEST)]
        each["by_image"] = 100 * (shared["right"] - shared["right_without"])
        each = each.drop(columns=["right", "right_without"])
    return each.assign(accuracy=each["accuracy"] - each["without"]).drop(columns=["baseline", "without"])


def accuracies(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per protocol, test column, seed and client, on which every gain and test rests: n (test images, of which methods that are cut
    see the first), one column per method with its accuracy in percent, draws averaged, and what was run."""
    key = ["setting", "column", "seed", "client"]
    wide = rows.groupby([*key, "method"], sort=False)["accuracy"].mean().unstack("method")[list(dict.fromkeys(rows["method"]))]
    n = rows.groupby(key, sort=False)["n"].max().reindex(wide.index)
    told = provenance(rows, key)[[*key, "run_dataset", "status"]]
    return wide.reset_index().assign(n=n.to_numpy()).merge(told, on=key).rename(columns={"setting": "protocol"})


def provenance(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """What was run, by ``by``: run_dataset, run_model, status ("ok" or "stand-in")."""
    own = rows["dataset"].map(lambda name: counts(name, REAL)) & ~rows["stand_in"]
    how = {"run_dataset": ("dataset", "first"), "run_model": ("model", "first"), "own": ("own", "all")}
    found = rows.assign(own=own).groupby(by, sort=False).agg(**how).reset_index()
    status = found.pop("own").map({True: "ok", False: "stand-in"})
    return found.assign(run_dataset=found["run_dataset"].map(shown), status=status)


def heatmap(study: Study) -> pd.DataFrame:
    """One row per protocol, test column and method (a user's last), run or not: mean and n-1 std over seeds of the accuracy, of
    the worst client's (``worst``, whose test has ``worst_n`` images), of the expected calibration error over all images (``ece``, in
    points) and of the gain, number of seeds, test images per seed, what was run, status ("ok", "stand-in" or "not run: <reason>"), and the
    ``verdict`` of the corrected test."""
    rows = measured(study)
    missing = {(block.dataset, who): why for block in study.blocks("heatmap") for who, why in study.rows([block])[1].items()}
    table = of_cells(rows, study.p, missing) if len(rows) else rows
    tests = study.numbers("tests")
    return table.merge(tests[["protocol", "column", "method", "verdict"]], how="left") if len(tests) else table


def of_cells(rows: pd.DataFrame, p: Parameters, missing: Mapping[tuple[str, str], str]) -> pd.DataFrame:
    """``heatmap`` without the verdicts. missing: why there are no rows, by protocol and either method or, of them all, protocol."""
    key = ["setting", "method", "column"]
    gain = average(gains(rows)).rename(columns={"mean": "gain", "std": "gain_std"})[[*key, "gain", "gain_std"]]
    images = different(rows, [*key, "seed"]).groupby(key, sort=False).mean().rename("images").reset_index()
    ran = average(rows)
    for more in (gain, images, beside_the_mean(rows, key), provenance(rows, key)):
        ran = ran.merge(more, how="left", on=key)
    columns = {name: list(part.unique()) for name, part in rows.groupby("setting", sort=False)["column"]}
    cells = [(name, method, column) for name in PROTOCOLS for column in columns.get(name, [""]) for method in (*METHODS, *p.own)]
    frame = pd.DataFrame(cells, columns=key).merge(ran, how="left", on=key)
    lacking = p.lacking()
    why = [reason(m, name, p) or lacking.get(name) or missing.get((name, name)) or missing.get((name, m), LEFT_OUT) for name, m, _ in cells]
    frame["status"] = frame["status"].where(frame["mean"].notna(), "not run: " + pd.Series(why))
    frame["n_seeds"] = frame["n_seeds"].astype("Int64")
    return frame.rename(columns={"setting": "protocol"})


def beside(heatmap: pd.DataFrame) -> pd.DataFrame:
    """The heat map's cells where any of them rests on images enough for a worst client and a calibration error, none otherwise. What is
    shown is of whole streams, and has no ``units``."""
    shown = len(heatmap) and heatmap[["worst", "ece"]].notna().any(axis=None)
    return heatmap.drop(columns="units", errors="ignore") if shown else heatmap.head(0)


def beside_the_mean(rows: pd.DataFrame, key: list[str]) -> pd.DataFrame:
    """By ``key``, averaged over seeds with their n-1 std: accuracy of the client that fares worst (draws averaged), images of its test, and
    the expected calibration error over the images of all clients, in points (none where confidences are not among the rows, and none of
    scores that are no logits). Neither of cells of under ``LEAST`` images, nor of cut streams: on fewer images the worst is worse, and
    calibration too, of equally good methods."""
    each = rows.groupby([*key, "seed", "client"], sort=False).agg({"accuracy": "mean", "n": "max"}).reset_index()
    worst = each.loc[each.groupby([*key, "seed"], sort=False)["accuracy"].idxmin()].set_index([*key, "seed"])
    frame = worst[["accuracy", "n"]].set_axis(["worst", "worst_n"], axis=1)
    if "confidence" in rows:
        groups = rows.groupby([*key, "seed"], sort=False)
        frame["ece"] = groups[list(CONFIDENCE)].apply(lambda part: 100 * expected_calibration_error(*(part[n] for n in CONFIDENCE)))
    else:
        frame["ece"] = float("nan")
    few = different(rows, [*key, "seed"]).reindex(frame.index) < LEAST
    if "cut" in rows:
        few |= rows.groupby([*key, "seed"], sort=False)["cut"].any().reindex(frame.index).astype(bool)
    frame.loc[few, ["worst", "ece"]] = float("nan")
    frame.loc[frame.index.get_level_values("method").isin(NOT_LOGITS), "ece"] = float("nan")
    seeds = frame.groupby(key, sort=False)
    return seeds.mean().join(seeds[["worst", "ece"]].std().add_suffix("_std")).reset_index()


def rounds(p: Parameters, points: int = 10) -> list[Block]:
    """No adaptation after ``points`` rounds of its training, on either network."""
    asked, found = sorted({max(1, round(p.rounds * k / points)) for k in range(1, points + 1)}), []
    for name in p.clients_of():
        for plain, table in enumerate((p.recipes(name), p.plain_recipes(name))):
            none = {method: recipe for method, recipe in table.items() if method in (NONE, PLAIN)}
            # What t rounds have made is the state that round t + 1 receives.
            found += p.blocks(name, none, bool(plain), rounds=tuple(t + 1 for t in asked))
    return found


def curve(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """No adaptation over the rounds of its training: protocol, method (its name with either training), network, round, mean and n-1 std
    over seeds of the accuracy (mean over clients, draws and tests), n, what was run, and ``slope``, the points gained per ten rounds since
    the point before."""
    rows, key = rows.assign(round=rows["round"] - 1), ["setting", "method", "model", "round"]
    table = average(rows, key).drop(columns="units").merge(provenance(rows, key).drop(columns="run_model"), on=key)
    lines = table.groupby(["setting", "method"], sort=False)
    slope = 10 * lines["mean"].diff() / lines["round"].diff()
    return table.assign(slope=slope).rename(columns={"setting": "protocol", "model": "run_model"})
