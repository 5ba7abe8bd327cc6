import torch

from fedlib.models.mlp import MLP


def test_layers_by_hand():
    model = MLP((1, 4, 4), 3)
    x = torch.randn(5, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    first, second = model.extractor[1], model.extractor[3]
    hidden = (x.reshape(5, 16) @ first.weight.T + first.bias).clamp(min=0)
    hidden = (hidden @ second.weight.T + second.bias).clamp(min=0)
    torch.testing.assert_close(model(x), hidden @ model.head.weight.T + model.head.bias)
    assert hidden.shape == (5, 200)


def test_any_image_shape():
    assert MLP((3, 8, 5), 3).extractor[1].in_features == 120
