"""One epoch of images: a uint8 tensor with batched augmentation against a DataLoader with PIL transforms, batches of 32."""

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from fedlib.augment.transform import Transform
from fedlib.core import Local, Samples, Schedule, Task
from fedlib.models import build
from fedlib.train.local import batch_of, plan
from tests.benchmarks.measure import compared, fastest

N, MEAN, STD = 2000, (0.5,) * 3, (0.25,) * 3
LOCAL = Local(epochs=1)


class Images(Dataset):
    """Decoded images, as torchvision's CIFAR-10 holds them: an array, a PIL image made at each access."""

    def __init__(self, images: torch.Tensor, transform):
        self.images, self.transform = images.permute(0, 2, 3, 1).contiguous().numpy(), transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int):
        return self.transform(Image.fromarray(self.images[i])), 0


def epoch(samples: Samples, augment: str) -> None:
    task = Task(build("mlp", (3, 32, 32), 10, 0), Transform(MEAN, STD, augment), 10, Schedule(), 0)
    for step in plan(len(samples), LOCAL, task, task.generator("bench")):
        batch_of(task, samples, step)


def rows() -> list[dict]:
    images = torch.randint(0, 256, (N, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    samples, end = Samples(images, torch.zeros(N, dtype=torch.int64)), [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    crop = [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()]
    loaders = {name: DataLoader(Images(images, transforms.Compose(t)), 32, True) for name, t in (("crop", crop + end), ("none", end))}
    result = []
    for case, loader, kinds in (("crop and flip", "crop", ("sample", "batch")), ("no augmentation", "none", ("none",))):
        variants = {"DataLoader, PIL": lambda loader=loader: list(loaders[loader])}
        variants |= {f"uint8 tensor, draws per {kind}": lambda kind=kind: epoch(samples, kind) for kind in kinds}
        result += compared(case, fastest(variants), per="1,000 images", works=N / 1000)
    return result
