import numpy as np
import pytest
import torch

from fedlib.adapt import t3a
from tests.oracles import t3a as oracle


def problem(n=80, d=6, classes=4, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    weight = torch.randn(classes, d, generator=g, dtype=torch.float64)
    features = torch.relu(torch.randn(n, d, generator=g, dtype=torch.float64) + 0.7 * weight[torch.arange(n) % classes])
    bias = torch.randn(classes, generator=g, dtype=torch.float64)
    return features.to(dtype), weight.to(dtype), bias.to(dtype)


@pytest.mark.parametrize("filter_k", [1, 5, 50, 0, -1, None])
@pytest.mark.parametrize("batch_size", [1, 7, 80])
@pytest.mark.parametrize(("with_bias", "initial_bias"), [(False, True), (True, True), (True, False)])
def test_equals_oracle(filter_k, batch_size, with_bias, initial_bias):
    features, weight, bias = problem()
    options = {"filter_k": filter_k, "batch_size": batch_size, "initial_bias": initial_bias}
    scores = t3a.predict(features, weight, bias=bias if with_bias else None, **options)
    expected = oracle.predict(features.numpy(), weight.numpy(), bias=bias.numpy() if with_bias else None, **options)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-10)


def test_first_supports_without_the_bias():
    """The bias calls both rows of the classifier class 1; without it each row is its own class's support. The one sample is of class 1 by
    the bias, wherever the rows stand."""
    weight, bias = torch.eye(2, dtype=torch.float64), torch.tensor([0.0, 3.0], dtype=torch.float64)
    features = torch.tensor([[2.0, 0.0]], dtype=torch.float64)
    both = torch.nn.functional.normalize(torch.tensor([2.0, 1.0]), dim=0)[0]
    with_bias = t3a.predict(features, weight, filter_k=None, bias=bias, initial_bias=True)
    torch.testing.assert_close(with_bias.flatten().tolist(), [0.0, 2 * both.item()], rtol=0, atol=1e-6)
    without = t3a.predict(features, weight, filter_k=None, bias=bias)
    assert without.flatten().tolist() == pytest.approx([2, 2 / 2**0.5])


@pytest.mark.parametrize("filter_k", [4, None])
def test_float32_is_close_to_float64(filter_k):
    features, weight, _ = problem(dtype=torch.float32)
    scores = t3a.predict(features, weight, filter_k=filter_k)
    assert scores.dtype == torch.float32
    expected = oracle.predict(features.double().numpy(), weight.double().numpy(), filter_k=filter_k)
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("filter_k", [3, None])
def test_later_samples_do_not_change_earlier_scores(filter_k):
    features, weight, _ = problem()
    whole = t3a.predict(features, weight, filter_k=filter_k)
    torch.testing.assert_close(t3a.predict(features[:33], weight, filter_k=filter_k), whole[:33], rtol=1e-12, atol=1e-12)


def test_filter_of_one_keeps_the_classifier_row_against_worse_samples():
    """Every sample is less certain than its class's row, so the prototypes stay the normalised rows."""
    weight = 5 * torch.eye(3, dtype=torch.float64)
    features = torch.tensor([[1.0, 0.5, 0.0], [0.2, 0.9, 0.1], [0.0, 0.3, 0.8]], dtype=torch.float64)
    torch.testing.assert_close(t3a.predict(features, weight, filter_k=1), features)


def test_equal_entropies_keep_the_earlier_support():
    # Both samples mirror each other in the second and third coordinate: same label, same entropy, other direction.
    weight = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    samples = torch.tensor([[4.0, 1.0, 0.0], [4.0, 0.0, 1.0]], dtype=torch.float64)
    for features in (samples, samples.flip(0)):
        kept = torch.nn.functional.normalize(features[:1])
        torch.testing.assert_close(t3a.predict(features, weight, filter_k=1)[:, 0], (features @ kept.T)[:, 0])


def test_a_class_without_supports_scores_zero():
    # The second row is labelled as the first class by the classifier itself.
    weight = torch.tensor([[2.0, 0.0], [0.5, 0.1]])
    scores = t3a.predict(torch.tensor([[1.0, 0.0], [1.0, 0.5]]), weight, filter_k=None)
    assert scores[:, 1].tolist() == [0, 0]
    assert (scores[:, 0] > 0).all()


def test_empty_stream():
    features, weight, _ = problem()
    assert t3a.predict(features[:0], weight, filter_k=5).shape == (0, 4)


@pytest.mark.parametrize("filter_k", [0, -1])
def test_zero_and_minus_one_are_no_filter(filter_k):
    features, weight, bias = problem()
    everything = t3a.predict(features, weight, filter_k=None, bias=bias)
    assert torch.equal(t3a.predict(features, weight, filter_k=filter_k, bias=bias), everything)
    assert not torch.equal(t3a.predict(features, weight, filter_k=1, bias=bias), everything)
    assert t3a.T3A(filter_k=filter_k).filter_k == filter_k


@pytest.mark.parametrize(("filter_k", "batch_size"), [(-2, 1), (5, 0)])
def test_bad_arguments(filter_k, batch_size):
    features, weight, _ = problem()
    with pytest.raises(ValueError, match="T3A"):
        t3a.predict(features, weight, batch_size=batch_size, filter_k=filter_k)
