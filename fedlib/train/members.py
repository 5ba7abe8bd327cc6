"""Which row of a method's per-client state belongs to which client."""

from collections.abc import Sequence

import torch

from fedlib.core import Client, Server, State


def members(clients: Sequence[Client]) -> State:
    """The server group ``members``: ids of all training clients, in the order of the rows of per-client state."""
    return {"id": torch.tensor([client.id for client in clients])}


def positions(server: Server, cohort: Sequence[Client]) -> list[int]:
    """Rows of the clients of ``cohort``."""
    ids = server["members"]["id"].tolist()
    return [ids.index(client.id) for client in cohort]


def with_rows(stacks: State, rows: Sequence[int], owns: Sequence[State]) -> State:
    """``stacks`` with the clients' new values, ``owns``, in their ``rows``; the given ones are left untouched."""
    stacks = {name: stack.clone() for name, stack in stacks.items()}
    for name, stack in stacks.items():
        stack[rows] = torch.stack([own[name] for own in owns])
    return stacks
