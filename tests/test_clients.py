from dataclasses import fields, replace

import pytest
import torch

from fedlib.clients import Benchmark, Client, Samples, Stream
from fedlib.transform import Transform
from tests import tiny


def test_a_stream_has_no_labels():
    stream = tiny.client(0).stream("corrupted", draw=1, limit=4)
    assert {field.name for field in fields(Stream)} == {"images", "column", "client", "draw"}
    assert not hasattr(stream, "labels")
    assert torch.equal(stream.images, tiny.samples(6, 300).images[:4])
    assert (stream.column, stream.client, stream.draw, len(stream)) == ("corrupted", 0, 1, 4)


def test_head_of_samples():
    samples = tiny.samples(5)
    assert len(samples.head(2)) == 2
    assert torch.equal(samples.head(None).labels, samples.labels)


def test_without_a_pool_the_training_part_stays():
    client = tiny.client(0)
    assert client.redrawn(torch.Generator().manual_seed(0)) is client


def test_redrawn_takes_as_many_distinct_samples_from_the_pool():
    pool = Samples(torch.arange(20, dtype=torch.uint8).view(20, 1, 1, 1), torch.arange(20))
    client = Client(0, pool.head(6), pool.head(0), pool=pool)
    drawn = [client.redrawn(torch.Generator().manual_seed(seed)).train for seed in (0, 0, 1)]
    assert all(len(set(part.labels.tolist())) == 6 for part in drawn)
    assert torch.equal(drawn[0].labels, drawn[1].labels)
    assert not torch.equal(drawn[0].labels, drawn[2].labels)
    assert torch.equal(drawn[2].images.flatten().long(), drawn[2].labels)


@pytest.fixture
def benchmark():
    newcomer = Client(7, tiny.samples(0), tiny.samples(0), {"late": (tiny.samples(2),)}, source=False)
    members = (*tiny.clients(), newcomer)
    return Benchmark(members, Transform((0.5,), (0.5,)), tiny.SHAPE, ("a", "b", "c"), "noise")


def test_columns_of_all_clients_in_order(benchmark):
    assert benchmark.columns == ["original", "corrupted", "late"]
    assert benchmark.n_classes == 3


def test_report_counts_classes(benchmark):
    report = benchmark.report()
    assert report.loc[7].sum() == 0
    for k in range(3):
        assert report.loc[k].tolist() == torch.bincount(tiny.samples((9, 5, 14)[k], k).labels, minlength=3).tolist()
    trained = replace(benchmark, clients=benchmark.clients[:3])
    assert trained.report("corrupted").loc[1].tolist() == torch.bincount(tiny.samples(6, 201).labels, minlength=3).tolist()


def test_moving_to_a_device_keeps_the_rest(benchmark):
    moved = benchmark.to("meta")
    assert {client.train.images.device.type for client in moved.clients} == {"meta"}
    assert moved.clients[0].tests["corrupted"][1].labels.device.type == "meta"
    assert (moved.clients[3].source, moved.clients[3].id, moved.columns) == (False, 7, benchmark.columns)
