"""ATP (Bao et al., NeurIPS 2023), section 4.1: learning one adaptation rate per module on labelled batches, global model frozen.

A source client goes through its validation batches: adapt the global model to the batch without labels, take the cross-entropy of the
adapted model on the same batch, and move the rates along its gradient. State: the rate vector. The server averages the clients' rates.

The gradient with respect to rate_l is <h_l, dL/dw_l>, directions held constant and the clamp of variances ignored. For batch norm, whose
layers have no gradient with respect to their running statistics, it follows from that of weight and bias, with y = (x - mean)
/ sqrt(var + eps) weight + bias:

    dL/dmean = -weight / sqrt(var + eps) dL/dbias        dL/dvar = -weight / (2 (var + eps)) dL/dweight

Paper and code: both divide the gradient by sqrt(number of elements) in the full method; in the ablations that learn only parameters or
only statistics the code divides by the number itself. ``grad_norm`` selects.
"""

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value
from torch.nn.functional import cross_entropy

from fedlib.adapt.atp import adapted, batch_norms, directions, evaluating, is_statistic, modules
from fedlib.core import State
from fedlib.models import state_of
from fedlib.tools.names import check_name


def refine(
    model: nn.Module,
    rates: Tensor,
    images: Tensor,
    labels: Tensor,
    *,
    lr: float,
    grad_norm: str = "sqrt_numel",
    only: str = "all",
    state: State | None = None,
) -> Tensor:
    """Rates [modules] after one step on one labelled batch: rate_l - lr <h_l, dL/dw_l> / n_l.

    images [B, C, H, W] normalised; labels [B]. grad_norm: n_l is the square root of the module's element count (``sqrt_numel``) or the
    count itself (``numel``). only: ``all`` modules learn, or only ``params``, or only running ``stats``; the others keep their rates.
    """
    check_choices(grad_norm, only)
    state = state_of(model) if state is None else state
    steps = directions(model, images, state)
    gradient, _ = gradient_and_loss(model, rates, steps, images, labels, state)
    return rates - lr * scale(model, rates, state, grad_norm, only) * gradient


def check_choices(grad_norm: str, only: str) -> None:
    """Raise ValueError for a name that ``scale`` does not know."""
    check_name(grad_norm, ("sqrt_numel", "numel"), "grad_norm")
    check_name(only, ("all", "params", "stats"), "only")


def scale(model: nn.Module, rates: Tensor, state: State, grad_norm: str, only: str) -> Tensor:
    """Factor [modules] on the gradient of every rate: one over its module's size or the root of it, zero for modules that do not learn."""
    names = modules(model)
    numel = rates.new_tensor([state[name].numel() for name in names])
    learns = rates.new_tensor([only == "all" or is_statistic(name) == (only == "stats") for name in names])
    return learns / (numel.sqrt() if grad_norm == "sqrt_numel" else numel)


def gradient_and_loss(model: nn.Module, rates: Tensor, steps: State, images: Tensor, labels: Tensor, state: State) -> tuple[Tensor, Tensor]:
    """<h_l, dL/dw_l> [modules] at the modules adapted to ``images`` along their directions h = ``steps``, and L, the mean cross-entropy on
    the same batch."""
    names = modules(model)
    moved = state | adapted(model, rates, steps, state)

    def loss(weights: State) -> Tensor:
        with evaluating(model):
            return cross_entropy(functional_call(model, moved | weights, (images,)), labels.long())

    gradients, value = grad_and_value(loss)({name: moved[name] for name in names if not is_statistic(name)})
    for name, layer in batch_norms(model).items():
        weight, variance = moved[f"{name}.weight"], moved[f"{name}.running_var"] + layer.eps
        gradients[f"{name}.running_mean"] = -weight / variance.sqrt() * gradients[f"{name}.bias"]
        gradients[f"{name}.running_var"] = -weight / (2 * variance) * gradients[f"{name}.weight"]
    return torch.stack([(steps[name] * gradients[name]).sum() for name in names]), value
