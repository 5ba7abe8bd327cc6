"""FedTHE and its benchmark BRFL: everything that belongs to this paper and to no other."""

from fedlib.paper import Paper
from fedlib.papers.fedthe.exhibits import EXHIBITS
from fedlib.papers.fedthe.figures import STRONG, gaps
from fedlib.papers.fedthe.settings import PROFILES, Parameters, setting
from fedlib.papers.fedthe.tables import mean_of_four

__all__ = ["PAPER", "gaps", "mean_of_four"]

PAPER = Paper(
    name="fedthe",
    citation="Jiang and Lin, Test-time robust personalization for federated learning, ICLR 2023",
    package=__name__,
    parameters=Parameters,
    profiles=PROFILES,
    exhibits=EXHIBITS,
    setting=lambda p: setting(p, STRONG),
    left_out="left out by the parameters methods, alphas or imagenet32",
)
