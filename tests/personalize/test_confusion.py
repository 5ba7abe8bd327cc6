from dataclasses import replace

import torch

from fedlib.models import state_of
from fedlib.personalize.confusion import Confusion
from tests import tiny


def test_counts_equal_a_loop_over_the_source_clients():
    task, clients = tiny.task(), [*tiny.clients(), tiny.client(7, source=False)]
    clients[1] = replace(clients[1], val=tiny.samples(0))
    state = state_of(task.model)
    part = Confusion().fit(task, [state] * 4, clients, {}, 1)
    hard, soft = torch.zeros(3, 3, dtype=torch.float64), torch.zeros(3, 3, dtype=torch.float64)
    for client in (clients[0], clients[2]):
        for image, label in zip(client.val.images, client.val.labels, strict=True):
            logits = task.predict(state, image[None])[1][0]
            hard[logits.argmax(), label] += 1
            soft[:, label] += logits.softmax(0)
    assert torch.equal(part["shared.confusion.hard"], hard)
    torch.testing.assert_close(part["shared.confusion.soft"], soft)
    assert hard.sum() == 6
