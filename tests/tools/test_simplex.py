import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlib.tools.simplex import project_to_simplex
from tests.oracles import bbse as oracle


@settings(deadline=None, max_examples=25)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=8))
def test_projection_equals_bisection(point):
    point = np.array(point)
    projected = project_to_simplex(torch.tensor(point))
    np.testing.assert_allclose(projected, oracle.project_to_simplex(point), rtol=0, atol=1e-10)
    np.testing.assert_allclose([projected.sum(), projected.clamp(max=0).sum()], [1, 0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(project_to_simplex(projected), projected, rtol=0, atol=1e-12)


def test_rows_are_projected_separately_and_keep_their_dtype():
    points = torch.tensor([[0.2, 0.3, 0.5], [4.0, 1.0, 0.0], [1.0, 1.0, -3.0]])
    projected = project_to_simplex(points)
    assert projected.dtype == torch.float32
    torch.testing.assert_close(projected, torch.tensor([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]))
