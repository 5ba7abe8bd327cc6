import pytest
import torch
from torch import nn

from fedlib.models.cct import CCT4, Attention, Block, SequencePool


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize(("shape", "tokens"), [((3, 32, 32), 64), ((1, 28, 28), 49), ((1, 16, 16), 16), ((3, 30, 22), 48)])
def test_tokens(shape, tokens):
    model = CCT4(shape)
    assert model.extractor[8].table.shape == (1, tokens, 128)
    assert model(torch.zeros(1, *shape)).shape == (1, 10)


def test_attention_equals_torch():
    ours = Attention(8, 2, 0.0).double()
    theirs = nn.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.qkv.weight)
        theirs.in_proj_bias.zero_()
        theirs.out_proj.load_state_dict(ours.projection.state_dict())
    x = noise(3, 5, 8)
    torch.testing.assert_close(ours(x), theirs(x, x, x)[0], rtol=1e-9, atol=1e-9)


def test_second_residual_starts_from_the_normalised_tokens():
    block = Block(8, 2, 0.0, 0.0).double()
    for layer in (block.attention.projection, block.linear2):
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    x = 3 + 2 * noise(3, 5, 8)
    torch.testing.assert_close(block(x), torch.nn.functional.layer_norm(x, (8,)))


def test_sequence_pool_is_a_weighted_mean():
    pool = SequencePool(8).double()
    x = noise(3, 5, 8)
    weights = torch.softmax(torch.stack([x[:, t] @ pool.score.weight[0] for t in range(5)], 1), 1)
    torch.testing.assert_close(pool(x), sum(weights[:, t, None] * x[:, t] for t in range(5)))


def test_relu_features_rectifies_what_the_head_sees():
    x = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    plain, rectified = CCT4().eval(), CCT4(relu_features=True).eval()
    rectified.load_state_dict(plain.state_dict())
    assert plain.extractor(x).min() < 0
    assert torch.equal(rectified.extractor(x), plain.extractor(x).relu())


def test_dropout_and_stochastic_depth_act_in_training_only():
    model = CCT4()
    x = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))


def test_stochastic_depth_drops_whole_samples_and_rescales():
    block = Block(8, 2, 0.0, 0.25)
    torch.manual_seed(0)
    kept = block.kept(torch.ones(4000, 5, 8)).flatten(1)
    assert torch.equal(kept.min(1).values, kept.max(1).values)
    assert kept.unique().tolist() == pytest.approx([0, 4 / 3])
    assert abs((kept[:, 0] == 0).double().mean() - 0.25) < 0.03


def test_depth_rates_rise_linearly():
    rates = [layer.depth_rate for layer in CCT4().extractor if isinstance(layer, Block)]
    assert rates == pytest.approx([0, 0.1 / 3, 0.2 / 3, 0.1])


def test_initialisation():
    torch.manual_seed(0)
    model = CCT4()
    assert model.extractor[9].linear1.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert model.extractor[9].linear1.bias.abs().max() == 0
    assert model.extractor[8].table.std().item() == pytest.approx(0.2, rel=0.05)
    assert model.head.bias.abs().max() > 0  # the head keeps the framework's start
    assert model.head.weight.abs().max() > 0.06
