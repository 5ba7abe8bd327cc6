"""APFL's mixing weight (Deng et al., 2020): one gradient step on the share alpha of the personal model, as FedTHE's code takes it."""

import torch
from torch import Tensor

# Pull of alpha towards zero, which the published code adds to the gradient.
ALPHA_DECAY = 0.02


def update_alpha(
    alpha: Tensor | float, local_params: Tensor, personal_params: Tensor, local_grads: Tensor, personal_grads: Tensor, *, lr: float
) -> Tensor:
    """alpha - lr (<v - u, alpha grad_v + (1 - alpha) grad_u> + 0.02 alpha), clipped to [0, 1], a scalar.

    u, v: parameters [D] of the local copy of the global model and of the personal model, with their gradients; alpha: share of v.
    """
    alpha = torch.as_tensor(alpha, dtype=local_params.dtype, device=local_params.device)
    direction = alpha * personal_grads + (1 - alpha) * local_grads
    return (alpha - lr * ((personal_params - local_params) @ direction + ALPHA_DECAY * alpha)).clamp(0, 1)
