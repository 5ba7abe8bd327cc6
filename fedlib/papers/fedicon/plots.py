"""FedICON's own pictures."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedlib.core import Benchmark, Samples
from fedlib.plots import charts


def train_and_test(benchmark: Benchmark, per_client: int = 8) -> Figure:
    """One row per client: its first training images on the left, its first test images on the right."""
    clients = benchmark.clients
    size = (8, 0.62 * len(clients) + 0.6)
    figure, axes = plt.subplots(len(clients), 2, figsize=size, layout="constrained", squeeze=False)
    for row, client in zip(axes, clients, strict=True):
        for axis, samples in zip(row, (client.train, next(iter(client.tests.values()))[0]), strict=True):
            axis.imshow(_strip(samples, per_client), cmap="gray", vmin=0, vmax=255)
            axis.set(xticks=[], yticks=[])
            axis.grid(visible=False)
        row[0].set_ylabel(f"{client.about}\n({len(client.train)})", rotation=0, ha="right", va="center", fontsize=8)
    for axis, title in zip(axes[0], ("training images (count)", "test images"), strict=True):
        axis.set_title(title)
    return figure


def _strip(samples: Samples, n: int) -> np.ndarray:
    return np.concatenate(list(samples.images[:n].cpu().permute(0, 2, 3, 1).numpy()), axis=1).squeeze()


def first_setting(frame: pd.DataFrame, **options) -> Figure:
    """Bars of the first setting in ``frame``; options: of ``charts.bars``."""
    return charts.bars(frame[frame["setting"] == frame["setting"].iloc[0]], **options)
