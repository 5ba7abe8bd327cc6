"""The numerical kernels keep their names and arguments: others check them against implementations of their own."""

import importlib
import inspect

import pytest

KERNELS = {
    "adapt.fedthe.ensemble": "features global_logits personal_logits global_descriptor personal_descriptor *history_rule *batch_size "
    "*alpha *beta *lr *steps *early_stop",
    "train.losses.balanced_softmax": "logits labels class_counts",
    "train.gma.masked_average": "server clients *threshold",
    "personalize.apfl.update_alpha": "alpha local_params personal_params local_grads personal_grads *lr",
    "train.apfl.update_alpha": "alpha local_params personal_params local_grads personal_grads *lr",
    "adapt.memo.marginal_entropy": "logits",
    "adapt.t3a.predict": "features weight *filter_k *bias",
    "adapt.knn_per.blend": "query keys key_labels logits *k *scale *mix",
    "adapt.btfl.quantize": "features levels",
    "adapt.btfl.frequency_table": "features levels",
    "adapt.btfl.interpolate": "features global_logits personal_logits personal_table global_table *personal_entropy *global_entropy "
    "*reference_entropy *cap *kb *smoothing *batch_size *integral",
    "adapt.atp.directions": "model images",
    "adapt.atp.adapted": "model rates directions",
    "train.atp.refine": "model rates images labels *lr",
    "adapt.em.adjust": "probabilities *iterations",
    "adapt.bbse.adjust": "logits confusion_counts *soft",
    "data.corruptions.corrupt": "images kind severity generator",
    "data.partition.dirichlet": "labels n_clients alpha rng",
    "data.partition.step": "labels majors factor rng",
}


@pytest.mark.parametrize("name", KERNELS)
def test_its_arguments_in_order(name):
    module, _, function = name.rpartition(".")
    kernel = getattr(importlib.import_module(f"fedlib.{module}"), function)
    found = {p.name: p for p in inspect.signature(kernel).parameters.values()}
    asked = [word.removeprefix("*") for word in KERNELS[name].split()]
    assert [argument for argument in found if argument in asked] == asked
    # What is further needs no value.
    assert all(p.default is not p.empty for argument, p in found.items() if argument not in asked)
    keyword = {argument for argument, p in found.items() if p.kind is p.KEYWORD_ONLY}
    assert keyword >= {word.removeprefix("*") for word in KERNELS[name].split() if word.startswith("*")}
