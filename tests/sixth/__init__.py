"""A sixth paper, made up and outside the package: a client's stream tells which classes are frequent there. What a paper needs at least."""

from fedlib.paper import Paper

from .exhibits import EXHIBITS
from .settings import PROFILES, Parameters, setting

PAPER = Paper(
    name="sixth",
    citation="Nobody, The prior of a stream, in no proceedings",
    package=__name__,
    parameters=Parameters,
    profiles=PROFILES,
    exhibits=EXHIBITS,
    setting=setting,
)
