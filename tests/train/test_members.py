import pytest
import torch

from fedlib.train.members import members, positions, with_rows
from tests import tiny


def test_rows_follow_ids_not_places():
    clients = [tiny.client(k) for k in (4, 2, 7)]
    server = {"members": members(clients)}
    assert positions(server, clients) == [0, 1, 2]
    assert positions(server, [clients[2], clients[0]]) == [2, 0]
    with pytest.raises(ValueError, match="9"):
        positions(server, [tiny.client(9)])


def test_new_values_go_to_their_rows_and_the_old_ones_stay_as_they_are():
    stacks = {"a": torch.zeros(3, 2), "b": torch.zeros(3)}
    owns = [{"a": torch.ones(2), "b": torch.tensor(1.0), "else": torch.ones(4)}, {"a": torch.full((2,), 2.0), "b": torch.tensor(2.0)}]
    after = with_rows(stacks, [2, 0], owns)
    assert {name: stack.tolist() for name, stack in after.items()} == {"a": [[2, 2], [0, 0], [1, 1]], "b": [2, 0, 1]}
    assert not any(stack.any() for stack in stacks.values())
