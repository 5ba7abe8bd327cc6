import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlib.train.losses import balanced_softmax, cross_entropy

LOGITS = torch.tensor([[1.0, 2.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
LABELS = torch.tensor([1, 2])


def test_cross_entropy_by_hand():
    first = -math.log(math.e**2 / (math.e + math.e**2 + 1))
    assert cross_entropy(LOGITS, LABELS).item() == pytest.approx((first + math.log(3)) / 2, abs=1e-12)
    weights = torch.tensor([0.25, 0.75], dtype=torch.float64)
    assert cross_entropy(LOGITS, LABELS, weights).item() == pytest.approx(0.25 * first + 0.75 * math.log(3), abs=1e-12)


def test_balanced_softmax_by_hand():
    """softmax weighted by counts + 1; an unseen class keeps weight 1."""
    counts = torch.tensor([3, 0, 1])
    first = -math.log(1 * math.e**2 / (4 * math.e + 1 * math.e**2 + 2))
    second = -math.log(2 / (4 + 1 + 2))
    assert balanced_softmax(LOGITS, LABELS, counts).item() == pytest.approx((first + second) / 2, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_dtype_of_the_logits_stays(dtype):
    assert balanced_softmax(LOGITS.to(dtype), LABELS, torch.tensor([1, 2, 3])).dtype == dtype


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, 50), min_size=3, max_size=3), st.integers(0, 5))
def test_padded_rows_count_nothing_and_equal_counts_are_plain(counts, padding):
    draws = torch.Generator().manual_seed(sum(counts))
    logits, labels = torch.randn(4 + padding, 3, generator=draws), torch.randint(3, (4 + padding,), generator=draws)
    weights = torch.cat([torch.full((4,), 0.25), torch.zeros(padding)])
    count = torch.tensor(counts)
    torch.testing.assert_close(balanced_softmax(logits, labels, count, weights), balanced_softmax(logits[:4], labels[:4], count))
    torch.testing.assert_close(balanced_softmax(logits, labels, torch.full((3,), counts[0])), cross_entropy(logits, labels))
