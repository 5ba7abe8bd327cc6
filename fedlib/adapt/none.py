"""No adaptation: the received model, with the client's personal parts in place of its own, predicts every sample."""

from dataclasses import dataclass

from fedlib.adapt.output import Output
from fedlib.clients import Stream
from fedlib.task import State, Task, overlay


@dataclass(frozen=True)
class NoAdapt:
    version: int = 1

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        has_parts = any(name.startswith("model.") for name in personal)
        return Output((task.predict(overlay(state, personal), stream.images) if has_parts else task.frozen(state, stream))[1])
