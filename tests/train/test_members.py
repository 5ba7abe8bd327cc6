import pytest
import torch

from fedlib.train.members import members, positions, zeros_for
from tests import tiny


def test_rows_follow_ids_not_places():
    clients = [tiny.client(k) for k in (4, 2, 7)]
    server = {"members": members(clients)}
    assert positions(server, clients) == [0, 1, 2]
    assert positions(server, [clients[2], clients[0]]) == [2, 0]
    with pytest.raises(ValueError, match="9"):
        positions(server, [tiny.client(9)])


def test_zeros_have_a_row_per_client_and_keep_the_type():
    zeros = zeros_for({"a": torch.ones(2, 3, dtype=torch.float64)}, 4)
    assert zeros["a"].shape == (4, 2, 3)
    assert zeros["a"].dtype == torch.float64
    assert not zeros["a"].any()
