"""FedICON's own pictures."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from fedlib.core import Benchmark
from fedlib.plots import charts


def train_and_test(benchmark: Benchmark, per_client: int = 8) -> Figure:
    """One row per client: its first training images on the left, its first test images on the right."""
    clients = benchmark.clients
    size = (8, 0.62 * len(clients) + 0.6)
    figure, axes = plt.subplots(len(clients), 2, figsize=size, layout="constrained", squeeze=False)
    for row, client in zip(axes, clients, strict=True):
        for axis, samples in zip(row, (client.train, next(iter(client.tests.values()))[0]), strict=True):
            charts.strip(axis, samples.images[:per_client])
        row[0].set_ylabel(f"{client.about}\n({len(client.train)})", rotation=0, ha="right", va="center", fontsize=8)
    for axis, title in zip(axes[0], ("training images (count)", "test images"), strict=True):
        axis.set_title(title)
    return figure


def first_setting(frame: pd.DataFrame, **options) -> Figure:
    """Bars of the first setting in ``frame``; options: of ``charts.bars``."""
    return charts.bars(frame[frame["setting"] == frame["setting"].iloc[0]], **options)
