"""ATP's toy example (appendix C.5, Figure 9): why a negative rate helps under label shift.

x given y is N(y, 0.8^2), y = -1 or +1, one batch-norm layer without affine part, prediction the sign of its output z. P(y = 1) is 1/2 in
training and 5/6 at test time, so that the test mean moves to 2/3 although no image has changed. A rate a mixes the two means,
mu = (1 - a) 0 + a 2/3, and moves the threshold with them; the variance scales z but no decision. Closed form:

    accuracy(a) = 5/6 Phi((1 - 2a/3) / 0.8) + 1/6 Phi((1 + 2a/3) / 0.8)

Paper and code: the paper does not print its negative rate; -0.5 here.
"""

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from fedlib.tools.seeding import numpy_generator

SPREAD = 0.8
TEST_PRIOR = 5 / 6
TEST_MEAN = 2 * TEST_PRIOR - 1
VARIANCES = (1 + SPREAD**2, 1 + SPREAD**2 - TEST_MEAN**2)  # of x in training and at test time
RATES = (1.0, 0.5, 0.0, -0.5)


def accuracy(rate: float) -> float:
    """Probability, in [0, 1], that the sign of z is the label at test time."""
    threshold = rate * TEST_MEAN
    positive, negative = norm.cdf((1 - threshold) / SPREAD), norm.cdf((1 + threshold) / SPREAD)
    return float(TEST_PRIOR * positive + (1 - TEST_PRIOR) * negative)


def best_rate() -> float:
    """The rate of highest accuracy."""
    return float(minimize_scalar(lambda rate: -accuracy(rate), bounds=(-3, 3), method="bounded", options={"xatol": 1e-8}).x)


def closed_form() -> pd.DataFrame:
    """Accuracy in percent at the figure's rates and, last, at the best one, without drawing a sample."""
    rates = [*RATES, best_rate()]
    found = pd.Series([100 * accuracy(rate) for rate in rates], [round(rate, 4) for rate in rates], name="closed form (%)")
    return found.round(2).rename_axis("rate").to_frame()


def histograms(n: int = 200_000) -> pd.DataFrame:
    """Figure 9: density of z by class, in training and at test time for every rate of ``RATES``.

    Columns panel (train, test), alpha, label, z, density (a panel's two classes integrate to one together), accuracy of the drawn samples
    in percent, n_seeds, run_dataset, run_model, status.
    """
    rng, parts = numpy_generator(0, "toy"), []
    for panel, rate, prior in [("train", 0.0, 0.5), *(("test", rate, TEST_PRIOR) for rate in RATES)]:
        y = np.where(rng.random(n) < prior, 1, -1)
        variance = VARIANCES[0] + rate * (VARIANCES[1] - VARIANCES[0])
        z = (rng.normal(y, SPREAD) - rate * TEST_MEAN) / np.sqrt(variance)
        right = 100 * np.mean(np.sign(z) == y)
        for label in (-1, 1):
            counts, edges = np.histogram(z[y == label], bins=60, range=(-4, 4))
            density = counts / n / (edges[1] - edges[0])
            columns = {"panel": panel, "alpha": rate, "label": label, "z": (edges[1:] + edges[:-1]) / 2, "density": density}
            parts.append(pd.DataFrame(columns | {"accuracy": right}))
    return pd.concat(parts, ignore_index=True).assign(n_seeds=1, run_dataset="toy problem", run_model="batch norm", status="ok")
