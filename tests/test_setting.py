"""Settings and requests are values: equal where they say the same, never changed by what runs them."""

from dataclasses import FrozenInstanceError

import pytest

import fedlib
from fedlib.cache.store import key_of
from fedlib.core import RECEIVED, Local, Schedule


def test_equal_settings_are_one_and_cannot_be_changed():
    made = [fedlib.Setting("a", fedlib.BRFL("digits", n_clients=4), "mlp_small", Schedule(1, Local(lr=0.1, epochs=1))) for _ in range(2)]
    assert made[0] == made[1]
    assert key_of({"setting": made[0]}) == key_of({"setting": made[1]})
    with pytest.raises(FrozenInstanceError):
        made[0].label = "b"


def test_a_request_that_says_nothing_asks_for_the_received_model_on_every_test():
    rows = fedlib.run(
        [fedlib.Setting("a", fedlib.BRFL("digits", n_clients=4), "mlp_small", Schedule(2, Local(lr=0.1, epochs=1)))],
        fedlib.recipes_of("fedthe", "FedAvg"),
        seeds=[0],
        cache=None,
    )
    assert fedlib.Request().rounds == (RECEIVED,)
    assert set(rows["round"]) == {2}
    assert set(rows["column"]) == {"original", "corrupted", "ooc", "natural", "mixture"}
    assert not rows["cut"].any()
