"""FedICON: everything that belongs to this paper and to no other."""

from fedlib.paper import Paper
from fedlib.papers.fedicon.exhibits import EXHIBITS, copied, stand_ins
from fedlib.papers.fedicon.plots import train_and_test
from fedlib.papers.fedicon.settings import PROFILES, Parameters, first

__all__ = ["PAPER", "copied", "stand_ins"]

PAPER = Paper(
    name="fedicon",
    citation="Tan, Chen, Zhuang, Dong, Lyu and Long, Is heterogeneity notorious? Taming heterogeneity to handle test-time shift in "
    "federated learning, NeurIPS 2023",
    package=__name__,
    parameters=Parameters,
    profiles=PROFILES,
    exhibits=EXHIBITS,
    setting=first,
    picture=train_and_test,
    left_out="left out by the parameters of this run (data sets or methods)",
)
