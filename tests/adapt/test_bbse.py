import numpy as np
import pytest
import torch

from fedlib.adapt import bbse
from tests.adapt.cases import case
from tests.oracles import bbse as oracle


def problem(n=40, classes=4, seed=0):
    g = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, classes, generator=g, dtype=torch.float64) + torch.tensor([1.0, 0, 0, -1])
    counts = torch.randint(0, 9, (classes, classes), generator=g) + 40 * torch.eye(classes, dtype=torch.int64)
    return logits, counts


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("empty_class", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_equals_oracle(soft, empty_class, dtype, tolerance):
    logits, counts = problem()
    if empty_class:
        counts[:, 3] = 0
    adjusted = bbse.adjust(logits.to(dtype), counts, soft=soft)
    assert adjusted.dtype == dtype
    np.testing.assert_allclose(adjusted, oracle.adjust(logits.numpy(), counts.double().numpy(), soft), rtol=0, atol=tolerance)


def test_a_perfect_classifier_adds_the_log_of_its_own_histogram():
    logits = 9 * torch.eye(3, dtype=torch.float64)[[0, 0, 0, 1]]
    added = bbse.adjust(logits, 10 * torch.eye(3)) - logits
    prior = 0.999 * torch.tensor([0.75, 0.25, 0.0], dtype=torch.float64) + 0.001 / 3
    torch.testing.assert_close(added, prior.log().expand(4, 3))


def test_recovers_the_prior_through_a_noisy_classifier():
    """Predictions drawn in the exact proportions C q give back q."""
    counts = torch.tensor([[8, 1], [2, 9]])
    predicted = torch.tensor([0] * 45 + [1] * 55)  # C (0.5, 0.5)
    logits = torch.nn.functional.one_hot(predicted, 2).double()
    added = (bbse.adjust(logits, counts) - logits)[0]
    torch.testing.assert_close(added.exp(), torch.tensor([0.5, 0.5], dtype=torch.float64))


@pytest.mark.parametrize("scale", [7.5, 1e-3])
def test_scale_of_the_counts_does_not_matter(scale):
    """Not even where softmax outputs sum to less than one sample."""
    logits, counts = problem()
    torch.testing.assert_close(bbse.adjust(logits, counts), bbse.adjust(logits, counts * scale))


@pytest.mark.parametrize("counts", [torch.eye(3), -torch.eye(4), torch.zeros(4, 4)])
def test_bad_counts_raise(counts):
    with pytest.raises(ValueError, match="confusion_counts"):
        bbse.adjust(problem()[0], counts)


@pytest.mark.parametrize("how", ["hard", "soft"])
def test_adapter_reads_its_confusion_and_head_and_treats_every_batch_on_its_own(how):
    task, state, stream = case()
    counts = {"hard": torch.eye(3) * 5 + 1, "soft": torch.eye(3) * 2 + 1}
    personal = {f"shared.confusion.{name}": tensor for name, tensor in counts.items()}
    personal["model.head.weight"] = state["head.weight"].flip(0)
    logits = task.predict(state | {"head.weight": personal["model.head.weight"]}, stream.images)[1]
    expected = torch.cat([bbse.adjust(part, counts[how], soft=how == "soft") for part in logits.split(4)])
    torch.testing.assert_close(bbse.BBSE(how, 4).run(task, state, personal, stream).scores, expected)


def test_no_images_have_no_prior():
    assert bbse.adjust(torch.zeros(0, 3), torch.eye(3)).shape == (0, 3)


def test_adapter_says_what_it_needs():
    task, state, stream = case()
    with pytest.raises(ValueError, match=r"BBSE needs shared\.confusion\.hard in the personal part: personalize with Confusion"):
        bbse.BBSE().run(task, state, {}, stream)


def test_adapter_refuses_other_confusions():
    with pytest.raises(ValueError, match="unknown confusion 'medium'"):
        bbse.BBSE("medium")
