"""Every rate of a training method falls with the rounds, those beside the schedule's too."""

from dataclasses import replace

import pytest
import torch

from fedlib.core import Local
from fedlib.train.afl import AFL
from fedlib.train.contrastive import Contrast
from fedlib.train.fedadg import FedADG
from fedlib.train.fedavg import FedAvg
from fedlib.train.fedicon import FedICON
from fedlib.train.fedmd import FedMD
from fedlib.train.fedprox import FedProx
from fedlib.train.fedrep_local import FedRepLocal
from fedlib.train.fedsr import FedSR
from fedlib.train.fedtta import FedTTA, Rates
from fedlib.train.gma import GMA
from fedlib.train.hetero import HeteroFedTTA, HeteroTent
from fedlib.train.odpfl_hn import ODPFLHN
from fedlib.train.scaffold import SCAFFOLD
from tests import tiny
from tests.unequal import NAMES

LOCAL = Local(lr=0.2, weight_decay=0.01, batch_size=4, steps=3)
# With all their own rates times f.
METHODS = {
    "FedAvg": lambda f: FedAvg(),
    "FedAvg, own rate": lambda f: FedAvg(lr=0.3 * f),
    "FedProx": lambda f: FedProx(lr=0.3 * f),
    "FedSR": lambda f: FedSR(lr=0.3 * f),
    "FedRep": lambda f: FedRepLocal(),
    "SCAFFOLD": lambda f: SCAFFOLD(lr=0.3 * f),
    "GMA": lambda f: GMA(server_lr=1.5 * f),
    "AFL": lambda f: AFL(mixture_lr=0.2 * f),
    "FedADG": lambda f: FedADG(lr=0.2 * f, adversarial_lr=0.4 * f, widths=(6, 5)),
    "ODPFL-HN": lambda f: ODPFLHN(0.05 * f, 0.1 * f, 0.5 * f),
    "FedTTA": lambda f: FedTTA(Rates(0.3 * f, 0.2 * f, 0.05 * f)),
    "FedICON, encoder": lambda f: FedICON(Contrast(lr=0.1 * f), classifier_rounds=1),
    "FedICON, classifier": lambda f: FedICON(Contrast(lr=0.1 * f), classifier_rounds=4),
    "FedMD, FedTTA": lambda f: FedMD(HeteroFedTTA(Rates(0.3 * f, 0.2 * f, 0.05 * f), hidden=(3, 4, 5)), NAMES, batch_size=4),
    "FedMD, Tent": lambda f: FedMD(HeteroTent(0.1 * f), NAMES, batch_size=4),
}


@pytest.mark.parametrize("name", METHODS)
def test_round_three_at_half_the_rate_per_round_is_one_at_a_quarter_of_all_rates(name):
    clients = tiny.clients((9, 6, 14))

    def after(decay, factor):
        local = replace(LOCAL, lr=LOCAL.lr * factor, decay=decay)
        task = replace(tiny.task(local=local, augment="none", rounds=6), public=tiny.samples(7, 99).images)
        method = METHODS[name](factor)
        server = method.init(task, clients)
        return server, method.aggregate(task, server, method.update(task, server, clients, 3), clients, 3)

    (start, falling), (_, lower) = after(0.5, 1.0), after(1.0, 0.25)
    moved = 0
    for group, state in falling.items():
        for key, tensor in state.items():
            torch.testing.assert_close(lower[group][key], tensor, rtol=0, atol=1e-12)
            moved += not torch.equal(tensor, start.get(group, {}).get(key, tensor))
    assert moved
