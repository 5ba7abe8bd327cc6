import pytest

from fedlib.train.members import members, positions
from tests import tiny


def test_rows_follow_ids_not_places():
    clients = [tiny.client(k) for k in (4, 2, 7)]
    server = {"members": members(clients)}
    assert positions(server, clients) == [0, 1, 2]
    assert positions(server, [clients[2], clients[0]]) == [2, 0]
    with pytest.raises(ValueError, match="9"):
        positions(server, [tiny.client(9)])
