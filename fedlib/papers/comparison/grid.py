"""The grid: every method on every protocol, as measured rows, and the tables that are means of them."""

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from fedlib.common import average, counts, shown
from fedlib.core import FINAL, Recipe
from fedlib.experiment import Request, Setting, run
from fedlib.papers.comparison.calibration import expected_calibration_error
from fedlib.papers.comparison.ranking import LEAST
from fedlib.papers.comparison.recipes import CUT, METHODS, NONE, PLAIN, baseline
from fedlib.papers.comparison.settings import APART, COLUMNS, EXHIBITS, LEFT_OUT, PROTOCOLS, REAL, SHOWN, Parameters, reason

CONFIDENCE = ("confidence", "right")


def measure(p: Parameters) -> tuple[pd.DataFrame, dict[str, str]]:
    """Rows of the experiment for all protocols; for protocols without their images the reason, and for methods whose scores are not finite
    ("protocol: method"). No rows where nothing is asked for that is made of them."""
    frames, missing = [], p.lacking()
    if all(name in APART for name in p.tables or EXHIBITS):
        return pd.DataFrame(columns=["setting", "method", "column", "draw", "seed", "n", "cached", "train_cached"]), missing
    for name in p.clients_of():
        request = p.request(rounds=(FINAL,), columns=COLUMNS.get(name), extras=CONFIDENCE)
        jobs = p.all_jobs(name)
        if not jobs:
            continue
        try:
            found = [finite(s, table, p, p.seeds, request) for s, table in jobs]
        except FileNotFoundError as error:
            missing[name] = p.missing(error)
            continue
        rows = pd.concat([rows for rows, _ in found])
        missing |= {f"{name}: {method}": why for _, diverged in found for method, why in diverged.items()}
        frames.append(rows.assign(column=SHOWN.get(name, rows["column"])))
    if not frames and missing:
        raise FileNotFoundError("; ".join(missing.values()))
    if not frames:
        raise ValueError(f"none of the methods {p.methods} runs on a protocol of {list(p.clients_of())}: see the reasons above")
    return pd.concat(frames, ignore_index=True), missing


def finite(
    setting: Setting, table: Mapping[str, Recipe], p: Parameters, seeds: list[int], request: Request
) -> tuple[pd.DataFrame, dict[str, str]]:
    """Rows of the experiment for the methods whose scores are finite for all ``seeds``, and why the others have none: a method that
    diverges does not take the others of its training with it."""
    try:
        return run([setting], table, seeds, request=request, **p.execution()), {}
    except FloatingPointError as error:
        if len(table) == 1:
            return pd.DataFrame(), dict.fromkeys(table, f"diverged: {error}")
    parts = [finite(setting, {name: recipe}, p, seeds, request) for name, recipe in table.items()]
    return pd.concat([rows for rows, _ in parts], ignore_index=True), {name: why for _, of in parts for name, why in of.items()}


def gains(rows: pd.DataFrame) -> pd.DataFrame:
    """Accuracy of every client and column, draws averaged, less that of no adaptation of the same network on the same images.

    Columns: setting, method, seed, column, client, accuracy (the gain, in points)."""
    key = ["setting", "seed", "column", "client"]
    each = rows.groupby([*key, "method"], sort=False)["accuracy"].mean().rename("accuracy").reset_index()
    base = each.rename(columns={"method": "baseline", "accuracy": "without"})
    # One's own are known to be cut by their rows only.
    cut = set(rows.loc[rows["cut"].astype(bool), "method"]) - set(METHODS) if "cut" in rows else set()
    against = each["method"].map(lambda method: CUT if method in cut else baseline(method))
    each = each.assign(baseline=against).merge(base, on=[*key, "baseline"], validate="many_to_one")
    return each.assign(accuracy=each["accuracy"] - each["without"]).drop(columns=["baseline", "without"])


