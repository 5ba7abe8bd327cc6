"""A user's images, written by the test: an `.npz` file and the three layouts of folders, from loading to the tables of the papers."""

import re
import shutil

import numpy as np
import pytest
from PIL import Image

import fedlib
from fedlib.augment.transform import transform_for
from fedlib.cache.store import Store
from fedlib.data import about, load, own, stamps
from fedlib.paper import paper_of
from fedlib.papers import atp, btfl, comparison, fedicon, fedthe, upfl
from fedlib.papers.comparison.settings import PROTOCOLS
from fedlib.papers.fedicon.recipes import views_of
from fedlib.papers.fedicon.settings import held_out
from fedlib.protocols.fedicon import Domains
from fedlib.protocols.ttpfl import TTPFL
from fedlib.published import cells
from fedlib.published.compare import REQUIRED, fill
from fedlib.reproduce import prepared
from fedlib.study import Study
from fedlib.tools.parameters import NOTEBOOKS, declared
from tests.data.layouts import save_image


def declared_of(paper: str) -> dict:
    """The parameters of a notebook as it is."""
    return declared(NOTEBOOKS / f"{paper}.ipynb")


CLASSES = ("boat", "cat", "plane")


def pictures(folder, n: int, start: int = 0, side: int = 16) -> None:
    """PNG images in folders of classes; image i of a class is of one colour that tells class and i."""
    for label, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        for i in range(n):
            Image.new("RGB", (side, side), (80 * label, start + i, 0)).save(folder / name / f"{i:03}.png")


