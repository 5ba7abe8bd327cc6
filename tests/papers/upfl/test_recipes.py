import pytest

from fedlib.papers.upfl.recipes import hetero, hyperparameters, recipes
from fedlib.published import cells


def test_names_are_the_printed_ones():
    assert list(recipes()) == list(dict.fromkeys(cells("upfl", "T1")["method"]))


def test_rates_of_the_appendix():
    """A few cells of table 4, read from the print."""
    mnist, cifar10, fashion = recipes("mnist"), recipes("cifar10"), recipes("fashion_mnist")
    rates = mnist["FedTTA"].train.rates
    assert (rates.inner, rates.outer, rates.adaptation) == (0.5, 0.3, 0.01)
    assert mnist["FedTTA"].adapt.lr == 0.5
    assert (cifar10["SCAFFOLD"].train.lr, cifar10["SCAFFOLD"].train.server_lr) == (0.1, 1.5)
    assert (cifar10["AFL"].train.lr, cifar10["AFL"].train.mixture_lr) == (0.1, 0.3)
    assert (cifar10["GMA"].train.threshold, cifar10["GMA"].train.server_lr, cifar10["GMA"].train.lr) == (0.1, 1.5, 0.1)
    assert (fashion["FedAvg"].train.lr, fashion["Tent"].adapt.lr) == (0.3, 0.3)
    assert fashion["FedTTA++"].adapt.patience == 5
    hyper = cifar10["ODPFL-HN"].train
    assert (hyper.lr, hyper.encoder_lr, hyper.hyper_lr) == (0.05, 0.1, 0.5)


@pytest.mark.parametrize("dataset", ["mnist", "cifar10", "femnist", "cifar100", "fashion_mnist", "digits", "cifar10_jpeg", "mnist_5k"])
def test_every_data_set_has_all_methods(dataset):
    table = recipes(dataset)
    assert len(table) == 14
    trainings = {recipe.train for recipe in table.values()}
    assert len(trainings) == 11  # FedAvg serves Tent, FedPer both PFL methods, FedTTA-Prox also FedTTA++
    assert table["FedTTA++"].train == table["FedTTA-Prox"].train
    assert table["FedTTA-Prox"].train.mu > 0 == table["FedTTA"].train.mu


def test_features_of_fedadg():
    """Appendix D.2: 128 on MNIST, 512 elsewhere, which the networks have on their own but for FEMNIST's."""
    for dataset, features in {"mnist": 128, "mnist_5k": 128, "femnist": 512, "cifar10": None, "cifar100": None, "digits": None}.items():
        recipe = recipes(dataset)["FedADG"]
        assert (recipe.train.features, recipe.adapt.features) == (features, features)


def test_odpfl_borrows_cifar10s_rates_where_none_are_printed():
    printed = hyperparameters()
    cell = printed[(printed["method"] == "ODPFL-HN") & (printed["dataset"] == "cifar100") & (printed["parameter"] == "eta_hn")]
    assert cell["value"].tolist() == [""]
    assert recipes("cifar100")["ODPFL-HN"].train == recipes("cifar10")["ODPFL-HN"].train


def test_options():
    assert recipes()["PFL-Ensemble"].adapt.own
    assert not recipes(own=False)["PFL-Ensemble"].adapt.own
    assert recipes(widths=(8, 4))["FedADG"].train.widths == (8, 4)
    with pytest.raises(KeyError, match="svhn"):
        recipes("svhn")


def test_unequal_networks():
    table = hetero(networks=("mlp",) * 3)
    assert list(table) == ["Tent", *(f"HeteroFedTTA:{s}" for s in ("0", "0.2", "0.4", "0.6", "0.8", "1"))]
    assert all(recipe.adapt.method is recipe.train for recipe in table.values())
    assert table["HeteroFedTTA:0.2"].train.learner.strength == 0.2