def provenance(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """What was run, by ``by``: run_dataset, run_model, status ("ok" or "stand-in")."""
    own = rows["dataset"].map(lambda name: counts(name, REAL)) & ~rows["stand_in"]
    how = {"run_dataset": ("dataset", "first"), "run_model": ("model", "first"), "own": ("own", "all")}
    found = rows.assign(own=own).groupby(by, sort=False).agg(**how).reset_index()
    status = found.pop("own").map({True: "ok", False: "stand-in"})
    return found.assign(run_dataset=found["run_dataset"].map(shown), status=status)


def heatmap(rows: pd.DataFrame, missing: Mapping[str, str], p: Parameters | None = None) -> pd.DataFrame:
    """One row per protocol, test column and method (one's own of ``p`` last), run or not: mean and n-1 std over seeds of the accuracy, of
    the worst client's (``worst``, whose test has ``worst_n`` images), of the expected calibration error over all images (``ece``, in
    points) and of the gain, number of seeds, test images per seed, what was run, status ("ok", "stand-in" or "not run: <reason>")."""
    key = ["setting", "method", "column"]
    gain = average(gains(rows)).rename(columns={"mean": "gain", "std": "gain_std"})[[*key, "gain", "gain_std"]]
    images = (rows.groupby(key, sort=False)["n"].sum() / rows.groupby(key, sort=False)["seed"].nunique()).rename("images").reset_index()
    ran = average(rows)
    for more in (gain, images, beside_the_mean(rows, key), provenance(rows, key)):
        ran = ran.merge(more, on=key)
    columns = {name: list(part.unique()) for name, part in rows.groupby("setting", sort=False)["column"]}
    names = (*METHODS, *(p.own if p else ()))
    cells = [(name, method, column) for name in PROTOCOLS for column in columns.get(name, [""]) for method in names]
    frame = pd.DataFrame(cells, columns=key).merge(ran, how="left", on=key)
    why = [reason(method, name, p) or missing.get(f"{name}: {method}") or missing.get(name, LEFT_OUT) for name, method, _ in cells]
    frame["status"] = frame["status"].where(frame["mean"].notna(), "not run: " + pd.Series(why))
    frame["n_seeds"] = frame["n_seeds"].astype("Int64")
    return frame.rename(columns={"setting": "protocol"})


def beside_the_mean(rows: pd.DataFrame, key: list[str]) -> pd.DataFrame:
    """By ``key``, averaged over seeds with their n-1 std: accuracy of the client that fares worst (draws averaged), images of its test, and
    the expected calibration error over the images of all clients, in points (none where confidences are not among the rows). Neither of
    cells of under ``LEAST`` images."""
    each = rows.groupby([*key, "seed", "client"], sort=False).agg({"accuracy": "mean", "n": "max"}).reset_index()
    worst = each.loc[each.groupby([*key, "seed"], sort=False)["accuracy"].idxmin()].set_index([*key, "seed"])
    frame = worst[["accuracy", "n"]].set_axis(["worst", "worst_n"], axis=1)
    if "confidence" in rows:
        groups = rows.groupby([*key, "seed"], sort=False)
        frame["ece"] = groups[list(CONFIDENCE)].apply(lambda part: 100 * expected_calibration_error(*(part[n] for n in CONFIDENCE)))
    else:
        frame["ece"] = float("nan")
    # Of a cut stream a client has an image or two.
    frame.loc[rows.groupby([*key, "seed"], sort=False)["n"].sum().reindex(frame.index) < LEAST, ["worst", "ece"]] = float("nan")
    seeds = frame.groupby(key, sort=False)
    return seeds.mean().join(seeds[["worst", "ece"]].std().add_suffix("_std")).reset_index()


def curve(p: Parameters, points: int = 10) -> pd.DataFrame:
    """No adaptation over the rounds of its training: protocol, network, round, mean and n-1 std over seeds of the accuracy (mean over
    clients, draws and tests), n, what was run, and ``slope``, the points gained per ten rounds since the point before."""
    frames = []
    for name in p.clients_of():
        for plain, table in enumerate((p.recipes(name), p.plain_recipes(name))):
            found = {method: recipe for method, recipe in table.items() if method in (NONE, PLAIN)}
            rounds = sorted({max(1, round(p.rounds * k / points)) for k in range(1, points + 1)})
            request = p.request(rounds=tuple(t + 1 for t in rounds), columns=COLUMNS.get(name))
            if found:
                try:
                    frames.append(run([p.setting(name, bool(plain))], found, p.seeds, request=request, **p.execution()))
                except FileNotFoundError:  # the heat map says that its images are absent
                    continue
    if not frames:
        return pd.DataFrame()
    rows = pd.concat(frames, ignore_index=True)
    # The state that round t receives is what t - 1 rounds have made.
    rows["round"] -= 1
    key = ["setting", "model", "round"]
    table = average(rows, key).drop(columns="units").merge(provenance(rows, key).drop(columns="run_model"), on=key)
    lines = table.groupby(["setting", "model"], sort=False)
    slope = 10 * lines["mean"].diff() / lines["round"].diff()
    return table.assign(slope=slope).rename(columns={"setting": "protocol", "model": "run_model"})


def leak(p: Parameters, rows: pd.DataFrame) -> pd.DataFrame:
    """BRFL under the fixed split (of ``rows``) and under the published code's, which draws training images anew at every use: method,
    column, fixed, resplit (means, in percent), their n-1 std over seeds, difference. Methods without per-sample gradients; no rows where
    none of them runs."""
    table = {name: recipe for name, recipe in p.recipes("BRFL").items() if not recipe.costly}
    if not p.asks("leak") or "BRFL" not in p.clients_of() or not table:
        return pd.DataFrame()
    fixed, request = p.clients_of()["BRFL"], p.request(rounds=(FINAL,))
    clients = replace(fixed, of=replace(fixed.of, split="resplit"))
    leaky = pd.concat([run([s], part, p.seeds, request=request, **p.execution()) for s, part in p.jobs_of("BRFL", table, clients=clients)])
    clean = rows[(rows["setting"] == "BRFL") & rows["method"].isin(table)]
    key = ["method", "column"]
    frames = [average(r, key).rename(columns={"mean": n, "std": f"{n}_std"}) for n, r in (("fixed", clean), ("resplit", leaky))]
    both = frames[0].merge(frames[1].drop(columns=["n_seeds", "n", "units"]), on=key).merge(provenance(clean, key), on=key)
    return both.assign(difference=both["resplit"] - both["fixed"])