@pytest.fixture
def npz(tmp_path):
    """300 + 60 colour images in a file whose path has words that once decided about flips."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "digits of mnist"
    folder.mkdir()
    parts = {}
    for part, n in (("train", 300), ("test", 60)):
        parts |= {f"x_{part}": rng.integers(0, 200, (n, 16, 16, 3), dtype=np.uint8), f"y_{part}": np.arange(n) % 3}
    np.savez(folder / "cifar10.npz", **parts)
    return folder / "cifar10.npz"


@pytest.fixture
def domains(tmp_path):
    for d, name in enumerate(("drawing", "photo", "sketch")):
        pictures(tmp_path / "mine" / name, 24, 50 * d)
    return tmp_path / "mine"


def test_an_npz_file(npz):
    data, record = load(str(npz)), about(str(npz))
    assert (data.name, record.shown, record.own, record.printed) == ("cifar10.npz", "cifar10.npz", True, "")
    train = data.images[~data.is_test] / 255
    mean, std = record.scaling("any", 3, (0.5, 0.5))
    np.testing.assert_allclose(mean, train.mean((0, 2, 3)), atol=5.1e-5)
    np.testing.assert_allclose(std, train.std((0, 2, 3)), atol=5.1e-5)
    transform = transform_for(str(npz), 3)
    assert (transform.flip, transform.pad, transform.mean) == (True, 4, mean)
    assert views_of(str(npz)) == "objects"


def test_parts_and_classes(tmp_path):
    for part, n in (("train", 4), ("test", 2)):
        pictures(tmp_path / "here" / part, n, 100)
    data = load(str(tmp_path / "here"))
    assert (data.name, data.classes, data.images.shape) == ("here/", CLASSES, (18, 3, 16, 16))
    assert data.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [0] * 2 + [1] * 2 + [2] * 2
    assert data.is_test.tolist() == [False] * 12 + [True] * 6
    assert data.images[:4, 1, 0, 0].tolist() == [100, 101, 102, 103]  # in the order of the sorted paths
    assert data.images[4, :, 0, 0].tolist() == [80, 100, 0]


def test_classes_alone_get_a_test_part(tmp_path):
    pictures(tmp_path / "plain", 12)
    data = load(str(tmp_path / "plain"))
    assert (data.images[:, 0, 0, 0] // 80).tolist() == data.labels.tolist() == [0] * 12 + [1] * 12 + [2] * 12
    assert np.bincount(data.labels[data.is_test]).tolist() == [2, 2, 2]


def test_domains_and_classes(domains):
    data, record = load(str(domains)), about(str(domains))
    assert data.group_names == record.domains == ("drawing", "photo", "sketch")
    assert np.bincount(data.groups).tolist() == [72, 72, 72]
    assert data.classes == CLASSES
    assert record.held_out == "sketch"
    kept = data.images[data.groups < 2] / 255
    assert record.scaling("any", 3, (0, 1))[0] == pytest.approx(kept.mean((0, 2, 3)), abs=5.1e-5)


def test_few_images_are_fewer_than_the_limit(domains, monkeypatch):
    """Of 216 images 144 are to train on."""
    found = []
    for limit in (144, 145):
        monkeypatch.setattr(own, "SMALL", limit)
        own._measured.cache_clear()
        found.append(about(str(domains)).small)
    assert found == [False, True]


def test_a_class_that_the_held_out_domain_alone_has_is_said(domains):
    shutil.copytree(domains / "photo" / CLASSES[0], domains / "sketch" / "only here")
    with pytest.warns(UserWarning, match="class only here is in sketch/ alone, which is held out as the shift: no method can learn it"):
        load(str(domains))


def test_sizes_that_differ_become_one(tmp_path):
    pictures(tmp_path / "mixed", 3)
    Image.new("RGB", (40, 30)).save(tmp_path / "mixed" / "cat" / "large.png")
    assert load(str(tmp_path / "mixed")).images.shape[2:] == (32, 32)
    assert load(str(tmp_path / "mixed"), size=8).images.shape[2:] == (8, 8)


def test_changed_images_are_read_again(tmp_path):
    pictures(tmp_path / "plain", 3)
    before = about(str(tmp_path / "plain"))
    Image.new("RGB", (16, 16), "white").save(tmp_path / "plain" / "cat" / "more.png")
    assert len(load(str(tmp_path / "plain"))) == 10
    assert about(str(tmp_path / "plain")) != before


def test_what_is_no_data_set_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no \.npz file and no folder .*absent"):
        load(str(tmp_path / "absent"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no JPEG or PNG images"):
        load(str(tmp_path / "empty"))
    pictures(tmp_path / "both", 1)
    pictures(tmp_path / "both" / "photo", 1)
    with pytest.raises(ValueError, match="mixes layouts"):
        load(str(tmp_path / "both"))


@pytest.mark.parametrize(
    ("tops", "message"),
    [
        (("images",), "all images are in images/.* name that folder itself"),
        (("train",), "all images are in train/.* name that folder itself"),
        (("train", "val"), "holds train, val: call its parts train and test"),
        (("train", "val", "test"), "holds test, train, val: call its parts train and test, and leave no other folder there"),
        (("Train", "Test"), "holds Test, Train: call its parts train and test"),
        (("training", "testing"), "holds testing, training: call its parts train and test"),
    ],
)
def test_folders_that_are_neither_parts_nor_domains(tmp_path, tops, message):
    for top in tops:
        pictures(tmp_path / top, 12)
    with pytest.raises(ValueError, match=message):
        prepared("fedthe", {"dataset": str(tmp_path)})


def test_classes_are_called_alike_in_both_parts(tmp_path):
    for top in ("train", "test"):
        pictures(tmp_path / top, 12)
    (tmp_path / "test" / "cat").rename(tmp_path / "test" / "Cat")
    with pytest.raises(ValueError, match="class Cat has images in test/ and none in train/"):
        load(str(tmp_path))


def test_files_that_are_not_read_are_said(tmp_path):
    pictures(tmp_path / "mine", 12)
    (tmp_path / "mine" / "cat" / "._000.png").write_bytes(b"of another system")
    assert len(load(str(tmp_path / "mine")).images) == 36
    (tmp_path / "mine" / "cat" / "000.png").rename(tmp_path / "mine" / "cat" / "000.webp")
    with pytest.warns(UserWarning, match=r"1 images in .* are neither JPEG nor PNG and not read, first .*000.webp"):
        assert len(load(str(tmp_path / "mine")).images) == 35
    (tmp_path / "mine" / "cat" / "000.webp").unlink()
    (tmp_path / "mine" / "dog").mkdir()
    with pytest.raises(ValueError, match="dog holds no JPEG or PNG image itself"):
        load(str(tmp_path / "mine"))


@pytest.mark.parametrize(
    ("pixels", "label", "message"), [(1, 0, "the pixels are 0 or 1 throughout"), (9, 2, "label 2 is in y_test and not")]
)
def test_likely_slips_in_an_npz_file_are_said(tmp_path, pixels, label, message):
    parts = {f"x_{part}": np.full((n, 8, 8, 3), pixels, np.uint8) for part, n in (("train", 6), ("test", 4))}
    np.savez(tmp_path / "mine.npz", **parts, y_train=np.arange(6) % 2, y_test=np.array([0, 1, 1, label]))
    with pytest.warns(UserWarning, match=message):
        load(str(tmp_path / "mine.npz"))


def test_the_record_of_a_run_tells_ones_images_from_others_of_that_name(npz):
    before = fedthe.PAPER.read(declared_of("fedthe") | {"dataset": str(npz)}).facts()["own_images"]
    assert list(before) == ["cifar10.npz"]
    arrays = dict(np.load(npz))
    np.savez(npz, **arrays | {"x_test": arrays["x_test"] + 1})
    assert fedthe.PAPER.read(declared_of("fedthe") | {"dataset": str(npz)}).facts()["own_images"] != before
    assert "own_images" not in fedthe.PAPER.read(declared_of("fedthe")).facts()


def test_a_folder_of_one_class(tmp_path):
    pictures(tmp_path / "all", 3)
    for name in CLASSES[1:]:
        shutil.rmtree(tmp_path / "all" / name)
    with pytest.raises(ValueError, match="all images are of one class"):
        load(str(tmp_path / "all"))


@pytest.mark.parametrize(("train", "classes", "message"), [(0, 2, "x_train holds no image"), (6, 1, "all images are of one class")])
def test_an_npz_file_from_which_nothing_can_be_learned(tmp_path, train, classes, message):
    parts = {f"x_{part}": np.zeros((n, 8, 8, 3), np.uint8) for part, n in (("train", train), ("test", 4))}
    np.savez(tmp_path / "poor.npz", **parts, y_train=np.arange(train) % classes, y_test=np.arange(4) % classes)
    with pytest.raises(ValueError, match=message):
        load(str(tmp_path / "poor.npz"))


def test_without_a_natural_shift_the_benchmark_has_the_other_tests(npz, domains):
    benchmark = fedlib.BRFL(str(npz), 3, alpha=1.0).build(0)
    assert benchmark.columns == ["original", "corrupted", "ooc", "mixture"]
    assert benchmark.stand_in_columns == ()
    assert "cifar10.npz has no natural shift" in benchmark.notes
    assert "natural" in fedlib.BRFL(str(domains), 3, alpha=1.0).build(0).columns
    assert len(fedlib.BTGFL(str(npz), 3, alpha=1.0).build(0).columns) == 5


def test_a_held_out_domain_is_not_in_what_normalises(tmp_path):
    for brightness, domain in ((20, "a"), (60, "b"), (220, "z")):
        for label in ("0", "1"):
            for i in range(4):
                save_image(tmp_path / domain / label / f"{i}.png", (brightness,) * 3, size=(16, 16))
    path = f"{tmp_path}/"
    for left_out, mean in (("a", 140), ("b", 120), ("z", 40)):
        for clients in (Domains(path, "domain", held_out=left_out), TTPFL(path, n_clients=2, held_out=left_out)):
            assert clients.build(0).transform.mean == pytest.approx((mean / 255,) * 3, abs=1e-3)
        assert transform_for(path, 3, held_out=left_out).mean == pytest.approx((mean / 255,) * 3, abs=1e-3)
    assert transform_for(path, 3).mean == pytest.approx((40 / 255,) * 3, abs=1e-3)


def test_a_held_out_domain_is_in_no_training(domains):
    for protocol in (fedlib.BRFL, fedlib.BTGFL):
        benchmark = protocol(str(domains), 3, alpha=1.0).build(0)
        green = [client.train.images[:, 1].amax() for client in benchmark.clients]
        assert max(green) < 100


def test_run(npz):
    schedule = fedlib.Schedule(rounds=1, local=fedlib.Local(epochs=1))
    setting = fedlib.Setting("mine", fedlib.BRFL(str(npz), 3, alpha=1.0), "cnn", schedule)
    rows = fedlib.run([setting], fedlib.recipes_of("fedthe", "FedAvg"), seeds=[0], cache=None)
    assert set(rows["dataset"]) == {"cifar10.npz"}
    assert not rows["stand_in"].any()


@pytest.mark.parametrize("name", ["fedthe", "btfl", "upfl", "fedicon", "atp", "comparison"])
def test_every_paper_takes_a_path(name, npz, domains):
    for path in (npz, domains):
        p = paper_of(name).read(declared_of(name) | {"dataset": str(path)})
        assert p.dataset == str(path)
        assert str(path.parent) not in str(p.facts())
    with pytest.raises(ValueError, match="no file or folder"):
        paper_of(name).read(declared_of(name) | {"dataset": "there/is/none"})


def test_what_a_section_needs_and_the_data_lack(npz, domains):
    p = comparison.PAPER.read(declared_of("comparison") | {"dataset": str(npz)})
    assert p.lacking() == {
        "FedICON covariate": "cifar10.npz has no domains",
        "FedICON attribute": "cifar10.npz has no natural shift",
        "FedICON domain": "cifar10.npz has no domains",
    }
    assert set(p.clients_of()) == set(PROTOCOLS) - set(p.lacking())
    assert set(comparison.PAPER.read(declared_of("comparison") | {"dataset": str(domains)}).clients_of()) == set(PROTOCOLS)
    study = Study(fedicon.PAPER, declared_of("fedicon") | {"dataset": str(npz)})
    assert {block.absent for e in fedicon.PAPER.exhibits for block in e.blocks(study.p)} == {
        "cifar10.npz has no domains",
        "cifar10.npz has no natural shift",
    }
    assert set(study.frame("T1")["status"]) == {"not run: cifar10.npz has no domains"}
    p = fedicon.PAPER.read(declared_of("fedicon") | {"dataset": str(domains)})
    assert [s.protocol.held_out for s in held_out(p)] == ["drawing", "photo", "sketch"]
    study = Study(atp.PAPER, declared_of("atp") | {"dataset": str(npz)})
    assert set(study.frame("T2")["status"]) == {"not run: cifar10.npz has no domains"}
    study, other = (Study(paper.PAPER, declared_of(paper.PAPER.name) | {"dataset": str(npz)}) for paper in (btfl, fedthe))
    assert set(study.frame("T5")["status"]) == {"not run: cifar10.npz has no domains"}
    # Nobody switched these off: they need images of their own.
    for frame in (study.frame("T4"), other.frame("T2")):
        assert set(frame["status"]) == {"not run: left out on cifar10.npz; the parameter imagenet32 can name images for it"}


@pytest.mark.parametrize(
    ("paper", "table"), [(atp, "T1"), (atp, "T2"), (btfl, "T2"), (btfl, "T5"), (btfl, "T6"), (fedicon, "T1"), (upfl, "T1")]
)
def test_no_table_that_takes_own_images_is_called_after_another_data_set(paper, table, domains):
    study = Study(paper.PAPER, declared_of(paper.PAPER.name) | {"dataset": str(domains)})
    assert any(block.settings for block in study.blocks(table))
    assert not re.search("CIFAR|MNIST|Digit|Office|PACS|ImageNet", paper.PAPER.exhibit(table).title)


def test_own_images_stand_beside_no_printed_number():
    printed = cells("fedthe", "T1").query("setting == 'Dir(0.1)' and method == 'FedAvg'").head(2)
    values = {"mean": 50.0, "std": 1.0, "n_seeds": 1, "run_model": "cnn", "status": "ok"}
    measured = printed[["setting", "method", "column"]].assign(**values)
    theirs = fill("fedthe", "T1", measured.assign(run_dataset="digits")[list(REQUIRED)], reason="left out of this")
    ours = fill("fedthe", "T1", measured.assign(run_dataset="digits.npz")[list(REQUIRED)], reason="left out of this")
    assert theirs["published_mean"].notna().any()
    assert ours[["published_mean", "published_std"]].isna().all(axis=None)


@pytest.mark.slow
def test_table_1_of_fedthe(npz, tmp_path, capsys):
    given = {"dataset": str(npz), "methods": ["FedAvg", "T3A"], "tables": ["T1"], "rounds": 1, "clients": 3, "jobs": 1, "alphas": [1.0]}
    study = Study(fedthe.PAPER, declared_of("fedthe") | given | {"cache": str(tmp_path), "output": str(tmp_path / "out")})
    table = study.frame("T1").query("setting == 'Dir(1.0)' and method == 'T3A'").set_index("column")
    assert table.loc["natural", "status"] == "not run: cifar10.npz has no natural shift"
    assert set(table["status"].drop("natural")) == {"ok"}
    assert set(table["run_dataset"].dropna()) == {"cifar10.npz"}
    assert table["published_mean"].isna().all()
    assert study.about(fedthe.PAPER.exhibit("T1")).startswith("cifar10.npz, cnn")
    study.clients()
    assert "cifar10.npz has no natural shift" in capsys.readouterr().out


SPOILT = {
    "no image": (lambda place: place.write_text("no image"), r"x\.png cannot be read as an image: .*; replace or remove it"),
    "a link to nothing": (lambda place: place.symlink_to("nowhere"), r"x\.png is a broken link: remove it"),
    "a folder": (lambda place: place.mkdir(), r"x\.png is a folder named like an image: rename or remove it"),
    "a small image": (lambda place: Image.new("RGB", (4, 4)).save(place), None),
}


@pytest.mark.parametrize("what", SPOILT)
def test_what_is_no_image_is_named_before_a_run(tmp_path, what):
    spoil, message = SPOILT[what]
    pictures(tmp_path / "mine", 12)
    spoil(tmp_path / "mine" / "cat" / "x.png")
    if message is None:
        # Where images differ in size they are brought to one.
        assert load(str(tmp_path / "mine")).images.shape[-1] == 32
        return
    with pytest.raises(ValueError, match=message):
        prepared("fedthe", {"dataset": str(tmp_path / "mine")})


def test_a_path_may_start_at_the_home_folder(tmp_path, monkeypatch):
    """As people write it; a shell puts the folder in place of the sign, Python does not."""
    monkeypatch.setenv("HOME", str(tmp_path))
    pictures(tmp_path / "mine", 12)
    (tmp_path / "methods.py").write_text("import fedlib\nRECIPES = {'mine': fedlib.recipes_of('fedthe', 'FedAvg')['FedAvg']}\n")
    for place in ("~/mine", str(tmp_path / "mine")):
        assert len(load(place)) == 36
        assert about(place) == about(str(tmp_path / "mine"))
        assert stamps(place)
    given = {"dataset": "~/mine", "extra": "~/methods.py:RECIPES", "output": "~/out", "cache": "~/cache", "data_root": "~"}
    assert prepared("fedthe", given).folder == tmp_path / "out"
    p = fedthe.PAPER.read(declared_of("fedthe") | given)
    assert (p.dataset, p.cache, p.data_root) == (str(tmp_path / "mine"), str(tmp_path / "cache"), str(tmp_path))
    assert Store("~/cache").root == tmp_path / "cache"


def test_a_link_to_nothing_that_is_no_image_does_no_harm(tmp_path):
    pictures(tmp_path / "mine", 12)
    (tmp_path / "mine" / "cat" / "notes.txt").symlink_to("nowhere")
    assert len(load(str(tmp_path / "mine"))) == 36


def test_what_is_neither_folder_nor_npz_is_refused_before_a_run(tmp_path):
    (tmp_path / "mine.zip").write_text("")
    with pytest.raises(ValueError, match=r"mine\.zip is neither a folder of images nor an \.npz file: unpack or convert it"):
        prepared("fedthe", {"dataset": str(tmp_path / "mine.zip")})


@pytest.mark.parametrize(("side", "message"), [(0, "images without pixels"), (7, "7 x 8 pixels, too few .*: enlarge them to 8 x 8")])
def test_images_too_small_for_the_networks_are_refused_before_a_run(tmp_path, side, message):
    images, labels = np.zeros((60, side, 8, 3), np.uint8), np.arange(60) % 3
    np.savez(tmp_path / "mine.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    with pytest.raises(ValueError, match=message):
        prepared("fedthe", {"dataset": str(tmp_path / "mine.npz")})
    pictures(tmp_path / "mine", 12, side=4)
    with pytest.raises(ValueError, match=r"parameter dataset: the images of .*mine have 4 x 4 pixels"):
        prepared("fedthe", {"dataset": str(tmp_path / "mine")})


def test_no_class_goes_to_the_test_part_as_a_whole(tmp_path):
    pictures(tmp_path, 9)
    for rare in range(12):
        (tmp_path / f"rare {rare}").mkdir()
        Image.new("RGB", (16, 16)).save(tmp_path / f"rare {rare}" / "0.png")
    data = load(str(tmp_path))
    assert set(data.labels[~data.is_test]) == set(range(15))
    assert data.is_test.any()
