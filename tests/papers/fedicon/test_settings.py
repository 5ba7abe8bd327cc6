"""FedICON's parameters, and the clients and schedules that follow from them."""

import numpy as np
import papermill
import pytest
from PIL import Image

from fedlib.papers.fedicon import PAPER
from fedlib.papers.fedicon.settings import counts, covariate, dirichlet, first, held_out, single_sources
from fedlib.tools.parameters import PROJECT

NOTEBOOK = PROJECT / "notebooks" / "fedicon.ipynb"


def given(**changed):
    """The notebook's parameters as it declares them, with those ``changed``."""
    names = papermill.inspect_notebook(NOTEBOOK)
    return {name: eval(entry["default"]) for name, entry in names.items()} | {"cache": "nowhere", "jobs": 1} | changed


def parameters(**changed):
    return PAPER.read(given(**changed))


def test_profiles_fill_every_parameter():
    for profile in PAPER.profiles:
        p = parameters(profile=profile)
        optional = {"methods", "batch_size", "extra", "start", "tables", "output"}
        assert all(getattr(p, name) is not None for name in given() if name not in optional)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"dataset": "digit5"}, "digits5"),
        ({"office": "pac"}, "pacs"),
        ({"methods": ["FedIcon"]}, "FedICON"),
        ({"tables": ["T6"]}, "T5"),
        ({"rounds": 0}, "rounds"),
        ({"share": 0.0}, "share"),
    ],
)
def test_bad_parameters(changed, message):
    with pytest.raises(ValueError, match=message):
        parameters(**changed)


def test_the_notebook_shows_the_clients_of_the_first_family_that_runs(tmp_path):
    none = {"dataset": "none", "office": "none", "attribute": "none"}
    labels = [first(parameters(**none | {name: value})).label for name, value in (("office", "digits5"), ("attribute", "digits"))]
    assert [first(parameters()).label, *labels] == ["covariate shift", "covariate shift", "Dir(0.1)"]
    with pytest.raises(ValueError, match="nothing to run: switched off by the parameter dataset, switched off"):
        first(parameters(**none))
    images = np.zeros((4, 8, 8, 1), np.uint8)
    np.savez(tmp_path / "mine.npz", x_train=images, y_train=np.arange(4) % 2, x_test=images, y_test=np.arange(4) % 2)
    with pytest.raises(ValueError, match=r"nothing to run: mine.npz has no domains, mine.npz has no natural shift. FedICON's"):
        first(parameters(dataset=str(tmp_path / "mine.npz")))


def users_domains(folder, names):
    """A folder with two classes of one image for every domain."""
    for place in (folder / name / label for name in names for label in ("one", "two")):
        place.mkdir(parents=True)
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(place / "0.png")
    return str(folder)


@pytest.mark.parametrize("domains", ["ab", "abcdefg"])
def test_figure_3a_has_as_many_clients_for_each_of_a_users_domains_as_for_a_printed_one(tmp_path, domains):
    # The printed tables have five columns.
    own, many = parameters(dataset=users_domains(tmp_path, domains)), min(5, len(domains))
    assert covariate(own)[0].protocol.domains == (5 if len(domains) > 5 else None)
    assert [s.protocol.n_clients for s in counts(own)] == [many, 2 * many, 4 * many] == own.facts()["counts"]
    assert [s.protocol.n_clients for s in counts(parameters())] == [5, 10, 20]
    assert parameters(dataset=str(tmp_path), counts=[3 * many]).counts == [3 * many]
    with pytest.raises(ValueError, match=rf"counts must be multiples of the {many} domains of {tmp_path.name}/, got \[{many + 1}\]"):
        parameters(dataset=str(tmp_path), counts=[many + 1])
    with pytest.raises(ValueError, match=r"counts must be multiples of the 5 domains of digits5, got \[7\]"):
        parameters(counts=[7])


def test_real_data_follow_the_paper():
    p = parameters(profile="paper")
    (shifted,), held = covariate(p), held_out(p)
    assert (shifted.schedule.rounds, shifted.schedule.local.epochs, shifted.schedule.local.lr) == (100, 5, 0.01)
    assert (shifted.protocol.n_train, shifted.protocol.n_test) == (743, 200)
    assert [s.protocol.held_out for s in held] == ["amazon", "caltech", "dslr", "webcam"]
    assert (held[0].protocol.n_train, held[0].protocol.per_class, held[0].protocol.n_test) == (50, True, None)
    assert [s.schedule.local.momentum for s in (shifted, *dirichlet(p))] == [0.9, 0.0, 0.0]
    assert p.recipes("office10", ["FedICON"])["FedICON"].train.contrast.views == "objects"
    assert p.recipes("cifar10", ["FedICON"])["FedICON"].train.contrast.lr == 0.005


def test_seeds_share_the_partition_of_table_3():
    """The local split is the seed's own: it moves a few of a client's training images, another partition moves more than there are."""
    for given, seed in (({}, 7000), ({"partition_seed": 3}, 3)):
        for setting in dirichlet(parameters(**given)):
            assert setting.protocol.partition_seed == seed
            first, second = (setting.protocol.build(k).report() for k in (0, 1))
            assert 0 < (first - second).abs().sum(axis=None) < 0.3 * first.sum(axis=None)


def test_figure_1b_compares_at_equal_numbers():
    """A single source has as many images of the target domain as the heterogeneous ones, or as many images in all."""
    p = parameters(profile="small")
    *single, mixed = single_sources(p)
    part = mixed.protocol.n_train
    held = {s.label: [(client.about, len(client.train)) for client in s.protocol.build(0).clients] for s in single}
    of_target = {client.about: len(client.train) for client in mixed.protocol.build(0).clients}
    domains = p.domains_of("dataset")
    assert held == {d: [(d, of_target[d])] for d in domains} | {f"{d} x 5": [(d, part)] * 5 for d in domains}
