"""FedTHE with the two quantities that BTFL's Figure 1 plots: the weight of its entropy term and the value of its alignment term.

Per sample: the cosine s of both heads' probabilities, and e D_g + (1 - e) D_l at the solved weight e (see ``fedlib.adapt.fedthe``).
"""

from dataclasses import dataclass

from torch.nn import functional

from fedlib.adapt.fedthe import FedTHE, history
from fedlib.core import Output, State, Stream, Task


@dataclass(frozen=True)
class FedTHETerms:
    """method: the FedTHE whose scores are returned and whose terms are told, as the extras ``similarity`` and ``alignment`` [n]."""

    method: FedTHE = FedTHE()
    version: int = 1

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        output = self.method.run(task, state, personal, stream)
        features, global_logits = task.frozen(state, stream)
        personal_logits = functional.linear(features, personal["model.head.weight"])
        past = history(features, self.method.alpha, self.method.history_rule, self.method.batch_size)
        smoothed = self.method.beta * features + (1 - self.method.beta) * past
        to_global, to_personal = ((smoothed - personal[name]).norm(dim=1) for name in ("shared.descriptor", "descriptor"))
        e = output.extras["weight"]
        terms = {
            "similarity": functional.cosine_similarity(global_logits.softmax(1), personal_logits.softmax(1), dim=1, eps=1e-6),
            "alignment": e * to_global + (1 - e) * to_personal,
        }
        return Output(output.scores, output.extras | terms)
