import torch

from fedlib.adapt.output import Output, slice_of


def test_the_slice_of_a_client():
    personal = {"model.head.weight": torch.arange(6.0).view(3, 2), "shared.descriptor": torch.arange(2.0)}
    part = slice_of(personal, 1)
    assert part["model.head.weight"].tolist() == [2, 3]
    assert part["shared.descriptor"].tolist() == [0, 1]


def test_slices_share_what_all_clients_share():
    personal = {"head": torch.arange(6.0).view(3, 2), "shared.choice": torch.tensor(4)}
    first, last = slice_of(personal, 0), slice_of(personal, 2)
    assert first["shared.choice"] is last["shared.choice"] is personal["shared.choice"]
    assert (first["head"].tolist(), last["head"].tolist()) == ([0, 1], [4, 5])
    assert slice_of({}, 2) == {}


def test_a_name_that_only_contains_shared_is_sliced():
    assert slice_of({"model.shared.bias": torch.arange(3)}, 2)["model.shared.bias"].item() == 2


def test_every_output_has_extras_of_its_own():
    one, two = Output(torch.zeros(2, 3)), Output(torch.zeros(2, 3))
    one.extras["weight"] = torch.ones(2)
    assert two.extras == {}
