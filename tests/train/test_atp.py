from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from fedlib.adapt.atp import adapted, directions, modules
from fedlib.models import build, state_of
from fedlib.train import atp
from fedlib.train.atp import gradient_and_loss, refine
from tests.excerpts import numbers
from tests.oracles import atp as oracle

# Outputs of ATP's published code for the upper half of a small network (linear, batch norm, ReLU, linear) on a batch of 12: some of its
# directions, and the rates after one step. What they need: its weights, its input with the layers below as trained and as that code adapted
# them, the labels, and the rates before.
UPPER_STATE = {
    "linear3.weight": """
-0.28470170977 0.45544811781 0.6483726561 -0.29386995302 -0.91645090936 -0.19836669192 -0.07372305479 0.95066944988 -1.10519527673
0.33015607118 0.28173560893 -0.23349989273 0.76659786904 -0.11545989562 -0.01779887076 1.44513746692 -0.14187521812 0.06987676643
-0.37074514889 -0.36799956323 0.08313524503 0.40826273007 -0.17955399041 -0.03168008241 0.69042997424 1.57188741808 -1.46385106249
-0.75876764063 0.57120315564 0.75498942833 0.65168675285 -0.84255900652 0.16763579463 0.5781547397 0.60493002265 -0.89638129201
-1.04061213096 0.86257450597 -0.33698728907 0.09226933456 -0.00506927179 -0.68513522663 0.14619593204 -0.7405540151 0.76555466501
0.3747362248 0.513788783 1.01594419407
""",
    "linear3.bias": """
-0.79422007451 0.43612553709 0.41322630728 0.13816302577 -0.45854264989 0.13619396937 -0.43427998313 0.62013168912
""",
    "bn3.running_mean": """
-0.70910516856 0.51385626987 1.24834234204 -0.19747327343 0.66028189126 -0.26570146697 -1.08564305698 1.31404858813
""",
    "bn3.running_var": """
0.20142706018 0.34440398824 0.51451148237 0.07442237348 1.36447030409 0.70296414886 0.66369541377 0.46327336142
""",
    "bn3.weight": """
1.16872271645 1.27265028596 1.49836934991 1.21764136349 1.2932989375 1.29364492557 1.05376387046 1.19866678499
""",
    "bn3.bias": """
0.06446739953 -0.09671962541 0.06738222616 0.47074023622 0.61183408738 0.50823399885 0.21924596541 0.24540606145
""",
    "linear4.weight": """
-0.80194098109 0.39133692776 -1.16982122482 -0.74106169101 0.74095787524 -0.48453422445 0.08842535338 1.05936377303 -0.53156192728
-0.13161550079 -1.29802120631 1.128601266 -0.47116348536 -0.07054580016 -1.04429105813 0.5821902254 -0.75001436361 -0.32024545145
0.56565799822 -0.20326236379 0.09352416239 0.23806971175 -0.15070956796 0.60714112267 -0.27452894744 -0.5023583818 -0.70621851727
0.69218708335 -0.00932167099 0.7341608129 0.43092653313 -0.27893989285 0.27952704528 -0.1141703033 -0.5728569046 -0.36203502828
-0.14814256135 -0.65420127135 0.87166172792 0.37376350114
""",
    "linear4.bias": """
-0.54713045563 -0.09445213809 -0.81620829323 -0.64999594213 -0.30450980576
""",
}
INPUT_BEFORE = """
1.33229423253 0.01808286985 0 0.29181833315 0.12446419632 1.94901137241 1.28216601713 0 0 0.53837757512 0.01667096084 1.24810859688
0.40015631251 0 0 0 0.17834878562 1.07322075746 0.77247133195 0.18175196737 0 0.02931965253 0 1.41857880591 0.61595140938 0.0721994239 0
0.15324091443 0.30850032762 0.20365822294 0.69043880918 0 0.1667805502 0 0.18538887246 2.80307121264 0.73439918706 0.33821146647 0 0
0.03282672955 1.71399005182 1.07341252601 0.35678814896 0 0 0 0.93111836636 0.45581082996 0.55834742843 0 0 0 0.87643332909 0.63635217431
0 0 0.3098960884 0.24476668013 1.04289172916 1.86207122515 0.03535084534 0 0.00564608749 0.05056809637 2.21671161822 0.74325809803 0 0 0
0.09768257261 1.49423742045
"""
INPUT_ADAPTED = """
4.55656478556 1.79741058277 0 0.41517161653 0.05777322428 5.11044354092 3.74422628572 0.22653374086 0.42267284722 1.05633693801
0.02502287506 3.90077557067 2.01297168024 0.96881389257 0.03429060028 0.18205138953 0.17252563091 3.07492152829 3.4746390947 2.43710052727
0 0.03752795417 0 4.22294848172 2.192911122 1.21144137182 0.30713878536 0.45351436806 0.2699243084 2.13174666452 3.74005738407
1.4552813377 0.61897246815 0 0.15761968545 6.28796252061 2.83195023799 2.16538112789 0.09379949623 0 0.00059750511 4.29268260967
3.51628815688 2.48998419312 0.30012121646 0.19261703807 0 3.56854359834 2.49395283958 2.57618299405 0.06069480319 0 0 2.97133824724
2.61448669434 0.41495149665 0.22151398939 0.55068647432 0.25911220633 3.42118739948 5.76180869232 2.00894554842 0.15482792869
0.25660540144 0.05140243164 6.14510794681 3.35333107021 1.41075877163 0 0.06478569987 0.06684421341 4.01094588761
"""
UPPER_LABELS = [0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0]
DIRECTIONS = {
    "bn3.running_mean": [-0.6760348323972, -0.2991487200574, 0.07084013804989, -0.05667917701951],
    "bn3.running_var": [-0.1253051807335, -0.2488680509979, -0.2724413897906, -0.04774456963223],
    "bn3.weight": [0, 0.006016561152897, 0.03873429851302, 0.05503775498602],
    "linear4.bias": [0.1739451798391, -0.01367750767566, -0.05156576101898, -0.02720912133135],
}
RATES_BEFORE = """
-0.227332858112 0.364596266579 0.097178300606 -0.157521119059 0.491943328081 -0.053322184207 0.072811517173 -0.033528060540
"""
RATES_AFTER = """
-0.210190194709 0.367376091313 0.097813036765 -0.193164707314 0.494246816680 -0.052616057174 0.095123050532 -0.031083120034
"""


