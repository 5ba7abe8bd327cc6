import pytest
import torch

from fedlib.models.convnet import ConvNet


@pytest.mark.parametrize(("shape", "flat"), [((3, 32, 32), 4096), ((1, 28, 28), 3136), ((1, 16, 16), 1024)])
def test_body_width(shape, flat):
    model = ConvNet(shape)
    assert model.extractor.body(torch.zeros(2, *shape)).shape == (2, flat)
    assert model.extractor.hidden.in_features == flat


def test_published_head_is_hidden_and_head_together():
    model = ConvNet((1, 28, 28), 62, hidden=2048)
    names = [name for name, _ in model.named_parameters() if not name.startswith("extractor.body")]
    assert names == ["extractor.hidden.weight", "extractor.hidden.bias", "head.weight", "head.bias"]
    assert model.head.weight.shape == (62, 2048)


def test_channels():
    assert [layer.out_channels for layer in (ConvNet(channels=(16, 32)).extractor.body[i] for i in (0, 3))] == [16, 32]


def test_refuses_sides_that_pooling_would_cut():
    with pytest.raises(ValueError, match="divisible by 4"):
        ConvNet((1, 30, 32))
