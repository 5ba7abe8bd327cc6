import pytest
import torch
from torchvision.models import resnet18

from fedlib.models.torchvision_resnet import TorchvisionResNet

FILE = "resnet18-f37072fd.pth"


def test_equals_torchvision_under_the_same_weights():
    model = TorchvisionResNet((3, 32, 32), 5).eval()
    theirs = resnet18(num_classes=5).eval()
    names = dict(zip(theirs.state_dict(), model.state_dict().values(), strict=True))
    theirs.load_state_dict(names)
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(model(x), theirs(x))


def test_last_maps_of_small_images_are_single_pixels():
    maps = TorchvisionResNet().extractor[:-2].eval()
    assert maps(torch.zeros(1, 3, 32, 32)).shape == (1, 512, 1, 1)


def test_pretrained_weights_come_from_the_folder(tmp_path):
    published = resnet18()
    torch.save(published.state_dict(), tmp_path / FILE)
    model = TorchvisionResNet((3, 32, 32), 5, pretrained=tmp_path)
    assert torch.equal(model.extractor.layer4[1].conv2.weight, published.layer4[1].conv2.weight)
    assert model.head.weight.shape == (5, 512)


def test_missing_weights_say_where_and_how(tmp_path):
    with pytest.raises(FileNotFoundError, match=rf"{tmp_path}.*{FILE}.*https://.*or take resnet18, which starts at random"):
        TorchvisionResNet(pretrained=tmp_path)


@pytest.mark.parametrize("damage", ["cut", "text", "other"])
def test_damaged_weights_are_refused(tmp_path, damage):
    path = tmp_path / FILE
    if damage == "text":
        path.write_text("not a checkpoint")
    else:
        torch.save({"conv1.weight": torch.zeros(1)}, path)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match="does not hold torchvision's ResNet-18 weights"):
        TorchvisionResNet(pretrained=tmp_path)


def test_grey_images_have_their_own_first_convolution(tmp_path):
    assert TorchvisionResNet((1, 16, 16)).extractor.conv1.weight.shape == (64, 1, 7, 7)
    with pytest.raises(ValueError, match="3 channels"):
        TorchvisionResNet((1, 16, 16), pretrained=tmp_path)


def test_refuses_other_depths():
    with pytest.raises(ValueError, match="18 or 50"):
        TorchvisionResNet(depth=34)
