"""The comparison of all five papers' methods on one bench: no paper prints it, and everything in it is ours."""

from fedlib.paper import Paper
from fedlib.papers.comparison.exhibits import EXHIBITS
from fedlib.papers.comparison.settings import LEFT_OUT, PROFILES, Parameters, coverage, first, reasons

__all__ = ["PAPER", "coverage", "reasons"]

PAPER = Paper(
    name="comparison",
    citation="The test-time methods of all five papers on one bench: the same data, clients, networks and training steps",
    package=__name__,
    parameters=Parameters,
    profiles=PROFILES,
    exhibits=EXHIBITS,
    setting=first,
    left_out=LEFT_OUT,
)
