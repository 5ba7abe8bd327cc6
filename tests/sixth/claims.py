"""The claim of the sixth paper."""

from fedlib.published.comparisons import above
from fedlib.published.evidence import Claim


def s1(t):
    return [above(t.at("T1", "RunningPrior", column), t.at("T1", "FedAvg", column)) for column in t.columns("T1")]


# How the names of the paper's own methods begin, and how many runs are behind a printed standard deviation.
OURS, SEEDS = ("RunningPrior",), 3
# Figures that claims read -> their columns: none.
FIGURE_COLUMNS: dict[str, tuple[str, ...]] = {}
CLAIMS = (Claim("S1", "what is frequent in the stream helps, on clean and on corrupted images", ("T1",), s1),)
