import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlib.augment.draws import between, integers, uniforms
from fedlib.tools.seeding import generator


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 5), st.integers(1, 20))
def test_drawing_in_pieces_equals_drawing_at_once(first, second, n_views, width):
    one, two = generator(0, "draws"), generator(0, "draws")
    pieces = [uniforms(one, first, n_views, width), uniforms(one, second, n_views, width)]
    assert torch.equal(torch.cat(pieces), uniforms(two, first + second, n_views, width))


def test_own_generators_make_a_sample_independent_of_its_company():
    together = uniforms([generator(0, "draws", i) for i in range(4)], 4, 3, 5).view(4, 3, 5)
    assert torch.equal(together[2], uniforms([generator(0, "draws", 2)], 1, 3, 5))
    assert not torch.equal(together[2], together[1])


def test_wrong_number_of_generators():
    with pytest.raises(ValueError, match="2 generators for 3 samples"):
        uniforms([generator(0), generator(1)], 3, 1, 1)


def test_ranges():
    uniform = uniforms(generator(0), 1000, 1, 1)[:, 0]
    assert integers(uniform, 3).unique().tolist() == [0, 1, 2]
    assert integers(uniform, 3).bincount().min() > 280
    assert between(torch.tensor([0.0, 0.5]), -2, 4).tolist() == [-2, 1]
    assert uniforms([], 0, 2, 4).shape == (0, 4)
