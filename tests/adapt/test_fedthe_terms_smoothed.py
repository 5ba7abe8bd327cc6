import pytest
import torch

from fedlib.adapt.fedthe import FedTHE
from fedlib.adapt.fedthe_terms import SmoothedFeatures
from fedlib.models import state_of
from fedlib.personalize.head import PersonalHead
from fedlib.states import slice_of
from tests import tiny


@pytest.mark.parametrize("compounded", [False, True])
def test_scores_are_fedthes_and_features_follow_the_recurrence(compounded):
    task, clients = tiny.task(), tiny.clients()
    state = state_of(tiny.net())
    head = PersonalHead()
    personal = slice_of(head.fit(task, [state] * 3, clients, head.init(task, clients), 1), 0)
    stream = clients[0].stream("original")
    method = FedTHE(alpha=0.2, beta=0.4, steps=3, history_rule="inclusive", compounded=compounded)
    output = SmoothedFeatures(method).run(task, state, personal, stream)
    torch.testing.assert_close(output.scores, method.run(task, state, personal, stream).scores, rtol=0, atol=0)
    z = task.predict(state, stream.images)[0]
    share = 0.064 if compounded else 0.4  # after three steps
    past = z[0]
    for i, feature in enumerate(z):
        past = 0.2 * feature + 0.8 * past if i else feature
        torch.testing.assert_close(output.extras["features"][i], feature, rtol=0, atol=1e-12)
        torch.testing.assert_close(output.extras["smoothed"][i], share * feature + (1 - share) * past, rtol=0, atol=1e-9)
