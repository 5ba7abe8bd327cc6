"""Where the experiment hands something to a method and takes something back: both are checked here, before anything is saved.

A method that writes into what it was given changes the numbers of every method after it. So while a method runs, what it was handed is
watched (tensors by content on a CPU, by their count of in-place writes on a GPU), and so is what all share: the transform, torch's default
type and gradient mode, and the global random states. The network's mode is put back behind every method. What a method returns is checked
for type, shape, device, floating type, finite values and gradients. What it writes into itself is gone after every call.
"""

import contextlib
import copy
import random
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedlib.core import Client, Output, Server, State, Stream, Task

KEPT = {"scores", "seconds"}  # of every stream, beside an adapter's extras


class MisbehavedError(RuntimeError):
    """A method changed what it was handed, or returned something other than its contract says."""


class MethodError(RuntimeError):
    """An exception within a user's method, with its name and where it was."""


@contextlib.contextmanager
def called(stage: Any, who: str) -> Iterator[Any]:
    """A stage of a method to call once: a copy, so that what it, or a user's stage within it, writes into itself ends with the call and no
    client or test depends on the ones before. What a user's raises becomes a MethodError that names ``who``; divergence and misbehaviour
    speak for themselves."""
    try:
        own = copy.deepcopy(stage)
    except Exception:  # something in it cannot be copied, such as a generator or a tensor of a graph
        own = copy.copy(stage)
    try:
        yield own
    except (FloatingPointError, MisbehavedError):
        raise
    except Exception as error:
        if type(stage).__module__.partition(".")[0] == __name__.partition(".")[0]:
            raise
        raise MethodError(f"{who} failed: {type(error).__name__}: {error}") from error


def check_output(output: object, task: Task, stream: Stream, who: str) -> Output:
    """``output`` of the adapter called ``who`` on ``stream``. Raises MisbehavedError, naming what is wrong and what is expected."""
    if not isinstance(output, Output):
        raise MisbehavedError(f"{who} returned {_kind(output)}: an adapter returns Output(scores), see fedlib.core")
    expected = f"scores as floating-point [n, C] or [predictors, n, C], here n={len(stream)} and C={task.n_classes}"
    _check_tensor(output.scores, who, "scores", expected, stream)
    if output.scores.dtype not in (torch.float32, torch.float64):
        raise MisbehavedError(f"{who} returned scores of type {output.scores.dtype}: float32 or float64 is expected")
    if output.scores.dim() not in (2, 3) or output.scores.shape[-2:] != (len(stream), task.n_classes):
        raise MisbehavedError(f"{who} returned scores {tuple(output.scores.shape)}: expected {expected}")
    # Before any look at single values, so that the message names the method and not the experiment.
    if not torch.isfinite(output.scores).all():
        bad = (~torch.isfinite(output.scores)).sum().item()
        raise FloatingPointError(f"{who} gave scores that are not finite ({bad} of {output.scores.numel()})")
    if not isinstance(output.extras, Mapping):
        raise MisbehavedError(f"{who} returned extras as {_kind(output.extras)}: a dictionary of tensors is expected")
    if taken := KEPT & {*output.extras}:
        raise MisbehavedError(f"{who} returned an extra called {min(taken)!r}, as the experiment calls what it keeps: call it otherwise")
    for name, extra in output.extras.items():
        _check_tensor(extra, who, f"the extra {name!r}", f"one value per sample, [{len(stream)}, ...]", stream)
        if extra.dim() < 1 or len(extra) != len(stream):
            raise MisbehavedError(f"{who} returned the extra {name!r} as {tuple(extra.shape)}: one value per sample, [{len(stream)}, ...]")
        if extra.is_floating_point() and torch.isnan(extra).any():
            raise MisbehavedError(f"{who} returned NaN in the extra {name!r}")
    return output


def check_state(state: object, who: str, what: str, rows: int | None = None) -> State:
    """A dictionary of tensors; ``rows``: the leading dimension of all that are not ``shared.<name>``. Raises MisbehavedError."""
    if not isinstance(state, Mapping):
        raise MisbehavedError(f"{who} returned {what} as {_kind(state)}: a dictionary of tensors is expected")
    for name, tensor in state.items():
        if not isinstance(tensor, Tensor):
            raise MisbehavedError(f"{who} returned {what} with {name!r} as {_kind(tensor)}: a tensor is expected")
        if tensor.requires_grad:
            raise MisbehavedError(f"{who} returned {what} with gradients in {name!r}: detach it, or work under torch.no_grad()")
        if tensor.is_inference():  # PyTorch does not count the writes into such a tensor
            raise MisbehavedError(f"{who} returned {what} with {name!r} from torch.inference_mode(): work under torch.no_grad()")
        if rows is not None and not str(name).startswith("shared.") and (tensor.dim() < 1 or len(tensor) != rows):
            shape = tuple(tensor.shape)
            raise MisbehavedError(
                f"{who} returned {what} with {name!r} {shape}: [{rows}, ...], one row per client, or call it shared.<name>"
            )
    return state


def check_messages(messages: object, who: str, clients: int) -> list[State]:
    """One dictionary of tensors for each of the cohort's ``clients``. Raises MisbehavedError."""
    if not isinstance(messages, list | tuple) or len(messages) != clients:
        found = f"{len(messages)} of them" if isinstance(messages, list | tuple) else _kind(messages)
        raise MisbehavedError(f"{who} returned {found} from update: a list with one message for each of {clients} clients is expected")
    return [check_state(message, who, "a client's message") for message in messages]


