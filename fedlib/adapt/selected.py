"""An adapter whose hyperparameters the source clients chose (``fedlib.personalize.select``)."""

from dataclasses import dataclass

from fedlib.core import Adapter, Output, State, Stream, Task


@dataclass(frozen=True)
class Selected:
    """candidates: the adapters that were compared, in the same order; the personal part's ``shared.choice`` says which one runs."""

    candidates: tuple[Adapter, ...]
    version: int = 1

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        return self.candidates[int(personal["shared.choice"])].run(task, state, personal, stream)