@pytest.fixture
def case():
    """Shallow CNN in float64 with uneven batch norm, one labelled batch, rates small enough that no variance is clamped."""
    model = build("shallow_cnn", (1, 16, 16), 5, seed=0).double()
    draws = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
                layer.running_mean.normal_(0, 0.3, generator=draws)
                layer.running_var.uniform_(0.3, 1.5, generator=draws)
                layer.weight.uniform_(0.5, 1.5, generator=draws)
                layer.bias.normal_(0, 0.3, generator=draws)
    images = torch.randn(6, 1, 16, 16, generator=draws, dtype=torch.float64)
    labels = torch.randint(5, (6,), generator=draws)
    rates = torch.randn(23, generator=draws, dtype=torch.float64) / 5
    return model, rates, images, labels


def loss_at(model, rates, steps, images, labels):
    return cross_entropy(functional_call(model.eval(), state_of(model) | adapted(model, rates, steps), (images,)), labels)


@pytest.mark.parametrize(("grad_norm", "power"), [("sqrt_numel", 0.5), ("numel", 1.0)])
def test_refine_equals_the_plain_version(case, grad_norm, power):
    expected = oracle.refine(*case, lr=0.1, power=power)
    torch.testing.assert_close(refine(*case, lr=0.1, grad_norm=grad_norm), expected, rtol=1e-9, atol=1e-12)
    assert (expected - case[1]).abs().min() > 0


def test_one_step_is_the_published_codes(monkeypatch):
    """Directions come from the trained network, the gradient from the adapted one, in which the upper half sees another input."""
    layers = {"linear3": nn.Linear(6, 8), "bn3": nn.BatchNorm1d(8), "relu": nn.ReLU(), "linear4": nn.Linear(8, 5)}
    model = nn.Sequential(OrderedDict(layers)).double()
    own = state_of(model)
    model.load_state_dict(own | {name: numbers(text, *own[name].shape) for name, text in UPPER_STATE.items()})
    steps = directions(model, numbers(INPUT_BEFORE, 12, 6))
    assert list(steps) == list(UPPER_STATE)
    for name, expected in DIRECTIONS.items():
        assert steps[name][:4].tolist() == pytest.approx(expected, rel=1e-8, abs=1e-10), name
    monkeypatch.setattr(atp, "directions", lambda *_: steps)
    after = refine(model, numbers(RATES_BEFORE, 8), numbers(INPUT_ADAPTED, 12, 6), torch.tensor(UPPER_LABELS), lr=0.1)
    torch.testing.assert_close(after, numbers(RATES_AFTER, 8), rtol=1e-8, atol=0)


