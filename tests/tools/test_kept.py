import torch

from fedlib.protocols.ttpfl import TTPFL
from fedlib.tools.kept import forget, kept


def test_what_is_kept_is_made_once_until_it_is_forgotten():
    made = []
    function = kept(1)(lambda x: made.append(x) or len(made))
    assert (function(5), function(5)) == (1, 1)
    forget()
    assert function(5) == 2
    assert made == [5, 5]


def test_images_that_were_written_into_are_drawn_anew():
    """Corruptions take long, so that their clients are kept for all seeds."""
    clients = TTPFL("digits", n_clients=20)
    images, whole = (clients.build(0).clients[0].train.images for _ in range(2))
    assert images is whole
    before = images.clone()
    images.zero_()
    forget()
    assert torch.equal(clients.build(0).clients[0].train.images, before)
