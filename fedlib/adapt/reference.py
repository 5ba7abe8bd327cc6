"""FedTHE, BTFL and TTT in the form in which their published code runs them, for the times of BTFL's Table 3.

The results are those of ``fedlib.adapt.fedthe``, ``fedlib.adapt.btfl`` and ``fedlib.adapt.ttt``; only the time differs. The published
workers go batch by batch. FedTHE's sends every batch through the network three times (history, weight, prediction) and computes all terms
of its objective anew in each step, although only the weight moves. BTFL's evaluates a frozen Beta density for every sample. TTT's turns
and computes every copy of a sample. What they compute and throw away, accuracies and logging are left out.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy import stats
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from fedlib.adapt.btfl import BTFL
from fedlib.adapt.fedthe import FedTHE
from fedlib.adapt.ttt import TTT, copied
from fedlib.core import Local, Output, State, Stream, Task
from fedlib.models.net import training
from fedlib.personalize.ttt import HEAD, TURNS, rotation_logits
from fedlib.stages.optim import Optimizer
from fedlib.states import network_of, overlay, own_head
from fedlib.train.local import layer_draws


@dataclass(frozen=True)
class FedTHELoop:
    """method: the hyperparameters; the published history rule and weighting only. State: the moving average of features."""

    method: FedTHE = FedTHE()
    version: int = 2

    def __post_init__(self):
        m = self.method
        if m != FedTHE(alpha=m.alpha, beta=m.beta, steps=m.steps, lr=m.lr, batch_size=m.batch_size, early_stop=m.early_stop):
            raise ValueError(f"the loop has no variants, got {m}")

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        past, scores, weights = None, [], []
        for images in stream.images.split(self.method.batch_size):
            features, _ = task.predict(state, images)
            past = self._history(features, past)
            e = self._solve(task, state, personal, images, past).softmax(1)
            features, global_logits = task.predict(state, images)
            scores.append(e[:, :1] * global_logits + e[:, 1:] * own_head(features, personal))
            weights.append(e[:, 0])
        return Output(torch.cat(scores), {"weight": torch.cat(weights)})

    def _history(self, features: Tensor, past: Tensor | None) -> Tensor:
        """The moving average [b, d] at every sample of a batch; the first of a later batch takes the last of the one before."""
        averages = [features[0] if past is None else past[-1]]
        for feature in features[1:]:
            averages.append(self.method.alpha * feature + (1 - self.method.alpha) * averages[-1])
        return torch.stack(averages)

    def _solve(self, task: Task, state: State, personal: State, images: Tensor, past: Tensor) -> Tensor:
        """Logits [b, 2] of the weights of the global and the personal head after Adam's steps."""
        features, global_logits = task.predict(state, images)
        personal_logits = own_head(features, personal)
        free = torch.ones((len(images), 2), dtype=features.dtype, device=features.device, requires_grad=True)
        optimizer = torch.optim.Adam([free], lr=self.method.lr)
        for _ in range(self.method.steps):
            e = free.softmax(1)
            blended = e[:, :1] * global_logits + e[:, 1:] * personal_logits
            smoothed = self.method.beta * features + (1 - self.method.beta) * past
            to_personal = (smoothed - personal["descriptor"]).norm(dim=1)
            to_global = (smoothed - personal["shared.descriptor"]).norm(dim=1)
            similarity = functional.cosine_similarity(global_logits.softmax(1), personal_logits.softmax(1), dim=1, eps=1e-6)
            entropy = -(blended.softmax(1) * blended.log_softmax(1)).sum(1)
            loss = (similarity * entropy + (1 - similarity) * (e[:, 0] * to_global + e[:, 1] * to_personal)).mean()
            optimizer.zero_grad()
            loss.backward()
            if free.grad.norm().item() < 1e-5 and self.method.early_stop:
                break
            optimizer.step()
        return free.detach()


