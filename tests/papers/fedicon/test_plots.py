import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from fedlib.papers.fedicon.plots import first_setting, train_and_test
from fedlib.protocols.fedicon import Domains


def test_a_row_per_client_with_its_own_images():
    benchmark = Domains(n_train=12, domains=3).build(0)
    figure = train_and_test(benchmark, per_client=4)
    assert len(figure.axes) == 6
    client = benchmark.clients[1]
    for axis, samples in zip(figure.axes[2:4], (client.train, client.tests["clutter"][0]), strict=True):
        shown = np.asarray(axis.images[0].get_array())
        assert shown.shape == (16, 64, 3)
        np.testing.assert_array_equal(shown[:, 16:32], samples.images[1].permute(1, 2, 0).numpy())
    assert figure.axes[2].get_ylabel() == "clutter\n(12)"
    plt.close(figure)


def test_bars_of_the_first_setting_alone():
    frame = pd.DataFrame({"setting": ["a", "b"], "method": "FedAvg", "column": "original", "mean": [1.0, 2.0], "std": 0.0})
    figure = first_setting(frame, x="column", hue="method", title="first")
    assert [bar.get_height() for bar in figure.axes[0].patches if bar.get_height()] == [1.0]
    plt.close(figure)
