"""Random generators, one for each purpose.

Every draw of the kit comes from a generator derived from the run's seed and from what the draw is for, so that adding a method,
changing the chunk size or running clients in another order never moves another draw.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator

import numpy as np
import torch


def derive(seed: int, *purpose: str | int) -> int:
    """Hash ``seed`` and ``purpose`` (strings and integers) to a 63-bit seed. Equal arguments give equal seeds on every machine."""
    text = json.dumps([int(seed), *(p if isinstance(p, str) else int(p) for p in purpose)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """CPU generator for ``purpose``. Draws are made on the CPU and moved, so every device sees the same numbers."""
    return torch.Generator().manual_seed(derive(seed, *purpose))


def numpy_generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """NumPy generator for ``purpose``."""
    return np.random.default_rng(derive(seed, *purpose))


@contextlib.contextmanager
def default_draws(seed: int) -> Iterator[None]:
    """Let what draws from torch's default generators (initialisation, dropout) follow ``seed``; the CPU's own state stays as it was."""
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would keep a stack trace for every kind of device that was never used: time, and memory for good.
        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(seed)
        yield
