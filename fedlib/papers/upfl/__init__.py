"""UPFL (FedTTA): everything that belongs to this paper and to no other."""

from fedlib.paper import Paper
from fedlib.papers.upfl.exhibits import EXHIBITS, final
from fedlib.papers.upfl.recipes import printed_rates
from fedlib.papers.upfl.settings import PROFILES, Parameters, main_settings, notes

__all__ = ["PAPER", "final", "notes", "printed_rates"]

PAPER = Paper(
    name="upfl",
    citation="Ye, Chen, Wang, Li and Gao, UPFL: unsupervised personalized federated learning towards new clients, SDM 2024",
    package=__name__,
    parameters=Parameters,
    profiles=PROFILES,
    exhibits=EXHIBITS,
    setting=lambda p: next(iter(main_settings(p).values())),
    left_out="left out by the parameters of this run (data set or methods)",
)
