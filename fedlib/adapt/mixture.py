"""Predictions from two models or heads whose blend is not chosen at test time. Nothing is carried over the stream.

``ModelMixture`` is APFL's, ``HeadSum`` FedRoD's; ``Interpolation`` is FedTHE's study of one fixed weight (Figures 14 and 15), which blends
logits: of the global and the personal head, or of the global and the personal model.
"""

from dataclasses import dataclass

from torch.nn import functional

from fedlib.core import Output, State, Stream, Task
from fedlib.states import overlay, own_head, part, require
from fedlib.tools.names import check_name


@dataclass(frozen=True)
class ModelMixture:
    """weight * logits of the tuned received model + (1 - weight) * logits of the client's own model, both learned by APFL's phase."""

    version: int = 1

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        require(personal, "ModelMixture", "APFL", "own.head.weight")
        tuned = task.predict(overlay(state, personal), stream.images)[1]
        own = task.predict(part(personal, "own."), stream.images)[1]
        return Output(own + personal["weight"] * (tuned - own))


@dataclass(frozen=True)
class HeadSum:
    """Logits of the tuned received model plus those of FedRoD's personal head on its features."""

    version: int = 1

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        require(personal, "HeadSum", "FedRoD", "personal_head.weight")
        features, logits = task.predict(overlay(state, personal), stream.images)
        return Output(logits + functional.linear(features, personal["personal_head.weight"], personal["personal_head.bias"]))


@dataclass(frozen=True)
class Interpolation:
    """weight * global logits + (1 - weight) * personal logits.

    weight: in [0, 1], of the global side. of: ``heads`` (the personal head of ``PersonalHead`` on the received features) or ``models`` (the
    received model and the same with the client's personal parts, as ``FineTune`` makes them).
    """

    weight: float = 0.5
    of: str = "heads"
    version: int = 1

    def __post_init__(self):
        check_name(self.of, ("heads", "models"), "kind of interpolation")
        if not 0 <= self.weight <= 1:
            raise ValueError(f"the weight of the global side must lie in [0, 1], got {self.weight}")

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        require(personal, "Interpolation", "PersonalHead or FineTune", "model.head.weight")
        features, logits = task.frozen(state, stream)
        other = own_head(features, personal) if self.of == "heads" else task.predict(overlay(state, personal), stream.images)[1]
        return Output(other + self.weight * (logits - other))
