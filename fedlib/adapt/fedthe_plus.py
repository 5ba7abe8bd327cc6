"""FedTHE+ (FedTHE section 4, Algorithm 2 with test-time fine-tuning): FedTHE's ensemble weight, then a few MEMO steps with it fixed.

Per stream: the weights e of all samples with the untouched networks (``fedlib.adapt.fedthe``). Per sample, from the saved parameters:
``steps`` plain SGD steps on extractor and both heads that minimise the marginal entropy over AugMix views of the blended logits, e fixed;
predict the clean image with the same e; restore. The history averages features from before tuning. Paper and code agree on 16 views, 3
steps, 5e-4.
"""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from fedlib.adapt.fedthe import FedTHE
from fedlib.adapt.memo import marginal_entropy
from fedlib.adapt.tune import tune_each
from fedlib.core import Local, Output, State, Stream, Task
from fedlib.models.net import features_and_logits
from fedlib.states import part


@dataclass(frozen=True)
class FedTHEPlus:
    """ensemble: how the weight is found; views, steps, lr: the tuning."""

    ensemble: FedTHE = FedTHE()
    views: int = 16
    steps: int = 3
    lr: float = 5e-4
    version: int = 1

    def run(self, task: Task, state: State, personal: State, stream: Stream) -> Output:
        weight = self.ensemble.run(task, state, personal, stream).extras["weight"]
        start = state | {f"personal_{name}": tensor for name, tensor in part(personal, "model.").items() if name.startswith("head.")}

        def blend(state: State, inputs: Tensor, constants: State) -> Tensor:
            features, global_logits = features_and_logits(task.model, state, inputs)
            personal_logits = functional.linear(features, state["personal_head.weight"], state.get("personal_head.bias"))
            return personal_logits + constants["weight"] * (global_logits - personal_logits)

        scores = tune_each(
            task,
            start,
            stream,
            lambda state, views, constants: marginal_entropy(blend(state, views, constants)),
            lambda state, image, constants: blend(state, image[None], constants)[0],
            local=Local(lr=self.lr, weight_decay=0.0),
            steps=self.steps,
            views=self.views,
            constants={"weight": weight},
        )
        return Output(scores, {"weight": weight})
