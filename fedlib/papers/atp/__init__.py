"""ATP: everything that belongs to this paper and to no other."""

from fedlib.paper import Paper
from fedlib.papers.atp.exhibits import EXHIBITS, main, who
from fedlib.papers.atp.settings import PROFILES, Parameters
from fedlib.papers.atp.toy import closed_form

__all__ = ["PAPER", "closed_form"]

PAPER = Paper(
    name="atp",
    citation="Bao, Wei, Wang and He, Adaptive test-time personalization for federated learning, NeurIPS 2023",
    package=__name__,
    parameters=Parameters,
    profiles=PROFILES,
    exhibits=EXHIBITS,
    setting=main,
    left_out="the method was left out of this run (parameter methods)",
    who=who,
)
