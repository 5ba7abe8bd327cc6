import pytest
import torch

from fedlib.states import overlay, own_head, part, require, slice_of, stacked


def test_part_and_overlay():
    state = {"extractor.a": torch.zeros(1), "head.weight": torch.zeros(2)}
    assert list(part(state, "head.")) == ["weight"]
    mixed = overlay(state, {"model.head.weight": torch.ones(2), "descriptor": torch.ones(3)})
    assert list(mixed) == ["extractor.a", "head.weight"]
    assert mixed["head.weight"].tolist() == [1, 1]
    assert state["head.weight"].tolist() == [0, 0]


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


def test_stacked_states_are_the_slices_again():
    states = [{"extractor.a": torch.full((2,), float(k)), "head.b": torch.tensor(k)} for k in range(3)]
    personal = stacked(states)
    assert list(personal) == ["model.extractor.a", "model.head.b"]
    for k, state in enumerate(states):
        assert all(torch.equal(tensor, state[name]) for name, tensor in part(slice_of(personal, k), "model.").items())
    assert {name: tensor.tolist() for name, tensor in stacked(states, "head.", prefix="own.").items()} == {"own.head.b": [0, 1, 2]}


def test_an_own_head_has_a_bias_or_none():
    features, weight, bias = torch.ones(2, 3), torch.arange(12.0).view(4, 3), torch.tensor([1.0, 0, 0, 0])
    assert own_head(features, {"model.head.weight": weight}).tolist() == [[3, 12, 21, 30]] * 2
    assert own_head(features, {"model.head.weight": weight, "model.head.bias": bias}).tolist() == [[4, 12, 21, 30]] * 2


def test_what_a_method_lacks_is_named_with_its_maker():
    personal = {"keys": torch.zeros(1)}
    require(personal, "Some", "Maker", "keys")
    with pytest.raises(ValueError, match=r"^Some needs mix, bias in the personal part: personalize with Maker$"):
        require(personal, "Some", "Maker", "mix", "keys", "bias")
