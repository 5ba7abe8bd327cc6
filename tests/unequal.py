"""Clients with networks of three unequal widths, of toy size, that several tests share."""

from dataclasses import replace

import torch

from fedlib.core import Local
from fedlib.train.fedtta import Rates
from tests import tiny

LOCAL = Local(lr=0.1, weight_decay=1e-2, batch_size=4, steps=2, clip=0.5, continued=True)
RATES = Rates(0.3, 0.2, 0.05)
F64 = torch.float64
NAMES = ("mlp_small", "mlp", "mlp_big")


def case(chunk_size=1, sizes=(9, 5, 14, 6, 7)):
    task = tiny.task(local=LOCAL, augment="none", chunk_size=chunk_size)
    return replace(task, public=tiny.samples(7, 99).images), tiny.clients(sizes)


def rounds(task, clients, method, n):
    server = method.init(task, clients)
    for t in range(1, n + 1):
        server = method.aggregate(task, server, method.update(task, server, clients, t), clients, t)
    return server


def ours(server, client):
    """The state of a client among those of its size."""
    return {name: stack[client // 3] for name, stack in server[f"client_{client % 3}"].items()}


def public_batches(task, size=4):
    return [task.inputs(batch) for batch in task.public.split(size)]
