"""BTGFL on ImageNet-32 with ImageNet-R as its shifted set, from files in the official layouts; the first pixels tell an image's origin."""

import numpy as np
import pytest
import torch

from fedlib.data.sources_imagenet import INDICES
from fedlib.papers.btfl import settings as btfl
from fedlib.protocols.btgfl import BTGFL
from tests.data.layouts import pixels, save_image
from tests.papers.btfl.test_exhibits import study
from tests.papers.btfl.test_settings import parameters

EACH, CLIENTS = 14, 10


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """14 training images of each of the 86 classes and of one other, in two batches; of every class but the first one or two renditions."""
    root = tmp_path_factory.mktemp("images")
    ids = [f"n{i:08d}" for i in range(1000)]
    (root / "map_clsloc.txt").write_text("".join(f"{wnid} {1000 - place} name_{place}\n" for place, wnid in enumerate(ids)))
    numbers = np.repeat([1000 - place for place in (*INDICES, 7)], EACH)
    data = pixels(len(numbers), 3072)
    # Red, green and blue of the first pixel: no rendition is so coloured.
    data[:, [0, 1024, 2048]] = (1, 2, 3)
    order = np.random.default_rng(0).permutation(len(numbers))
    (root / "Imagenet32_train_npz").mkdir()
    for i, index in enumerate(np.array_split(order, 2), 1):
        np.savez(root / "Imagenet32_train_npz" / f"train_data_batch_{i}.npz", data=data[index], labels=numbers[index])
    for label, place in enumerate(INDICES[1:], 1):
        for copy in range(1 + label % 2):
            save_image(root / "imagenet-r" / ids[place] / f"{copy}.jpg", (200, 40, 40 + label), size=(40, 36))
    return root


@pytest.fixture(scope="module")
def benchmark(root):
    return BTGFL("imagenet32", n_clients=CLIENTS, alpha=0.1, natural_size=None).build(0, str(root))


def renditions(samples):
    first = samples.images[:, :, 16, 16].int()
    return (first[:, 0] - 200).abs().lt(12) & (first[:, 1] - 40).abs().lt(12) & samples.images.float().std((2, 3)).lt(3).all(1)


def test_renditions_are_the_shifted_set(benchmark):
    """They come with the labels of their folders, and none is called a stand-in."""
    assert (benchmark.stand_in, benchmark.stand_in_columns, benchmark.notes, benchmark.n_classes) == ("", (), (), 86)
    dealt = 0
    for client in benchmark.clients:
        samples = client.tests["shifted_ind"][0]
        found = renditions(samples)
        dealt += int(found.sum())
        assert len(samples) == len(client.tests["original_ind"][0]) + found.sum()
        blue = samples.images[found][:, 2].float().mean((1, 2)) - 40
        assert (blue - samples.labels[found]).abs().max() < 6
        assert renditions(client.tests["shifted_exd"][0]).any()
        assert not renditions(client.train).any()
        assert (client.train.images[:, :, 0, 0] == torch.tensor([1, 2, 3])).all()
    # What the clients' shares round off stays out.
    assert 20 < dealt <= sum(1 + label % 2 for label in range(1, 86))


def test_tables_4_and_7_run_on_it(root, tmp_path):
    """One round of a small network at the published settings otherwise."""
    given = {"profile": "paper", "dataset": "digits", "rounds": 1, "other_rounds": 1, "local_epochs": 1, "seeds": [0]}
    methods = ["FedAvg", "FedTHE", "BTFL", "BTFL (code)"]
    s = study(**given, wide_model="cnn", methods=methods, data_root=str(root), cache=str(tmp_path))
    for name in ("T4", "T7"):
        table = s.frame(name)
        run = table[table["method"].isin(methods)]
        assert set(run["status"]) == {"stand-in"}, "of the network, not of the images"
        assert set(run["run_dataset"]) == {"imagenet32"}
        assert run["mean"].between(0, 100).all()
        assert set(table.loc[~table["method"].isin(methods), "status"]) == {"not run: left out by the parameter methods"}


def test_batches_are_128_in_training_and_test():
    p = parameters(profile="paper")
    chosen = p.recipes("imagenet32")
    assert {chosen[name].adapt.batch_size for name in ("FedTHE", "BTFL", "BTFL (code)")} == {128}
    assert btfl.setting(p, 0.1, block="imagenet32", model="cnn").schedule.local.batch_size == 128
    assert p.recipes("officehome")["BTFL"].adapt.batch_size == 32
    # The digits that stand in have streams shorter than that.
    assert parameters().recipes("imagenet32")["BTFL"].adapt.batch_size == 32


def test_without_renditions_the_reason_names_them(tmp_path, root):
    for name in ("map_clsloc.txt", "Imagenet32_train_npz"):
        (tmp_path / name).symlink_to(root / name)
    s = study(profile="paper", data_root=str(tmp_path), cache=str(tmp_path / "cache"), methods=["FedAvg"], tables=["T4"])
    (status,) = s.frame("T4")["status"].unique()
    assert status.startswith("not run: ")
    assert "imagenet-r" in status


def test_figure_1_reaches_the_classes_of_every_data_set(root):
    """As the paper's axis does: those of CIFAR-10 (the digits here), then ImageNet's; absent data are left out."""
    p = parameters(profile="paper", dataset="digits", data_root=str(root), label_counts=[10, 4, 7, 300])
    settings = btfl.class_settings(p)
    assert [s.label for s in settings] == ["4", "7", "10", "86"]
    assert [s.protocol.classes for s in settings] == [4, 7, None, None]
    assert (settings[-1].protocol.dataset, settings[-1].model) == ("imagenet32", "resnet20gn_w4")
    assert [s.label for s in btfl.class_settings(parameters(label_counts=[6]))] == ["6", "10"]
