import pytest
import torch

from fedlib.adapt.fedthe import FedTHE
from fedlib.adapt.mixture import HeadSum, Interpolation, ModelMixture
from fedlib.models import state_of
from fedlib.personalize.fine_tune import FineTune
from fedlib.personalize.head import PersonalHead
from fedlib.states import slice_of
from tests import tiny

STREAM = tiny.client(0).stream("original")


def logits(seed):
    task = tiny.task()
    return task.predict(state_of(tiny.net(seed=seed)), STREAM.images)[1]


def named(prefix, seed):
    return {f"{prefix}{name}": tensor for name, tensor in state_of(tiny.net(seed=seed)).items()}


def test_model_mixture_by_definition():
    personal = named("model.", 1) | named("own.", 2) | {"weight": torch.tensor(0.3, dtype=torch.float64)}
    scores = ModelMixture().run(tiny.task(), state_of(tiny.net()), personal, STREAM).scores
    torch.testing.assert_close(scores, 0.3 * logits(1) + 0.7 * logits(2))


def test_head_sum_by_definition():
    task, head = tiny.task(), tiny.net(seed=7).head
    personal = named("model.", 1) | {"personal_head.weight": head.weight.detach(), "personal_head.bias": head.bias.detach()}
    features, plain = task.predict(state_of(tiny.net(seed=1)), STREAM.images)
    scores = HeadSum().run(task, state_of(tiny.net()), personal, STREAM).scores
    torch.testing.assert_close(scores, plain + head(features).detach())


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_interpolation_of_models(weight):
    task, clients = tiny.task(), tiny.clients()
    received = state_of(task.model)
    personal = slice_of(FineTune().fit(task, [received] * 3, clients, {}, 1), 0)
    tuned = task.predict({name.removeprefix("model."): tensor for name, tensor in personal.items()}, STREAM.images)[1]
    scores = Interpolation(weight, "models").run(task, received, personal, STREAM).scores
    torch.testing.assert_close(scores, weight * logits(0) + (1 - weight) * tuned)


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.5, 1.0])
def test_interpolation_of_heads(weight):
    task, clients = tiny.task(), tiny.clients()
    personal = slice_of(PersonalHead().init(task, clients), 0)
    features, plain = task.predict(state_of(task.model), STREAM.images)
    scores = Interpolation(weight).run(task, state_of(task.model), personal, STREAM).scores
    torch.testing.assert_close(scores, weight * plain + (1 - weight) * features @ personal["model.head.weight"].T)
    if weight == 0.5:
        torch.testing.assert_close(scores, FedTHE(steps=0).run(task, state_of(task.model), personal, STREAM).scores)


def test_bad_arguments():
    for method, maker in [(ModelMixture(), "APFL"), (HeadSum(), "FedRoD"), (Interpolation(), "PersonalHead")]:
        with pytest.raises(ValueError, match=maker):
            method.run(tiny.task(), state_of(tiny.net()), {}, STREAM)
    with pytest.raises(ValueError, match="weight"):
        Interpolation(1.2)
    with pytest.raises(ValueError, match="heads"):
        Interpolation(0.5, "head")
