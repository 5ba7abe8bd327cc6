import matplotlib.pyplot as plt
import numpy as np

from fedlib.papers.fedicon.plots import train_and_test
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
