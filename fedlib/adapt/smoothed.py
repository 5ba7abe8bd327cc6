"""FedTHE with the two features that its Figure 18 plots: z of every sample, and z' = beta z + (1 - beta) H, smoothed by the history."""

from dataclasses import dataclass

from fedlib.adapt.fedthe import FedTHE, history
from fedlib.core import Output, State, Stream, Task


@dataclass(frozen=True)
class SmoothedFeatures:
    """method: the FedTHE whose scores are returned and whose features are told, as the extras ``features`` and ``smoothed`` [n, d]."""

    method: FedTHE = FedTHE()
    version: int = 1

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        output = self.method.run(task, state, personal, stream)
        features, _ = task.frozen(state, stream)
        past = history(features, self.method.alpha, self.method.history_rule, self.method.batch_size)
        smoothed = self.method.beta * features + (1 - self.method.beta) * past
        return Output(output.scores, output.extras | {"features": features, "smoothed": smoothed})
