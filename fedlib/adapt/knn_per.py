"""kNN-Per (Marfoq et al., ICML 2022) as FedTHE and BTFL run it: the global model blended with a local memory.

The memory holds features and labels of the client's training images. Class probabilities of the k nearest neighbours, weighted by
exp(-distance / (d scale)), are mixed with the global model's output. Nothing is carried over the stream.

Paper and code: FedTHE's code mixes raw *logits* with probabilities; ``blend`` does so too. For a mixture of probabilities pass softmax
outputs as ``logits``. There the weight is searched on the client's own *test* set: ``BestMix``, an oracle.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedlib.core import Output, State, Stream, Task
from fedlib.states import require


def neighbour_probabilities(query: Tensor, keys: Tensor, key_labels: Tensor, classes: int, *, k: int = 10, scale: float = 1.0) -> Tensor:
    """Weighted label histogram of the k nearest keys (L2 on raw features); query [N, d], keys [M, d], key_labels int64 [M] -> [N, classes].

    A client with fewer than k keys uses all of them. Which of several equally distant keys at the border of the k counts is left open.
    """
    if len(keys) == 0 or len(keys) != len(key_labels):
        raise ValueError(f"kNN-Per: needs one label per key and at least one key, got {len(keys)} keys and {len(key_labels)} labels")
    if k < 1 or scale <= 0:
        raise ValueError(f"kNN-Per: k must be 1 or more and scale positive, got k={k}, scale={scale}")
    # Without the matrix-product shortcut, whose cancellation shows in float32 for close neighbours.
    distances = torch.cdist(query, keys, compute_mode="donot_use_mm_for_euclid_dist")
    nearest = distances.topk(min(k, len(keys)), dim=1, largest=False)
    weights = torch.softmax(-nearest.values / (query.shape[1] * scale), dim=1)
    histogram = torch.zeros(len(query), classes, dtype=query.dtype, device=query.device)
    return histogram.scatter_add(1, key_labels[nearest.indices].long(), weights)


def blend(
    query: Tensor, keys: Tensor, key_labels: Tensor, logits: Tensor, *, k: int = 10, scale: float = 1.0, mix: float | Tensor
) -> Tensor:
    """mix * logits + (1 - mix) * neighbour probabilities, [N, C]; mix in [0, 1], one number or one per sample [N, 1]."""
    neighbours = neighbour_probabilities(query, keys, key_labels, logits.shape[1], k=k, scale=scale)
    return mix * logits + (1 - mix) * neighbours


@dataclass(frozen=True)
class KNNPer:
    """Blends with the memory, neighbour count, scale and weight that ``fedlib.personalize.knn_per.LocalMemory`` made.

    sides: also return what is blended, ``logits`` and ``neighbours`` [n, C], for weights that are chosen later.
    """

    sides: bool = False
    version: int = 1

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        require(personal, "KNNPer", "LocalMemory", "keys")
        features, logits = task.frozen(state, stream)
        n = int(personal["key_count"])
        keys, labels = personal["keys"][:n], personal["key_labels"][:n]
        options = {"k": int(personal["shared.k"]), "scale": personal["shared.scale"].item()}
        neighbours = neighbour_probabilities(features, keys, labels, logits.shape[1], **options)
        mix = personal["mix"]
        return Output(mix * logits + (1 - mix) * neighbours, {"logits": logits, "neighbours": neighbours} if self.sides else {})


@dataclass(frozen=True)
class BestMix:
    """FedTHE's published weight: of ``candidates`` values on [0, 1] the first with the best accuracy on the client's own test ``column``,
    kept for all its tests. For outputs of ``KNNPer(sides=True)``."""

    column: str = "original"
    candidates: int = 101

    def choose(self, output: Output, labels: Tensor) -> float:
        mixes = torch.linspace(0, 1, self.candidates, dtype=output.scores.dtype).tolist()
        correct = [int((self.scores(output, mix).argmax(1) == labels).sum()) for mix in mixes]
        return mixes[correct.index(max(correct))]

    def scores(self, output: Output, choice: float) -> Tensor:
        return choice * output.extras["logits"] + (1 - choice) * output.extras["neighbours"]
