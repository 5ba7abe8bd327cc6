"""A tiny training of methods whose clients keep a part of the network."""

import torch

from fedlib import federation
from fedlib.cache.store import Store
from fedlib.core import Local
from tests import tiny


def trained(method, store=None, clients=None, **fields):
    task = tiny.task("batchnorm", dtype=torch.float32, rounds=3, local=Local(lr=0.05, batch_size=4, epochs=1), **fields)
    clients = clients or tiny.clients()
    return federation.run(task, method, clients, Store(store), "key", {}, progress=False)
