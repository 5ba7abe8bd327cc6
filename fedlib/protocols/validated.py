"""Any protocol with labelled images set apart for choosing hyperparameters, so that every method of a comparison chooses on the same ones.

Of every training client's validation part one half stays with the methods that learn from it (rates, confusions, weights), the other is
held out for choosing: nothing is trained or personalised on it, and no test of any client has it if none has images of the protocol's own
validation parts (BTGFL's have, unless ``others="test"``, and UPFL's test ``validation``). Where clients bring no validation part, a share
of their training images becomes one first, for all methods alike.

``choosing`` puts streams of the held-out half in place of the tests: ``own``, the images as they are; ``corrupted``, each with one of
the four corruptions that no protocol meets where its tests have the other fifteen, at severity 5; ``others``, as many images of the other
clients' halves. Clients that are shifted against each other already (``shifted=False``) have ``own`` alone.
"""

from dataclasses import dataclass, replace

import numpy as np

from fedlib.core import Benchmark, Client, Clients, Samples
from fedlib.data.corruptions import TARGET_KINDS
from fedlib.protocols.shifts import corrupted, in_random_order
from fedlib.samples import joined
from fedlib.tools.seeding import numpy_generator


@dataclass(frozen=True)
class Validated:
    """of: the protocol; share: of the training images of clients without a validation part that becomes one; choosing: the tests are the
    streams on which hyperparameters are chosen; shifted: with corrupted images and those of others."""

    of: Clients
    share: float = 0.2
    choosing: bool = False
    shifted: bool = True

    def __post_init__(self):
        if not 0 < self.share < 1:
            raise ValueError(f"share must lie in (0, 1), got {self.share}")

    def build(self, seed: int, root: str | None = None) -> Benchmark:
        """The clients of one seed. Raises what the protocol raises, and ValueError where a client has too few images for both halves, or
        draws its parts anew at every use."""
        benchmark = self.of.build(seed, root)
        if any(client.pool is not None for client in benchmark.clients):
            raise ValueError("clients that draw their parts anew at every use hold nothing out: take the protocol with split='fixed'")
        cuts = [self._cut(client, seed) for client in benchmark.clients]
        clients = tuple(client for client, _ in cuts)
        if not self.choosing:
            return replace(benchmark, clients=clients)
        held = {client.id: half for client, half in cuts if client.source}
        # New clients stay where they are, without a test.
        tests = [in_random_order(self._streams(c.id, held, seed), seed, c.id) if c.source else {} for c in clients]
        return replace(benchmark, clients=tuple(replace(c, tests=own) for c, own in zip(clients, tests, strict=True)))

    def _cut(self, client: Client, seed: int) -> tuple[Client, Samples]:
        """The client with its own half of the validation part, and the half held out."""
        if not client.source:
            return client, client.val
        train, val, rng = client.train, client.val, numpy_generator(seed, "validated", client.id)
        if not len(val):
            order, n = rng.permutation(len(train)), max(2, round(self.share * len(train)))
            train, val = train.at(np.sort(order[n:])), train.at(np.sort(order[:n]))
        order = rng.permutation(len(val))
        own, half = (val.at(np.sort(part)) for part in (order[: len(val) // 2], order[len(val) // 2 :]))
        if not len(own) or not len(train):
            raise ValueError(
                f"client {client.id} has {len(client.train)} training and {len(val)} validation images, too few to set some apart"
            )
        return replace(client, train=train, val=own), half

    def _streams(self, k: int, held: dict[int, Samples], seed: int) -> dict[str, tuple[Samples, ...]]:
        own, rng = held[k], numpy_generator(seed, "choosing", k)
        if not self.shifted or len(held) < 2:
            return {"own": (own,)}
        others = joined(*(samples for j, samples in held.items() if j != k))
        spoilt = corrupted(own, 5, rng, TARGET_KINDS)
        drawn = others.at(rng.choice(len(others), min(len(own), len(others)), replace=False))
        return {"own": (own,), "corrupted": (spoilt,), "others": (drawn,)}
