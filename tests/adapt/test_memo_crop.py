from dataclasses import replace

import pytest
import torch

from fedlib.adapt import memo
from fedlib.adapt.memo import MEMOCrop
from fedlib.augment.views import crop_flip_views
from tests.adapt.cases import case
from tests.oracles import batch_adaptation as oracle


@pytest.mark.parametrize("chunk_size", [1, 3])
def test_equals_the_plain_version(chunk_size):
    task, state, stream = case(5)

    def views_of(i):
        draws = task.generator("views", stream.client, stream.column, stream.draw, i)
        return task.transform.normalise(crop_flip_views(stream.images[i : i + 1], 6, [draws], pad=2))[0].to(task.dtype)

    scores = MEMOCrop(0.3, views=6, pad=2).run(replace(task, chunk_size=chunk_size), state, {}, stream).scores
    torch.testing.assert_close(scores, oracle.memo(task, state, views_of, stream, 0.3), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("side", "pad"), [(6, 0), (28, 4), (32, 4), (224, 32)])
def test_default_margin_is_a_seventh_of_the_side(monkeypatch, side, pad):
    task, state, stream = case(1)
    met = []
    monkeypatch.setattr(memo, "crop_flip_views", lambda images, n, generators, pad: met.append(pad) or images.float())
    monkeypatch.setattr(memo, "tune_each", lambda *_, augment, **__: augment(torch.zeros(1, 1, side, side), 2, []))
    MEMOCrop().run(task, state, {}, stream)
    assert met == [pad]
