import numpy as np
import pytest
import torch

from fedlib.adapt import knn_per
from fedlib.core import Output
from tests.adapt.cases import case
from tests.oracles import knn_per as oracle


def problem(n=12, m=40, d=5, classes=4, seed=0):
    g = torch.Generator().manual_seed(seed)
    randn = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    return randn(n, d), randn(m, d), torch.randint(0, classes, (m,), generator=g), randn(n, classes)


@pytest.mark.parametrize(("k", "scale", "mix"), [(10, 1.0, 0.3), (1, 1.0, 0.0), (3, 0.05, 0.7), (40, 2.0, 0.5), (90, 1.0, 0.5)])
def test_equals_oracle(k, scale, mix):
    query, keys, labels, logits = problem()
    expected = oracle.blend(query.numpy(), keys.numpy(), labels.numpy(), logits.numpy(), k=k, scale=scale, mix=mix)
    np.testing.assert_allclose(knn_per.blend(query, keys, labels, logits, k=k, scale=scale, mix=mix), expected, rtol=0, atol=1e-12)
    single = knn_per.blend(query.float(), keys.float(), labels, logits.float(), k=k, scale=scale, mix=mix)
    assert single.dtype == torch.float32
    np.testing.assert_allclose(single, expected, rtol=0, atol=1e-4)


def test_mix_weighs_the_logits():
    query, keys, labels, logits = problem()
    torch.testing.assert_close(knn_per.blend(query, keys, labels, logits, mix=1.0), logits)
    neighbours = knn_per.blend(query, keys, labels, logits, mix=0.0)
    torch.testing.assert_close(neighbours.sum(1), torch.ones(12, dtype=torch.float64))
    per_sample = torch.tensor([[1.0], [0.0]], dtype=torch.float64).repeat(6, 1)
    mixed = knn_per.blend(query, keys, labels, logits, mix=per_sample)
    torch.testing.assert_close(mixed, torch.where(per_sample == 1, logits, neighbours))


def test_a_stored_sample_finds_its_own_label():
    _, keys, labels, _ = problem()
    assert torch.equal(knn_per.neighbour_probabilities(keys, keys, labels, 4, k=1).argmax(1), labels)


def test_order_of_the_keys_does_not_matter():
    query, keys, labels, logits = problem()
    order = torch.randperm(40, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(
        knn_per.blend(query, keys[order], labels[order], logits, mix=0.4), knn_per.blend(query, keys, labels, logits, mix=0.4)
    )


def test_what_pads_a_memory_is_no_neighbour():
    """Four stored samples, fewer than the ten neighbours asked for, and three rows that only stack them with larger memories."""
    task, state, stream = case()
    _, keys, labels, _ = problem(m=4, classes=3)
    options = {"key_count": 4, "mix": 0.4, "shared.k": 10, "shared.scale": 1.0}
    memory = {"keys": keys, "key_labels": labels} | {name: torch.tensor(value) for name, value in options.items()}
    padded = memory | {"keys": torch.cat([keys, 0 * keys[:3]]), "key_labels": torch.cat([labels, 0 * labels[:3]])}
    scores, same = (knn_per.KNNPer().run(task, state, personal, stream).scores for personal in (memory, padded))
    assert torch.equal(scores, same)


def test_the_best_mix_is_the_first_with_the_most_hits():
    """Sample 0 is right from the model alone, sample 1 from the neighbours alone, sample 2 (class 1) from both up to 0.3 against 0.7."""
    logits = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    neighbours = torch.tensor([[0.4, 0.6], [0.1, 0.9], [0.2, 0.8]], dtype=torch.float64)
    output = Output(logits, {"logits": logits, "neighbours": neighbours})
    oracle_mix = knn_per.BestMix(candidates=15)
    # Class 0 of sample 0 wins from mix > 0.2 / 1.2, class 1 of samples 1 and 2 while mix < 0.8 / 1.8 and 0.6 / 1.6.
    choice = oracle_mix.choose(output, torch.tensor([0, 1, 1]))
    assert choice == pytest.approx(3 / 14)
    torch.testing.assert_close(oracle_mix.scores(output, choice), (3 * logits + 11 * neighbours) / 14)
    assert oracle_mix.choose(output, torch.tensor([1, 1, 1])) == 0


@pytest.mark.parametrize(("keep", "options"), [(0, {}), (40, {"k": 0}), (40, {"scale": 0.0})])
def test_bad_arguments(keep, options):
    query, keys, labels, logits = problem()
    with pytest.raises(ValueError, match="kNN-Per"):
        knn_per.blend(query, keys[:keep], labels[:keep], logits, mix=0.5, **options)
