"""FedTHE and BTFL as their published code runs them: Python loops over batches, samples and steps, for the times of BTFL's Table 3.

The results are those of ``fedlib.adapt.fedthe`` and ``fedlib.adapt.btfl``, which solve whole streams at once; only the time differs.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor
from torch.nn import functional

from fedlib.adapt.btfl import BTFL
from fedlib.adapt.fedthe import FedTHE
from fedlib.adapt.output import Output
from fedlib.clients import Stream
from fedlib.task import State, Task


@dataclass(frozen=True)
class FedTHELoop:
    """method: the hyperparameters; the published history rule and weighting only. State: the moving average of features."""

    method: FedTHE = FedTHE()
    version: int = 1

    def __post_init__(self):
        m = self.method
        if m != FedTHE(alpha=m.alpha, beta=m.beta, steps=m.steps, lr=m.lr, batch_size=m.batch_size):
            raise ValueError(f"the loop has no variants, got {m}")

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        past, scores, weights = None, [], []
        for images in stream.images.split(self.method.batch_size):
            features, global_logits = task.predict(state, images)
            personal_logits = functional.linear(features, personal["model.head.weight"])
            averages = []
            for i, feature in enumerate(features):
                if past is None:
                    past = feature
                elif i > 0:
                    past = self.method.alpha * feature + (1 - self.method.alpha) * past
                averages.append(past)
            smoothed = self.method.beta * features + (1 - self.method.beta) * torch.stack(averages)
            distances = torch.stack([(smoothed - personal[name]).norm(dim=1) for name in ("shared.descriptor", "descriptor")], 1)
            e = self._solve(torch.stack([global_logits, personal_logits], 1), distances)
            scores.append(e[:, :1] * global_logits + e[:, 1:] * personal_logits)
            weights.append(e[:, 0])
        return Output(torch.cat(scores), {"weight": torch.cat(weights)})

    def _solve(self, logits: Tensor, distances: Tensor) -> Tensor:
        """Weights [b, 2] of the global and the personal head after Adam's steps; logits [b, 2, C], distances [b, 2]."""
        similarity = functional.cosine_similarity(*logits.softmax(2).unbind(1), dim=1, eps=1e-6)
        free = torch.ones_like(distances, requires_grad=True)
        optimizer = torch.optim.Adam([free], lr=self.method.lr)
        for _ in range(self.method.steps):
            e = free.softmax(1)
            blended = (e[..., None] * logits).sum(1)
            entropy = -(blended.softmax(1) * blended.log_softmax(1)).sum(1)
            loss = (similarity * entropy + (1 - similarity) * (e * distances).sum(1)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return free.detach().softmax(1)


@dataclass(frozen=True)
class BTFLLoop:
    """method: the hyperparameters; the published code's choices only. State: alpha and beta."""

    method: BTFL = BTFL()
    version: int = 1

    def __post_init__(self):
        m = self.method
        if m != BTFL(cap=m.cap, kb=m.kb, smoothing=m.smoothing, batch_size=m.batch_size):
            raise ValueError(f"the loop has no variants, got {m}")

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        own, others = (personal[name].cpu().numpy() for name in ("table", "others_table"))
        limits = personal["entropies"].double().tolist()
        points = np.linspace(0.01, 0.99, 100)
        alpha, beta, scores, weights = 1.0, 1.0, [], []
        for images in stream.images.split(self.method.batch_size):
            features, global_logits = task.predict(state, images)
            personal_logits = functional.linear(features, personal["model.head.weight"])
            arrays = (features.cpu().numpy(), global_logits.cpu().numpy(), personal_logits.cpu().numpy())
            density = stats.beta.pdf(points, alpha, beta)
            external = internal = 0
            for feature, global_logit, personal_logit in zip(*arrays, strict=True):
                likelihoods = [self._log_likelihood(feature, table) for table in (own, others)]
                entropies = [_entropy(logit) for logit in (personal_logit, global_logit)]
                lower = [h < limit for h, limit in zip(entropies, limits, strict=True)]
                higher = [h > limit for h, limit in zip(entropies, limits, strict=True)]
                external += likelihoods[0] < likelihoods[1] and lower[1] and higher[0]
                internal += likelihoods[0] > likelihoods[1] and lower[0] and higher[1]
                ratio = self._ratio(likelihoods, entropies, limits[0], len(feature))
                weight = np.trapezoid(density * points / (points + (1 - points) * ratio), points)
                scores.append(weight * _log_softmax(global_logit) + (1 - weight) * _log_softmax(personal_logit))
                weights.append(weight)
            alpha, beta = alpha + external, beta + internal
            if (total := alpha + beta) > self.method.cap:
                alpha, beta = 1 + self.method.cap / 10 * alpha / total, 1 + self.method.cap / 10 * beta / total
        device = stream.images.device
        return Output(torch.tensor(np.stack(scores), device=device), {"weight": torch.tensor(np.stack(weights), device=device)})

    def _log_likelihood(self, feature: np.ndarray, table: np.ndarray) -> float:
        total, levels = 0.0, len(table)
        for j, value in enumerate(feature):
            code = round(math.tanh(value) * (levels - 1))
            total += math.log((1 - self.method.smoothing * levels) * table[code, j] + self.method.smoothing)
        return total

    def _ratio(self, likelihoods: list[float], entropies: list[float], limit: float, width: int) -> float:
        """The rectified and squashed likelihood ratio, (14) and (15)."""
        own_power = math.exp(min((entropies[0] - limit) / limit, 80.0))
        global_power = math.exp((entropies[1] - math.log(100)) / math.log(100))
        exponent = (own_power * likelihoods[0] - global_power * likelihoods[1]) / width
        # Beyond this the squash is at its bound, and the exponential would overflow.
        distance = math.expm1(min(abs(exponent), 700.0))
        bound = 1 + self.method.kb * math.tanh(distance)
        return bound if exponent > 0 else 1 / bound


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max()
    return shifted - math.log(np.exp(shifted).sum())


def _entropy(logits: np.ndarray) -> float:
    logs = _log_softmax(logits)
    return -float((np.exp(logs) * logs).sum())
