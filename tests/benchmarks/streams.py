"""Whole-stream solvers against loops over samples, features and logits given: FedTHE, BTFL, T3A, EM, BBSE.

The long loops run on fewer samples; all times are for 1,000. "Published form" is the published workers' way through a stream
(``fedlib.adapt.reference``), with a linear network in front that costs next to nothing: FedTHE's three passes per batch and its terms anew
in each step, BTFL's density for every sample.
"""

from dataclasses import replace

import torch
from torch import nn

from fedlib.adapt import bbse, btfl, em, fedthe, t3a
from fedlib.adapt.reference import BTFLLoop, FedTHELoop
from fedlib.augment.transform import Transform
from fedlib.core import Schedule, Stream, Task
from fedlib.models import Net, state_of
from fedlib.papers.btfl.recipes import CODE
from tests.benchmarks.measure import compared, fastest
from tests.oracles import bbse as bbse_oracle
from tests.oracles import btfl as btfl_oracle
from tests.oracles import em as em_oracle
from tests.oracles import fedthe as fedthe_oracle
from tests.oracles import t3a as t3a_oracle

FEATURES, CLASSES = 64, 10
ENTROPIES = {"personal_entropy": 0.8, "global_entropy": 1.5}


def draws(n: int, dtype: torch.dtype = torch.float32, classes: int = CLASSES) -> tuple[torch.Tensor, ...]:
    """Features [n, 64] >= 0, global and personal logits [n, classes], and two descriptors [64]."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((n, FEATURES), (n, classes), (n, classes), (FEATURES,), (FEATURES,))
    features, *rest = (torch.randn(*shape, generator=generator, dtype=dtype) for shape in shapes)
    return features.relu(), *rest


def tables(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """BTFL's code frequencies of a client and of the others, [2, 64]."""
    return tuple(btfl.frequency_table(scale * draws(300, dtype)[0]) for scale in (1.0, 1.2))


def published(adapter, n: int):
    """One run of a published-style loop over ``n`` samples, behind a network that only flattens the image."""
    task = Task(Net(nn.Flatten(), nn.Linear(FEATURES, CLASSES)), Transform((0.0,), (1.0,)), CLASSES, Schedule(), 0)
    images = torch.randint(0, 256, (n, 1, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    own, others = tables()
    personal = {"model.head.weight": draws(CLASSES)[0], "descriptor": draws(1)[3], "shared.descriptor": draws(1)[4]}
    personal |= {"table": own, "others_table": others, "entropies": torch.tensor(list(ENTROPIES.values()))}
    state = state_of(task.model)
    return lambda: adapter.run(task, state, personal, Stream(images, "original", 0))


def rows() -> list[dict]:
    return [*fedthe_rows(), *btfl_rows(), *t3a_rows(), *batch_rows()]


def fedthe_rows() -> list[dict]:
    short, long = draws(32), draws(10_000)
    one = {"history_rule": "inclusive", "batch_size": 1}
    variants = {
        "loop over samples": lambda: fedthe_oracle.ensemble(*short, **one),
        "published form, batches of 32": published(FedTHELoop(), 320),
        "whole stream": lambda: fedthe.ensemble(*long),
    }
    return compared("FedTHE", fastest(variants), per="1,000 samples", works=dict(zip(variants, (0.032, 0.32, 10), strict=True)))


def btfl_rows() -> list[dict]:
    result = []
    for batch_size, n in ((1, 100), (32, 320)):
        short, long = (draws(n)[:3] for n in (n, 10_000))
        arrays, own = [t.numpy() for t in (*short, *tables())], tables()
        variants = {
            "published form": published(BTFLLoop(replace(CODE, batch_size=batch_size)), n),
            "oracle loop": lambda a=arrays, b=batch_size: btfl_oracle.interpolate(*a, batch_size=b, **ENTROPIES),
            "whole stream": lambda x=long, t=own, b=batch_size: btfl.interpolate(*x, *t, batch_size=b, **ENTROPIES),
        }
        works = dict(zip(variants, (n / 1000, n / 1000, 10), strict=True))
        result += compared(f"BTFL, batch {batch_size}", fastest(variants), per="1,000 samples", works=works)
    return result


def t3a_rows() -> list[dict]:
    features, weight = draws(300)[0], draws(CLASSES)[0]
    variants = {
        "loop over samples": lambda: t3a_oracle.predict(features.numpy(), weight.numpy(), filter_k=50),
        "whole stream": lambda: t3a.predict(features, weight, filter_k=50),
    }
    return compared("T3A, one at a time", fastest(variants, repeats=3), per="1,000 samples", works=0.3)


def batch_rows() -> list[dict]:
    logits, counts = draws(200)[1], draws(CLASSES)[0][:, :CLASSES] + 5 * torch.eye(CLASSES)
    batches, probabilities = logits.split(20), logits.softmax(1).split(20)
    em_variants = {
        "loop over samples": lambda: [em_oracle.adjust(p.numpy(), 2) for p in probabilities],
        "batch at once": lambda: [em.adjust(p, iterations=2) for p in probabilities],
    }
    bbse_variants = {
        "loop over samples": lambda: [bbse_oracle.adjust(z.numpy(), counts.numpy()) for z in batches],
        "batch at once": lambda: [bbse.adjust(z, counts) for z in batches],
    }
    cases = {"EM, batch 20": em_variants, "BBSE, batch 20": bbse_variants}
    return [row for case, variants in cases.items() for row in compared(case, fastest(variants), per="1,000 samples", works=0.2)]
