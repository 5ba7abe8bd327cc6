"""Methods that change the network at test time against plain loops: MEMO, FedTHE+, ATP; and AugMix views alone.

The loops copy the module for every sample, step it with torch.optim and draw AugMix views one by one with PIL, as published.
"""

import copy
from dataclasses import replace

import torch
from torch import nn
from torch.func import functional_call, vmap

from fedlib.adapt import atp
from fedlib.adapt.fedthe_plus import FedTHEPlus
from fedlib.adapt.memo import MEMO
from fedlib.augment import augmix
from fedlib.augment.transform import Transform
from fedlib.core import Local, Schedule, Stream, Task
from fedlib.models import build, state_of
from fedlib.tools.seeding import generator
from tests.benchmarks.measure import compared, fastest
from tests.oracles import atp as atp_oracle
from tests.oracles import augmix as augmix_oracle
from tests.oracles.tuning import entropy_of_the_mean

MEAN, STD = (0.5,) * 3, (0.25,) * 3


def images(n: int) -> torch.Tensor:
    return torch.randint(0, 256, (n, 3, 32, 32), generator=generator(0, "images"), dtype=torch.uint8)


def task_of(network: str, chunk_size: int = 1) -> Task:
    schedule = Schedule(personal=Local(epochs=1, lr=0.01))
    return Task(build(network, (3, 32, 32), 10, 0), Transform(MEAN, STD, "sample"), 10, schedule, 0, chunk_size)


def rows() -> list[dict]:
    return [*augmix_rows(), *memo_rows(), *fedthe_plus_rows(), *atp_rows()]


def pil_views(pixels: torch.Tensor, n: int, draws: torch.Generator) -> torch.Tensor:
    """``n`` AugMix views of each image of ``pixels``, one by one."""
    copies = pixels.repeat_interleave(n, dim=0).numpy()
    return torch.from_numpy(augmix_oracle.views(copies, augmix.OPS, augmix.draw(draws, len(pixels), n), MEAN, STD))


def augmix_rows() -> list[dict]:
    pixels, n = images(8), 32
    variants = {
        "PIL, view by view": lambda: pil_views(pixels, n, generator(0, "views")),
        "batched tensors": lambda: augmix.views(pixels, n, generator(0, "views"), mean=MEAN, std=STD),
    }
    return compared("AugMix views", fastest(variants), per="1,000 views", works=8 * n / 1000)


def loop(module: nn.Module, pixels: torch.Tensor, logits_of, optimizer_of, *, steps: int, views: int) -> None:
    """A copy of ``module`` for every image: ``steps`` on fresh views, then the prediction."""
    for i, image in enumerate(pixels):
        tuned, draws = copy.deepcopy(module).eval(), generator(0, "views", i)
        optimizer = optimizer_of(tuned.parameters())
        for _ in range(steps):
            optimizer.zero_grad()
            entropy_of_the_mean(logits_of(tuned, pil_views(image[None], views, draws)).softmax(1)).backward()
            optimizer.step()
        with torch.no_grad():
            logits_of(tuned, Transform(MEAN, STD).normalise(image[None]))


def memo_rows(n: int = 4) -> list[dict]:
    task, pixels, method = task_of("cnn"), images(n), MEMO(base="global")
    sgd = lambda parameters: torch.optim.SGD(parameters, 0.01, weight_decay=5e-4)  # noqa: E731
    variants = {"loop, PIL": lambda: loop(task.model, pixels, lambda m, x: m(x), sgd, steps=method.steps, views=method.views)}
    variants |= lanes(task, method, {}, pixels)
    return compared("MEMO, CNN, 32 views, 2 steps", fastest(variants, repeats=3), per="sample", works=n)


def fedthe_plus_rows(n: int = 4) -> list[dict]:
    task, pixels, method = task_of("cnn"), images(n), FedTHEPlus()
    heads = nn.ModuleDict({"net": task.model, "personal": nn.Linear(64, 10, bias=False)})
    descriptor = torch.rand(64, generator=generator(0, "descriptor"))
    personal = {"model.head.weight": heads["personal"].weight.detach(), "descriptor": descriptor, "shared.descriptor": 1 - descriptor}

    def blended(module: nn.ModuleDict, inputs: torch.Tensor) -> torch.Tensor:
        features = module["net"].extractor(inputs)
        return 0.5 * (module["net"].head(features) + module["personal"](features))

    sgd = lambda parameters: torch.optim.SGD(parameters, method.lr)  # noqa: E731
    variants = {"loop, PIL": lambda: loop(heads, pixels, blended, sgd, steps=method.steps, views=method.views)}
    variants |= lanes(task, method, personal, pixels)
    return compared("FedTHE+, CNN, 16 views, 3 steps", fastest(variants, repeats=3), per="sample", works=n)


def lanes(task: Task, method, personal: dict, pixels: torch.Tensor) -> dict:
    """The kit's runs with one and with four samples stacked."""
    state, tasks = state_of(task.model), {size: replace(task, chunk_size=size) for size in (1, 4)}
    return {f"kit, {s} at once": lambda t=t: method.run(t, state, personal, Stream(pixels, "original", 0)) for s, t in tasks.items()}


def atp_rows(clients: int = 10, n: int = 40, batch: int = 20) -> list[dict]:
    task = task_of("shallow_cnn")
    pixels, state = images(clients * n).unflatten(0, (clients, n)), state_of(task.model)
    rates = 0.01 * torch.rand(len(atp.modules(task.model)), generator=generator(0, "rates"))
    method, inputs = atp.ATP(rates=tuple(rates.tolist()), batch_size=batch), task.inputs(pixels)

    def plain() -> None:
        for x in inputs.flatten(0, 1).split(batch):
            moved, _ = atp_oracle.moved(task.model, rates, x)
            with torch.no_grad():
                moved(x)

    def one(x: torch.Tensor) -> torch.Tensor:
        moved = atp.adapted(task.model, rates, atp.directions(task.model, x, state), state)
        return functional_call(task.model, state | moved, (x,))

    def stacked() -> None:
        task.model.eval()
        for x in inputs.split(batch, dim=1):
            vmap(one)(x)

    variants = {
        "loop, copied modules": plain,
        "kit, client by client": lambda: [method.run(task, state, {}, Stream(p, "original", k)) for k, p in enumerate(pixels)],
        "all clients stacked": stacked,
    }
    return compared("ATP-batch, Shallow CNN, 10 clients", fastest(variants, repeats=3), per="sample", works=clients * n)
