from dataclasses import fields, replace

import pytest
import torch

from fedlib.augment.transform import Transform
from fedlib.core import Benchmark, Client, Local, NoAdapt, Output, Samples, Schedule, Stream
from fedlib.models import state_of
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


def test_report_of_a_test_is_of_the_clients_that_have_it(benchmark):
    lacking = replace(benchmark, clients=(*benchmark.clients, replace(benchmark.clients[0], id=99, tests={})))
    column = benchmark.columns[0]
    assert lacking.report(column).equals(benchmark.report(column))
    with pytest.raises(ValueError, match="unknown part 'trian'"):
        benchmark.report("trian")


def test_moving_to_a_device_keeps_the_rest(benchmark):
    moved = benchmark.to("meta")
    assert {client.train.images.device.type for client in moved.clients} == {"meta"}
    assert moved.clients[0].tests["corrupted"][1].labels.device.type == "meta"
    assert (moved.clients[3].source, moved.clients[3].id, moved.columns) == (False, 7, benchmark.columns)


@pytest.mark.parametrize("kind", ["plain", "batchnorm", "dropout"])
def test_predict_is_the_module_in_evaluation_mode(kind):
    task = tiny.task(kind)
    state, images = state_of(tiny.net(kind, seed=1)), tiny.samples(7).images
    features, logits = task.predict(state, images, batch_size=3)
    module = tiny.net(kind, seed=1).eval()
    with torch.no_grad():
        inputs = task.transform.normalise(images, torch.float64)
        torch.testing.assert_close(features, module.extractor(inputs), rtol=0, atol=1e-12)
        torch.testing.assert_close(logits, module(inputs), rtol=0, atol=1e-12)
    assert not logits.requires_grad


@pytest.mark.parametrize("absent", ["extractor.1.weight", "head.bias"])
def test_a_state_without_a_tensor_of_the_network_does_not_predict_with_the_untrained_one(absent):
    state = state_of(tiny.net("plain", seed=1))
    assert absent in state
    with pytest.raises(ValueError, match=rf"without '{absent}' cannot predict"):
        tiny.task("plain").predict({name: tensor for name, tensor in state.items() if name != absent}, tiny.samples(2).images)


def test_a_state_may_have_more_than_the_network_and_lack_what_evaluation_does_not_read():
    task, state = tiny.task("batchnorm"), state_of(tiny.net("batchnorm", seed=1))
    less = {name: tensor for name, tensor in state.items() if not name.endswith("num_batches_tracked")}
    assert len(less) < len(state)
    images = tiny.samples(5).images
    assert torch.equal(task.predict(less | {"head.scale": torch.ones(1)}, images)[1], task.predict(state, images)[1])


def test_prediction_does_not_depend_on_the_memory_layout_of_the_state():
    task, images = tiny.task("convolution", dtype=torch.float32), tiny.samples(64).images
    state = state_of(task.model)
    last = {name: t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t for name, t in state.items()}
    assert torch.equal(task.predict(state, images)[1], task.predict(last, images)[1])


def test_empty_stream():
    features, logits = tiny.task("convolution").predict(state_of(tiny.net("convolution")), tiny.samples(0).images)
    assert (features.shape, logits.shape) == ((0, 5), (0, 3))


def test_frozen_features_are_computed_once_per_state_and_stream(monkeypatch):
    task, client = tiny.task(), tiny.client(0)
    first, second, stream = state_of(tiny.net()), state_of(tiny.net(seed=1)), client.stream("original")
    calls = []
    predict = type(task).predict
    monkeypatch.setattr(type(task), "predict", lambda self, state, images: calls.append(1) or predict(self, state, images))
    task.frozen(first, stream)[1].fill_(7)
    assert torch.equal(task.frozen(first, stream)[1], predict(task, first, stream.images)[1]), "what one method does to its copy is its own"
    assert not torch.equal(task.frozen(first, stream)[1], task.frozen(second, stream)[1])
    task.frozen(first, client.stream("corrupted"))
    assert len(calls) == 3
    darker = replace(task, transform=replace(task.transform, mean=(0.9,) * len(task.transform.mean)))
    assert torch.equal(darker.frozen(first, stream)[1], predict(darker, first, stream.images)[1]), "another task's inputs are others"


def test_generators_differ_by_purpose_and_repeat():
    task = tiny.task()
    draw = lambda *purpose: torch.rand(3, generator=task.generator(*purpose)).tolist()  # noqa: E731
    assert draw("local", 1, 2) == draw("local", 1, 2)
    assert draw("local", 1, 2) != draw("local", 2, 1)
    assert draw("local", 1, 2) != torch.rand(3, generator=tiny.task(seed=1).generator("local", 1, 2)).tolist()


@pytest.mark.parametrize(
    "bad",
    [
        {"optimizer": "sdg"},
        {"lr": 0.0},
        {"batch_size": 0},
        {"epochs": -1},
        {"momentum": 1.0},
        {"steps": 0},
        {"clip": -1.0},
        {"clip": float("nan")},
        {"continued": True, "milestone": 2},
    ],
)
def test_bad_local_fields(bad):
    with pytest.raises(ValueError):
        Local(**bad)


def test_a_phase_in_a_later_round_differs_by_its_rate_alone():
    local = Local(lr=0.8, decay=0.5, epochs=3, milestone=2)
    assert local.at(1) == local
    assert local.at(3) == replace(local, lr=0.2)
    assert local.at(3, 0.4) == replace(local, lr=0.1)


@pytest.mark.parametrize("bad", [{"rounds": 0}, {"participation": 0.0}, {"participation": 1.5}])
def test_bad_schedules(bad):
    with pytest.raises(ValueError, match="participation"):
        Schedule(**bad)


def test_every_output_has_extras_of_its_own():
    one, two = Output(torch.zeros(2, 3)), Output(torch.zeros(2, 3))
    one.extras["weight"] = torch.ones(2)
    assert two.extras == {}


def test_predicts_with_the_received_model():
    task, stream = tiny.task(), tiny.client(0).stream("original")
    state = state_of(tiny.net(seed=1))
    output = NoAdapt().run(task, state, {"descriptor": torch.ones(5)}, stream)
    assert torch.equal(output.scores, task.predict(state, stream.images)[1])
    assert output.extras == {}


def test_personal_parts_replace_their_own_names_only():
    task, stream = tiny.task(), tiny.client(0).stream("original")
    state, tuned = state_of(tiny.net(seed=1)), state_of(tiny.net(seed=2))
    output = NoAdapt().run(task, state, {"model.head.weight": tuned["head.weight"]}, stream)
    expected = task.predict(state | {"head.weight": tuned["head.weight"]}, stream.images)[1]
    assert torch.equal(output.scores, expected)
    assert not torch.allclose(expected, task.predict(state, stream.images)[1])
