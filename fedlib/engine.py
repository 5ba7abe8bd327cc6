"""Device, precision and threads."""

import contextlib
import os
from dataclasses import dataclass

import torch

from fedlib.names import check_name


@dataclass(frozen=True)
class Engine:
    """What floating-point results may depend on besides mathematics.

    device: ``cpu``, ``cuda``, or by number one of several GPUs, such as ``cuda:1``; threads: per process; chunk_size: most clients per
    stack, None for the fastest measured on a CPU, one by one for convolutions and 32 for networks without, and for 100 on a GPU. Stacks
    that do not fit a GPU's memory are halved until they do.
    """

    device: str = "cpu"
    chunk_size: int | None = None
    threads: int = 1
    dtype: str = "float32"

    def __post_init__(self):
        kind, _, number = self.device.partition(":")
        check_name("cuda" if kind == "cuda" and number.isdigit() else self.device, ("cpu", "cuda"), "device")
        check_name(self.dtype, ("float32", "float64"), "floating-point type")
        if self.threads < 1 or (self.chunk_size is not None and self.chunk_size < 1):
            raise ValueError(f"out of range: {self} (threads >= 1, chunk_size >= 1 or None)")
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise ValueError("device='cuda' was asked for, but this machine has no usable CUDA device: use device='cpu'")


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