def check_server(server: object, who: str, before: Server | None = None) -> Server:
    """Groups of tensors by name, ``model`` among them, with every tensor that it had ``before``. Raises MisbehavedError."""
    if not isinstance(server, Mapping) or "model" not in server:
        found = f"groups {', '.join(map(repr, server)) or 'without any'}" if isinstance(server, Mapping) else _kind(server)
        raise MisbehavedError(f"{who} returned the server's state as {found}: a dictionary of groups, 'model' among them, is expected")
    for group, state in server.items():
        check_state(state, who, f"the server's group {group!r}")
    if lost := [name for name in (before or server)["model"] if name not in server["model"]]:
        # The network's own untrained ones would take their place.
        raise MisbehavedError(f"{who} returned the server's model without {', '.join(map(repr, lost))}, which it had before")
    return server


def _check_tensor(value: object, who: str, what: str, expected: str, stream: Stream) -> None:
    if not isinstance(value, Tensor):
        raise MisbehavedError(f"{who} returned {what} as {_kind(value)}: expected {expected}")
    if value.requires_grad:
        raise MisbehavedError(f"{who} returned {what} with gradients: detach, or work under torch.no_grad()")
    if value.device.type != stream.images.device.type:
        raise MisbehavedError(f"{who} returned {what} on {value.device}: the stream is on {stream.images.device}")


def _kind(value: object) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiou' or name == 'ndarray' else 'a'} {name}"


@contextlib.contextmanager
def watched(task: Task, handed: Mapping[str, Tensor], who: str, *, counted: Mapping[str, Tensor] = MappingProxyType({})) -> Iterator[None]:
    """While the block runs, ``handed`` tensors and what all methods share must stay as they are; counted: tensors whose content is watched
    around many such blocks, so that here their in-place writes are counted and no more.

    Raises MisbehavedError naming ``who`` and what was changed. Global settings are put back then, and after any error within the block, so
    that a notebook's kernel can go on.
    """
    modes = [(module, module.training) for module in task.model.modules()]
    handed = handed if task.public is None else {**handed, "the public images": task.public}
    seen = lambda: marks(handed.values()) + marks(counted.values(), content=False)  # noqa: E731
    before, shared = seen(), _shared(task)
    try:
        yield
    except BaseException:
        _restore(task, shared)
        raise
    finally:
        for module, training in modes:
            module.training = training
    changed = [name for name, old, new in zip([*handed, *counted], before, seen(), strict=True) if old != new]
    after = _shared(task)
    changed += [name for name, state in shared.items() if not _same(state, after[name])]
    if changed:
        _restore(task, shared)
        raise MisbehavedError(
            f"{who} changed {', '.join(changed)}, which other methods share: work on a clone, leave global settings alone, and draw "
            "from a generator of your own, such as task.generator('my method', client)"
        )


def marks(tensors: Iterable[Tensor], content: bool = True) -> list[tuple[int, int]]:
    """What changes when a tensor is written to: its count of in-place writes and, on a CPU and unless ``content`` is False, a checksum, as
    NumPy's writes do not count."""
    return [(t._version, _checksum(t) if content and t.device.type == "cpu" else 0) for t in tensors]


def _checksum(tensor: Tensor) -> int:
    tensor = tensor.detach()
    if not tensor.is_contiguous():
        # Dense tensors in another layout, such as channels last, are read as they lie.
        tensor = tensor.permute(sorted(range(tensor.dim()), key=lambda d: -tensor.stride(d)))
    return zlib.crc32(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data) if tensor.numel() else 0


def _shared(task: Task) -> dict[str, object]:
    """What all methods share besides tensors, by a name for people."""
    return {
        "the transform": dict(vars(task.transform)),
        "torch's default type": torch.get_default_dtype(),
        "torch's gradient mode": torch.is_grad_enabled(),
        "torch's global random state": torch.get_rng_state(),
        "NumPy's global random state": np.random.get_state(),  # noqa: NPY002 - the one that others draw from
        "Python's global random state": random.getstate(),
    }


def _same(a: object, b: object) -> bool:
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    if isinstance(a, tuple) and any(isinstance(item, np.ndarray) for item in a):
        return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    return a == b


def _restore(task: Task, shared: Mapping[str, object]) -> None:
    vars(task.transform).update(shared["the transform"])
    torch.set_default_dtype(shared["torch's default type"])
    torch.set_grad_enabled(shared["torch's gradient mode"])
    torch.set_rng_state(shared["torch's global random state"])
    np.random.set_state(shared["NumPy's global random state"])  # noqa: NPY002
    random.setstate(shared["Python's global random state"])


def tensors_of(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a state, named for people."""
    return {f"{prefix} ({name})": tensor for name, tensor in state.items()}


def labelled_of(clients: Sequence[Client]) -> dict[str, Tensor]:
    """The labelled images of clients that a training or personal method reads, named for people."""
    parts = {f"client {c.id}'s {part}": getattr(c, part) for c in clients for part in ("train", "val")}
    return {f"{name} {kind}": getattr(samples, kind) for name, samples in parts.items() for kind in ("images", "labels")}
