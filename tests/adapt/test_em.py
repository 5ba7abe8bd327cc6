import itertools

import numpy as np
import pytest
import torch

from fedlib.adapt import em
from fedlib.adapt.atp import ATP, modules
from fedlib.adapt.bbse import BBSE
from fedlib.adapt.bn_adapt import BNAdapt
from fedlib.adapt.em import EM
from fedlib.adapt.fedsr import FedSRPredict
from fedlib.adapt.fedtta import FedTTA, FedTTAPlus
from fedlib.adapt.memo import MEMOCrop
from fedlib.core import Stream
from fedlib.models import state_of
from fedlib.states import overlay
from fedlib.train.fedavg import FedAvg
from fedlib.train.fedsr import FedSR as FedSRTraining
from fedlib.train.fedtta import FedTTA as FedTTATraining
from tests import tiny
from tests.adapt.cases import case
from tests.oracles import em as oracle


def probabilities(n=30, classes=4, seed=0):
    logits = torch.randn(n, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (2 * logits + torch.tensor([1.5, 0, 0, -1.0])).softmax(1)


@pytest.mark.parametrize("iterations", [0, 1, 2, 10])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_equals_oracle(iterations, dtype, tolerance):
    p = probabilities()
    adjusted = em.adjust(p.to(dtype), iterations=iterations)
    assert adjusted.dtype == dtype
    np.testing.assert_allclose(adjusted, oracle.adjust(p.numpy(), iterations), rtol=0, atol=tolerance)
    np.testing.assert_allclose(adjusted.sum(1), 1, atol=1e-6)


def test_each_step_raises_the_likelihood_of_the_batch():
    """EM climbs the log-likelihood sum_n log sum_c p_nc pi_c of the prior that generated the step."""
    p = probabilities()
    priors = [em.adjust(p, iterations=i).mean(0) for i in range(6)]
    likelihood = [torch.log(p @ prior).sum().item() for prior in priors]
    assert all(later > earlier for earlier, later in itertools.pairwise(likelihood))


def test_a_balanced_batch_is_a_fixed_point():
    rows = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.7, 0.2], [0.2, 0.1, 0.7]], dtype=torch.float64)
    torch.testing.assert_close(em.adjust(rows, iterations=5), rows)


def test_one_sample_sharpens():
    torch.testing.assert_close(em.adjust(torch.tensor([[0.8, 0.2]]), iterations=1), torch.tensor([[0.64, 0.04]]) / 0.68)


def test_negative_iterations_raise():
    with pytest.raises(ValueError, match="iterations"):
        em.adjust(probabilities(), iterations=-1)


def test_adapter_treats_every_batch_on_its_own():
    task, state, stream = case()
    logits = task.predict(state, stream.images)[1]
    expected = torch.cat([em.adjust(part.softmax(1), iterations=3) for part in logits.split(4)])
    torch.testing.assert_close(em.EM(3, 4).run(task, state, {}, stream).scores.exp(), expected)


def test_adapter_scores_stay_finite_for_certain_predictions():
    task, state, stream = case()
    certain = state | {"head.weight": state["head.weight"] * 1e6}
    assert torch.isfinite(em.EM(10, 4).run(task, certain, {}, stream).scores).all()


STAY = [EM(iterations=0), BBSE(), BNAdapt(prior=10**9), MEMOCrop(), ATP(rates=(0.0,) * len(modules(tiny.net("batchnorm"))))]
TRAINED = [(FedTTA(), FedTTATraining()), (FedTTAPlus(), FedTTATraining()), (FedSRPredict(), FedSRTraining())]


@pytest.mark.parametrize(("adapter", "training"), [*((adapter, FedAvg()) for adapter in STAY), *TRAINED])
def test_who_adapts_starts_from_the_clients_own_parts(adapter, training):
    task, stream = tiny.task("batchnorm" if adapter in STAY else "plain"), Stream(tiny.samples(9).images, "test", 0)
    own = {f"model.{name}": -tensor for name, tensor in state_of(task.model).items() if name.startswith("head")}
    shared = {"shared.confusion.hard": torch.eye(tiny.CLASSES, dtype=task.dtype)}
    state = training.init(task, [])["model"]
    alone, tuned = (adapter.run(task, state, shared | part, stream).scores for part in ({}, own))
    merged = adapter.run(task, overlay(state, own), shared, stream).scores
    assert torch.equal(tuned, merged)
    assert not torch.equal(tuned, alone)
