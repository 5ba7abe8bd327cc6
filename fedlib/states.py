"""States: dictionaries of tensors by name, the parts of them that a prefix names (``fedlib.core``), and the rows of clients in stacks."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

State = dict[str, Tensor]
Server = dict[str, State]


def part(state: State, prefix: str) -> State:
    """The entries of ``state`` whose names begin with ``prefix``, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


def network_of(state: State) -> State:
    """The network's own tensors, without what methods keep beside it."""
    return {name: tensor for name, tensor in state.items() if name.startswith(("extractor.", "head."))}


def overlay(state: State, personal: State) -> State:
    """``state`` with the personal parts (entries ``model.<name>`` of ``personal``) in place of its own; itself where there are none."""
    own = part(personal, "model.")
    return state | own if own else state


def check_once(base: object) -> None:
    """Raise ValueError for a personalizer that lives through all rounds where one is made once, at the round that is tested."""
    if getattr(base, "persistent", False):
        raise ValueError(
            f"{type(base).__name__} is trained through all rounds, but what rests on it is made once: take a base with persistent = False"
        )


def slice_of(personal: State, k: int) -> State:
    """The personal part of the k-th client: its row of every tensor, and what all share (``shared.<name>``) whole."""
    return {name: tensor if name.startswith("shared.") else tensor[k] for name, tensor in personal.items()}


def stacked(states: Sequence[State], only: str = "", prefix: str = "model.") -> State:
    """What ``slice_of`` takes apart again: the tensors of one state per client whose names begin with ``only``, stacked over the clients,
    with ``prefix`` before their names."""
    return {f"{prefix}{name}": torch.stack([state[name] for state in states]) for name in states[0] if name.startswith(only)}


def own_head(features: Tensor, personal: State) -> Tensor:
    """Logits [n, C] of features [n, d] under the personal part's head, with or without bias."""
    return functional.linear(features, personal["model.head.weight"], personal.get("model.head.bias"))


def require(personal: State, method: str, maker: str, *names: str) -> None:
    """Raise ValueError unless ``personal`` holds ``names``, which ``method`` reads and ``maker`` makes."""
    if missing := [name for name in names if name not in personal]:
        raise ValueError(f"{method} needs {', '.join(missing)} in the personal part: personalize with {maker}")
