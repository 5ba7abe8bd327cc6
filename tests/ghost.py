"""A GPU that is not there: tensors on ``meta`` that PyTorch's FakeTensorMode judges as if they were on ``cuda``.

What has no tensor on the ghost runs for real on the CPU: plans, draws, matrices. What has one yields shapes only, and is first handed to
FakeTensorMode with every ghost tensor standing on ``cuda``, which refuses what a GPU refuses, above all to mix devices. (Tensors of
FakeTensorMode itself have no backward pass on a machine without a GPU; those on ``meta`` have.) Where the program wants a value of the
GPU's on the host, or hands it one and waits, that is noted under the function of the kit that did it, and a value is made up.
"""

import sys
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import fedlib

GHOST = "meta"
HOME = str(Path(fedlib.__file__).parent)
aten = torch.ops.aten
# Operations whose result's size is a value of the GPU's.
SIZED = (aten.nonzero.default, aten.masked_select.default, aten.bincount.default, aten.unique_dim.default, aten._unique2.default)


class GhostGPU(TorchDispatchMode):
    """stops: (module, function) of the kit -> how often the host waited there; answers: function -> what it reads in turn,
    others 1, and 0 of what is asked of any."""

    def __init__(self, answers: dict[str, tuple] | None = None):
        super().__init__()
        self.judged: set[tuple] = set()
        self.last = None
        self.judge, self.stops, self.reads, self.answers = FakeTensorMode(), Counter(), Counter(), answers or {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        ghosts = [t for t in tensors if t.device.type == GHOST]
        target = torch.device(kwargs.get("device") or "cpu").type
        if not ghosts:
            if function is aten._to_copy.default and target == GHOST and not kwargs.get("non_blocking"):
                self.stop()
            return function(*args, **kwargs)
        if function is aten._local_scalar_dense.default:
            return self.value(args[0].dtype)
        if function is aten._to_copy.default and "device" in kwargs and target == "cpu":
            self.stop()
            return torch.ones(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        if function is aten.copy_.default and len(ghosts) == 1:
            self.stop()
            return args[0].fill_(1) if args[0].device.type == "cpu" else args[0]
        if function is aten.equal.default:
            return bool(self.value(torch.bool))
        if function in SIZED:
            self.stop()
            return self.sized(function, args, kwargs)
        if function in (aten.index.Tensor, aten.index_put_.default, aten._index_put_impl_.default, aten.index_put.default):
            args = (args[0], [self.position(args[0], i, p) for i, p in enumerate(args[1])], *args[2:])
        self.ask(function, args, kwargs)
        self.last = function
        return function(*args, **kwargs)

    def ask(self, function, args, kwargs) -> None:
        """Let FakeTensorMode judge the operation, once for all tensors of these shapes and places."""
        case = (
            function,
            *(
                (tuple(x.shape), x.stride(), x.dtype, x.device.type) if isinstance(x, Tensor) else str(x)
                for x in tree_leaves((args, kwargs))
            ),
        )
        if case not in self.judged:
            # Its stand-ins may draw where a GPU would from a generator of its own.
            with torch.random.fork_rng(devices=[]), self.judge:
                function(*tree_map(self.on_cuda, args), **tree_map(self.on_cuda, kwargs))
            self.judged.add(case)

    def on_cuda(self, x):
        if not isinstance(x, Tensor):
            return torch.device("cuda") if x == torch.device(GHOST) else x
        shape = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
        return FakeTensor(self.judge, shape, torch.device("cuda:0" if x.device.type == GHOST else "cpu"))

    def position(self, tensor: Tensor, axis: int, index: Tensor | None) -> Tensor | None:
        """An index as the GPU gets it: from the host it has to be copied, a mask has to be counted."""
        if index is None:
            return None
        if index.device.type != GHOST:
            self.stop()
        if index.dtype in (torch.bool, torch.uint8):
            self.stop()
            return torch.empty(index.numel(), dtype=torch.int64, device=GHOST)
        return index.to(GHOST, non_blocking=True)

    @staticmethod
    def sized(function, args, kwargs):
        if function is aten.bincount.default:
            weights = kwargs.get("weights", args[1] if len(args) > 1 else None)
            size = max(1, kwargs.get("minlength", args[2] if len(args) > 2 else 0))
            return torch.empty(size, dtype=torch.int64 if weights is None else weights.dtype, device=GHOST)
        if function is aten.nonzero.default:
            return torch.empty(args[0].numel(), args[0].dim(), dtype=torch.int64, device=GHOST)
        if function is aten.masked_select.default:
            return torch.empty(args[0].numel(), dtype=args[0].dtype, device=GHOST)
        raise NotImplementedError(f"{function}: what the ghost answers is not written yet")

    def value(self, dtype: torch.dtype):
        _, name = self.stop()
        told = self.answers.get(name, (0,) if self.last is aten.any.default else (1,))
        self.reads[name] += 1
        answer = told[(self.reads[name] - 1) % len(told)]
        return bool(answer) if dtype == torch.bool else float(answer) if dtype.is_floating_point else int(answer)

    def stop(self) -> tuple[str, str]:
        """Note a wait under the innermost function of the kit."""
        frame = sys._getframe(1)
        while frame is not None and (not frame.f_code.co_filename.startswith(HOME) or frame.f_code.co_name.startswith("<")):
            frame = frame.f_back
        place = ("outside", "") if frame is None else (frame.f_code.co_filename[len(HOME) + 1 : -3], frame.f_code.co_name)
        self.stops[place] += 1
        return place