@dataclass(frozen=True)
class BTFLLoop:
    """method: the hyperparameters; the published code's choices only. State: alpha and beta."""

    method: BTFL = BTFL(mixture="log", cap_rule="restart", integral="trapezoid")
    version: int = 2

    def __post_init__(self):
        m = self.method
        if m != replace(BTFLLoop.method, cap=m.cap, kb=m.kb, smoothing=m.smoothing, batch_size=m.batch_size):
            raise ValueError(f"the loop has no variants, got {m}")

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        limits = personal["entropies"].double().tolist()
        points = np.linspace(0.01, 0.99, 100)
        alpha, beta, scores, weights = 1.0, 1.0, [], []
        for images in stream.images.split(self.method.batch_size):
            features, global_logits = task.predict(state, images)
            personal_logits = own_head(features, personal)
            likelihoods = [self._log_likelihood(features, personal[name]) for name in ("table", "others_table")]
            logs = [logits.double().log_softmax(1) for logits in (personal_logits, global_logits)]
            entropies = [-(log.exp() * log).sum(1) for log in logs]
            ratios = self._ratios(likelihoods, entropies, limits[0], features.shape[1]).cpu().numpy()
            prior, integrals = stats.beta(alpha, beta), np.zeros(len(ratios))
            for i, ratio in enumerate(ratios):
                integrals[i] = np.trapezoid(prior.pdf(points) * points / (points + (1 - points) * ratio), points)
            weight = torch.from_numpy(integrals).to(images.device)
            scores.append(weight[:, None] * logs[1] + (1 - weight[:, None]) * logs[0])
            weights.append(weight)
            alpha, beta = self._updated(alpha, beta, likelihoods, entropies, limits)
        return Output(torch.cat(scores), {"weight": torch.cat(weights)})

    def _log_likelihood(self, features: Tensor, table: Tensor) -> Tensor:
        codes = torch.round(torch.tanh(features) * (len(table) - 1)).long()
        return ((1 - self.method.smoothing * len(table)) * table.double().gather(0, codes) + self.method.smoothing).log().sum(1)

    def _ratios(self, likelihoods: list[Tensor], entropies: list[Tensor], limit: float, width: int) -> Tensor:
        """The rectified and squashed likelihood ratios, (14) and (15)."""
        own_power = ((entropies[0] - limit) / limit).clamp_max(80).exp()
        global_power = ((entropies[1] - math.log(100)) / math.log(100)).exp()
        exponent = (own_power * likelihoods[0] - global_power * likelihoods[1]) / width
        # Beyond this the squash is at its bound, and the exponential would overflow.
        bound = 1 + self.method.kb * torch.tanh(torch.expm1(exponent.abs().clamp_max(700)))
        return torch.where(exponent > 0, bound, 1 / bound)

    def _updated(self, alpha: float, beta: float, likelihoods: list[Tensor], entropies: list[Tensor], limits: list[float]) -> tuple:
        """The prior after the events of a batch, restarted above its cap."""
        low, high = ([compare(h, limit) for h, limit in zip(entropies, limits, strict=True)] for compare in (torch.lt, torch.gt))
        alpha += ((likelihoods[0] < likelihoods[1]) & low[1] & high[0]).sum().item()
        beta += ((likelihoods[0] > likelihoods[1]) & low[0] & high[1]).sum().item()
        if (total := alpha + beta) > self.method.cap:
            return 1 + self.method.cap / 10 * alpha / total, 1 + self.method.cap / 10 * beta / total
        return alpha, beta


@dataclass(frozen=True)
class TTTLoop:
    """method: the hyperparameters. Every copy of a sample is turned by itself and goes through the network. State: all parameters."""

    method: TTT = TTT()
    version: int = 2

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        start = overlay(state, personal) | {name: personal[name] for name in HEAD}
        generator = task.generator("TTT", stream.client, stream.column, stream.draw)
        names = [*(name for name, _ in task.model.named_parameters() if name.startswith("extractor.")), *HEAD]
        scores, current = [], copied(start)
        with training(task.model, statistics=False), layer_draws(generator):
            for images in stream.images.split(1):
                current = current if self.method.online else copied(start)
                leaves = [current[name].requires_grad_() for name in names]
                optimizer = Optimizer(Local(lr=self.method.lr, weight_decay=0.0), leaves, [False] * len(leaves))
                image = task.inputs(images)[0]
                for _ in range(self.method.steps):
                    turns = torch.randint(TURNS, (self.method.copies,), generator=generator)
                    copies = image.repeat(self.method.copies, 1, 1, 1)
                    turned = torch.stack([copy.rot90(int(turn), (-2, -1)) for copy, turn in zip(copies, turns, strict=True)])
                    loss = functional.cross_entropy(rotation_logits(task, current, turned), turns.to(image.device))
                    optimizer.step(leaves, list(torch.autograd.grad(loss, leaves)))
                with torch.no_grad():
                    scores.append(functional_call(task.model, network_of(current), (image[None],)))
        return Output(torch.cat(scores))
