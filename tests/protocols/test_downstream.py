import pytest
import torch

from fedlib.protocols.downstream import PRETRAINING, Downstream


@pytest.fixture(scope="module")
def benchmark():
    return Downstream().build(0)


def keys(samples):
    return {image.numpy().tobytes() for image in samples.images}


def test_one_client_is_downstream_and_alone_tested(benchmark):
    *pretraining, target = benchmark.clients
    assert len(pretraining) == len(PRETRAINING)
    assert all(client.source and not client.tests for client in pretraining)
    assert not target.source
    assert list(target.tests) == ["original", "corrupted", "natural", "domain"]


def test_no_test_image_is_trained_on(benchmark):
    learnt = [keys(part) for client in benchmark.clients for part in (client.train, client.val)]
    tests = [keys(draws[0]) for draws in benchmark.clients[-1].tests.values()]
    everything = learnt + tests
    assert sum(map(len, everything)) == len(set().union(*everything))


def test_corrupted_are_the_same_samples(benchmark):
    tests = benchmark.clients[-1].tests
    corrupted, original = tests["corrupted"][0], tests["original"][0]
    # Each stream has an order of its own.
    assert torch.equal(corrupted.labels.sort().values, original.labels.sort().values)
    assert not keys(corrupted) & keys(original)


def test_a_weaker_pretraining_leaves_the_downstream_client_as_it_is(benchmark):
    weak = Downstream(PRETRAINING[1:2]).build(0)
    assert len(weak.clients) == 2
    assert torch.equal(weak.clients[-1].train.images, benchmark.clients[-1].train.images)
    assert torch.equal(weak.clients[0].train.images, benchmark.clients[1].train.images)


def test_bad_values():
    with pytest.raises(ValueError, match="pretraining domain"):
        Downstream(("plain",))
    with pytest.raises(ValueError, match="at least one"):
        Downstream(())
