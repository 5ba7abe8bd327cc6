"""The benchmarks' figure: speed against the plain loop on the left, growth on the right."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from fedlib.plots import style
from fedlib.results import write_figure

RATIOS = ("streams", "tuning", "local", "data", "table")


def read(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The ratios of every case's fastest own variant, and the growth table; empty where the files are not there."""
    frames = [pd.read_csv(folder / f"{name}.csv").assign(benchmark=name) for name in RATIOS if (folder / f"{name}.csv").exists()]
    growth = pd.read_csv(folder / "growth.csv") if (folder / "growth.csv").exists() else pd.DataFrame()
    if not frames:
        return pd.DataFrame(), growth
    ratios = pd.concat(frames, ignore_index=True)
    own = ratios[~ratios["variant"].str.contains("loop|published|alone|PIL")]
    best = own.loc[own.groupby(["benchmark", "case"], sort=False)["ratio"].idxmax()]
    return best[["benchmark", "case", "variant", "seconds", "per", "ratio"]], growth


def write(folder: Path) -> None:
    """``bench.png``, ``bench.svg`` and ``bench.csv`` from the CSV files in ``folder``; nothing while one of both halves is missing."""
    best, growth = read(folder)
    if best.empty or growth.empty:
        return
    style.use()
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 0.28 * len(best) + 1), width_ratios=(1, 1.2))
    names = best["case"] + " (" + best["variant"] + ")"
    left.barh(np.arange(len(best)), best["ratio"], color=style.BLUE)
    left.set_yticks(np.arange(len(best)), names)
    left.axvline(1, color="black", linewidth=0.8)
    left.set(xscale="log", xlabel="times as fast as the plain loop, one thread")
    left.invert_yaxis()
    for i, ((case, against), rows) in enumerate(growth.groupby(["case", "against"], sort=False)):
        label = f"{case} / {against}: {rows['time_exponent'].iloc[0]:.2f}"
        right.plot(rows["size"], rows["seconds"], marker="osD^vP*X"[i % 8], color=style.PALETTE[i % 10], label=label)
    right.set(xscale="log", yscale="log", xlabel="clients, samples or classes", ylabel="CPU seconds")
    right.legend(title="what / against: exponent of time", fontsize=7, loc="upper left", bbox_to_anchor=(1.02, 1))
    where = pd.read_csv(folder / "growth.csv").iloc[0]
    facts = f"{where['cpu']}, {where['cores']} cores, load {where['load']}, torch {where['torch']}, {where['date']}"
    style.heading(figure, f"Speed against plain loops, and growth\n{facts}")
    figure.tight_layout()
    write_figure(figure, best, folder, "bench", f"Speed of the kit against plain loops and its growth. {facts}")
    plt.close(figure)