@pytest.mark.slow
def test_deep_network_equals_the_plain_version():
    model = build("resnet18", (3, 32, 32), 5, seed=0).double()
    draws = torch.Generator().manual_seed(0)
    images, labels = torch.randn(4, 3, 32, 32, generator=draws, dtype=torch.float64), torch.arange(4)
    rates = torch.randn(102, generator=draws, dtype=torch.float64) / 100
    expected = oracle.refine(model, rates, images, labels, lr=1.0)
    torch.testing.assert_close(refine(model, rates, images, labels, lr=1.0), expected, rtol=1e-8, atol=1e-10)


def test_gradient_equals_autograd_through_the_adapted_modules(case):
    model, rates, images, labels = case
    steps = directions(model, images)
    rates = rates.clone().requires_grad_()
    logits = functional_call(oracle.with_plain_batch_norm(model), adapted(model, rates, steps), (images,))
    expected = torch.autograd.grad(cross_entropy(logits, labels), rates)[0]
    gradient = gradient_and_loss(model, rates.detach(), steps, images, labels, state_of(model))[0]
    torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-12)


def test_gradient_equals_finite_differences(case):
    model, rates, images, labels = case
    steps = directions(model, images)
    gradient, width = gradient_and_loss(model, rates, steps, images, labels, state_of(model))[0], 1e-5
    for k in range(len(rates)):
        offset = width * torch.eye(len(rates), dtype=torch.float64)[k]
        ends = [loss_at(model, rates + sign * offset, steps, images, labels).item() for sign in (1, -1)]
        assert gradient[k].item() == pytest.approx((ends[0] - ends[1]) / (2 * width), rel=1e-4, abs=1e-6)


def test_clamp_has_no_derivative_of_its_own(case):
    """A clamped variance keeps its gradient at 0, as in the authors' code."""
    model, rates, images, labels = case
    rates = rates.clone()
    rates[2] = -50.0
    name = modules(model)[2]
    clamped = adapted(model, rates, directions(model, images))[name] == 0
    assert name.endswith("running_var")
    assert clamped.any()
    expected = oracle.refine(model, rates, images, labels, lr=0.1)
    torch.testing.assert_close(refine(model, rates, images, labels, lr=0.1), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("only", ["params", "stats"])
def test_ablations_move_their_own_rates_only(case, only):
    everything, some = refine(*case, lr=0.1), refine(*case, lr=0.1, only=only)
    learns = torch.tensor([("running" in name) == (only == "stats") for name in modules(case[0])])
    assert torch.equal(some[learns], everything[learns])
    assert torch.equal(some[~learns], case[1][~learns])


def test_small_step_lowers_the_loss(case):
    model, rates, images, labels = case
    steps = directions(model, images)
    after = refine(model, rates, images, labels, lr=1e-3)
    assert loss_at(model, after, steps, images, labels) < loss_at(model, rates, steps, images, labels)


def test_given_state_replaces_the_weights(case):
    model, rates, images, labels = case
    other = build("shallow_cnn", (1, 16, 16), 5, seed=1).double()
    result = refine(other, rates, images, labels, lr=0.1, state=state_of(model))
    torch.testing.assert_close(result, refine(*case, lr=0.1), rtol=1e-12, atol=1e-12)


def test_model_is_left_untouched(case):
    model = case[0].train()
    before = state_of(model)
    refine(*case, lr=0.1)
    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in state_of(model).items())


def test_network_without_batch_norm_has_rates_for_its_weights():
    model = build("mlp", (1, 4, 4), 3, seed=0).double()
    images = torch.randn(5, 1, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rates, labels = torch.zeros(6, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1])
    torch.testing.assert_close(refine(model, rates, images, labels, lr=0.1), oracle.refine(model, rates, images, labels, lr=0.1))


@pytest.mark.parametrize(("option", "value"), [("grad_norm", "none"), ("only", "batch")])
def test_unknown_options_are_refused(case, option, value):
    with pytest.raises(ValueError, match=f"unknown {option} '{value}'"):
        refine(*case, lr=0.1, **{option: value})
