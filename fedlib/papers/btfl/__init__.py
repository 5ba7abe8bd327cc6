"""BTFL and its benchmark BTGFL: everything that belongs to this paper and to no other."""

from fedlib.paper import Paper
from fedlib.papers.btfl.exhibits import EXHIBITS, integral_error, main, mean_weights
from fedlib.papers.btfl.settings import PROFILES, Parameters
from fedlib.papers.btfl.times import ratios

__all__ = ["PAPER", "integral_error", "mean_weights", "ratios"]

PAPER = Paper(
    name="btfl",
    citation="Zhou and Liu, BTFL: a Bayesian-based test-time generalization method for internal and external data distributions in "
    "federated learning, KDD 2025",
    package=__name__,
    parameters=Parameters,
    profiles=PROFILES,
    exhibits=EXHIBITS,
    setting=main,
    left_out="left out by the parameter methods",
)
