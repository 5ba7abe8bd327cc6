"""Parts of the model that stay with their clients: the normalisation (FedBN), the head (FedRep), everything (training alone).

Beside ``model``, the server's state holds the group ``client_model``: the parts that stay, stacked over the source clients, and
``members``, whose row is whose. The federation puts a client's own parts into the model it receives. They are kept for the last
finished round only, so methods with such parts are evaluated after it (``whole_run``).
"""

from collections.abc import Callable, Sequence

import torch

from fedlib.core import Client, Server, State, Task
from fedlib.models import state_of
from fedlib.train.fedavg import mean
from fedlib.train.members import members, positions, with_rows

Stays = Callable[[str], bool]


def start(task: Task, clients: Sequence[Client], stays: Stays) -> Server:
    """The network's own initialisation, for all clients alike."""
    model = state_of(task.model)
    own = {name: torch.stack([tensor] * len(clients)) for name, tensor in model.items() if stays(name)}
    return {"model": model} | ({"client_model": own, "members": members(clients)} if own else {})


def models(server: Server, cohort: Sequence[Client]) -> list[State]:
    """The model of every client of the cohort: the server's, with its own parts in place."""
    if "client_model" not in server:
        return [server["model"]] * len(cohort)
    return [server["model"] | {name: stack[row] for name, stack in server["client_model"].items()} for row in positions(server, cohort)]


def average(server: Server, messages: Sequence[State], cohort: Sequence[Client], weights: Sequence[float]) -> Server:
    """The weighted mean of what is shared; each client's own parts replace its old ones. In ``model``, parts that stay are the mean too,
    which only clients that never trained use."""
    result = server | {"model": mean(messages, weights)}
    if "client_model" in server:
        result["client_model"] = with_rows(server["client_model"], positions(server, cohort), messages)
    return result
