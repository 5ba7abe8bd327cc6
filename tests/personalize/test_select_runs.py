import torch

from fedlib.adapt.em import EM
from fedlib.core import NoAdapt
from fedlib.personalize.select import Selected
from tests.adapt.cases import case


def test_runs_the_chosen_candidate():
    task, state, stream = case()
    candidates = (NoAdapt(), EM(5, 4))
    for k, candidate in enumerate(candidates):
        personal = {"shared.choice": torch.tensor(k)}
        scores = Selected(candidates).run(task, state, personal, stream).scores
        assert torch.equal(scores, candidate.run(task, state, {}, stream).scores)
