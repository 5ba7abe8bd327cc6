"""Device, precision and threads."""

import contextlib
import csv
import functools
import os
from dataclasses import dataclass, field
from pathlib import Path

import torch

from fedlib.tools.names import check_name

OPTIONS = ("graph", "channels_last", "compile", "bfloat16")
# Written by ``make gpu``: the fastest measured form of local training on a GPU, per network.
FASTEST = Path(__file__).with_name("fastest_on_gpu.csv")


@dataclass(frozen=True)
class Engine:
    """What floating-point results may depend on besides mathematics.

    device: ``cpu``, ``cuda``, or by number one of several GPUs, such as ``cuda:1``; threads: per process; chunk_size: most clients per
    stack, None for the fastest measured: on a CPU one by one for convolutions and 32 for networks without, on a GPU what the table
    ``FASTEST`` says of the network, 100 where it says nothing. Stacks that do not fit a GPU's memory are halved until they do.

    options: how local training runs besides, None for what that table says where chunk_size is None too, else nothing. ``graph``: on a GPU
    the steps of clients trained one by one with SGD of a constant rate are replayed from a CUDA graph; ``channels_last``: convolution
    weights of such clients are laid out so (on a CPU they always are); ``compile``: the loss goes through torch.compile; ``bfloat16``:
    forward passes in that type under autocast, which changes numbers in the third digit.

    dtype: ``float32``, or ``float64`` to compare engines; processes: that share the clients of a round where these train one by one on a
    CPU, as convolutions do, and have enough to do. An experiment with more jobs than trainings sets it.
    """

    device: str = "cpu"
    chunk_size: int | None = None
    threads: int = 1
    dtype: str = "float32"
    options: tuple[str, ...] | None = None
    processes: int = field(default=1, repr=False)  # no part of a cache key, since it changes no number

    def __post_init__(self):
        kind, _, number = self.device.partition(":")
        check_name("cuda" if kind == "cuda" and number.isdigit() else self.device, ("cpu", "cuda"), "device")
        check_name(self.dtype, ("float32", "float64"), "floating-point type")
        for option in self.options or ():
            check_name(option, OPTIONS, "option of the engine")
        if "graph" in (self.options or ()) and kind != "cuda":
            raise ValueError("the option 'graph' needs device='cuda': a CPU has no CUDA graphs")
        if min(self.threads, self.processes) < 1 or (self.chunk_size is not None and self.chunk_size < 1):
            limits = "threads >= 1, processes >= 1, chunk_size >= 1 or None"
            raise ValueError(f"out of range: {self}, processes={self.processes} ({limits})")
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise ValueError("device='cuda' was asked for, but this machine has no usable CUDA device: use device='cpu'")

    def form(self, network: str, convolutions: bool) -> tuple[int, tuple[str, ...]]:
        """The chunk size and the options with which ``network`` trains. convolutions: whether it has some."""
        fastest = fastest_on_gpu().get(network, (100, ())) if self.device.startswith("cuda") else (1 if convolutions else 32, ())
        options = fastest[1] if self.options is None and self.chunk_size is None else self.options or ()
        return self.chunk_size or fastest[0], options


@functools.cache
def fastest_on_gpu() -> dict[str, tuple[int, tuple[str, ...]]]:
    """Network -> chunk size and options, from ``FASTEST``; nothing where there is no such table."""
    if not FASTEST.exists():
        return {}
    with FASTEST.open(encoding="utf-8", newline="") as file:
        return {row["network"]: (int(row["chunk_size"]), tuple(row["options"].split())) for row in csv.DictReader(file)}


@contextlib.contextmanager
def running_on(engine: Engine):
    """The engine's threads and, on a GPU, torch's deterministic algorithms wherever there are some."""
    threads, gpu, deterministic = torch.get_num_threads(), engine.device.startswith("cuda"), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(engine.threads)
    if gpu:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        if gpu:
            torch.use_deterministic_algorithms(deterministic)
