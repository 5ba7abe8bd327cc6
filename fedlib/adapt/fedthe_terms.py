"""FedTHE with the inner quantities that figures plot (see ``fedlib.adapt.fedthe``).

Its Figure 18: z of every sample, and z' = beta z + (1 - beta) H, smoothed by the history. BTFL's Figure 1: the weight of its entropy term,
the cosine s of both heads' probabilities, and the value of its alignment term, e D_g + (1 - e) D_l at the solved weight e.
"""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from fedlib.adapt.fedthe import FedTHE, history
from fedlib.core import Output, State, Stream, Task
from fedlib.states import own_head


def smooth(method: FedTHE, features: Tensor) -> Tensor:
    """z' of a stream's features [n, d], that of the last step where every step has one of its own."""
    past = history(features, method.alpha, method.history_rule, method.batch_size)
    share = method.beta**method.steps if method.compounded else method.beta
    return share * features + (1 - share) * past


@dataclass(frozen=True)
class SmoothedFeatures:
    """method: the FedTHE whose scores are returned and whose features are returned, as the extras ``features`` and ``smoothed`` [n, d]."""

    method: FedTHE = FedTHE()
    version: int = 1

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        output = self.method.run(task, state, personal, stream)
        features, _ = task.frozen(state, stream)
        return Output(output.scores, output.extras | {"features": features, "smoothed": smooth(self.method, features)})


@dataclass(frozen=True)
class FedTHETerms:
    """method: the FedTHE whose scores are returned and whose terms are returned, as the extras ``similarity`` and ``alignment`` [n]."""

    method: FedTHE = FedTHE()
    version: int = 1

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        output = self.method.run(task, state, personal, stream)
        features, global_logits = task.frozen(state, stream)
        personal_logits = own_head(features, personal)
        smoothed = smooth(self.method, features)
        to_global, to_personal = ((smoothed - personal[name]).norm(dim=1) for name in ("shared.descriptor", "descriptor"))
        e = output.extras["weight"]
        terms = {
            "similarity": functional.cosine_similarity(global_logits.softmax(1), personal_logits.softmax(1), dim=1, eps=1e-6),
            "alignment": e * to_global + (1 - e) * to_personal,
        }
        return Output(output.scores, output.extras | terms)
