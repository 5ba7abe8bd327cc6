import pytest
import torch

from fedlib.models import build, state_of
from fedlib.models.blocks import after_body, body_of, body_prefix, body_width


@pytest.mark.parametrize(
    ("name", "prefix", "width"), [("mlp", "extractor.", 200), ("convnet_small", "extractor.body.", 128), ("fedicon_cnn", "extractor.", 64)]
)
def test_body_and_rest_are_the_network(name, prefix, width):
    model = build(name, (1, 8, 8), 3, seed=0)
    inputs = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    outputs = body_of(model)(inputs)
    assert outputs.shape == (4, width) == (4, body_width(model))
    assert body_prefix(model) == prefix
    torch.testing.assert_close(after_body(model, state_of(model), outputs), model(inputs))
