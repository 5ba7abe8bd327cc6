import pytest
import torch

from fedlib.adapt.surgical import Surgical
from tests.adapt.cases import case
from tests.oracles import batch_adaptation as oracle

BLOCKS = {
    "block1": ["extractor.0.weight", "extractor.0.bias", "extractor.1.weight", "extractor.1.bias"],
    "block2": ["extractor.4.weight", "extractor.4.bias"],
    "head": ["head.weight", "head.bias"],
}


@pytest.mark.parametrize("block", BLOCKS)
def test_equals_the_plain_version(block):
    task, state, stream = case()
    scores = Surgical(block, 0.5, 4).run(task, state, {}, stream).scores
    torch.testing.assert_close(scores, oracle.surgical(task, state, stream, 4, BLOCKS[block], 0.5), rtol=1e-9, atol=1e-11)


def test_batches_do_not_know_of_each_other():
    task, state, stream = case(8)
    both = Surgical("head", 1.0, 4).run(task, state, {}, stream).scores
    flipped = type(stream)(torch.cat([stream.images[4:], stream.images[:4]]), "test", 3)
    torch.testing.assert_close(Surgical("head", 1.0, 4).run(task, state, {}, flipped).scores, torch.cat([both[4:], both[:4]]))


def test_unknown_block_is_refused():
    task, state, stream = case()
    with pytest.raises(ValueError, match="unknown block 'stem'"):
        Surgical("stem").run(task, state, {}, stream)
