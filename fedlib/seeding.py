"""Random generators, one for each purpose.

Every draw of the kit comes from a generator derived from the run's seed and from what the draw is for, so that adding a method,
changing the chunk size or running clients in another order never moves another draw.
"""

import hashlib
import json

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
