"""The Transformer: computing the last block at one position only is the plain computation."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from unstuck.models.transformer import Transformer, TransformerModule, sinusoidal
from unstuck.training.seeds import stream

VARIANTS = [
    {},
    {"layers": 1, "heads": 1},
    {"layers": 3, "heads": 2, "causal": True},
    {"layer_norm": True},
    {"layer_norm": True, "causal": True, "activation": "relu"},
    {"mlp": False},
    {"skip": False},
    {"init": "xavier", "positions": "none"},
    {"qk": 8, "heads": 3},
]


def plain(model: TransformerModule, inputs: torch.Tensor) -> torch.Tensor:
    """The same function written without tricks: every position of every block, then the last one is read."""
    c = model.c
    x = model.embed(inputs)
    T = x.shape[1]
    if c.positions == "sinusoidal":
        x = x + sinusoidal(T, c.width)
    act = {"gelu": F.gelu, "relu": F.relu}[c.activation]
    for block in model.blocks:
        a, y = block.attention, block.norm1(x)
        heads = []
        for h in range(c.heads):
            rows = slice(h * c.qk, (h + 1) * c.qk)
            q, k, v = (y @ m.weight[rows].T + m.bias[rows] for m in (a.query, a.key, a.value))
            scores = q @ k.transpose(1, 2) / math.sqrt(c.qk)
            if c.causal:
                scores = scores + torch.full((T, T), -math.inf).triu(1)
            heads.append(scores.softmax(-1) @ v)
        y = torch.cat(heads, -1) @ a.out.weight.T + a.out.bias
        x = x + y if c.skip else y
        if c.mlp:
            y = act(block.norm2(x) @ block.up.weight.T + block.up.bias) @ block.down.weight.T + block.down.bias
            x = x + y if c.skip else y
    x = model.norm(x)
    return (x.mean(1) if c.read == "mean" else x[:, -1]) @ model.read_out.weight.T + model.read_out.bias


@pytest.mark.parametrize("variant", [*VARIANTS, {"read": "mean"}], ids=str)
def test_output_and_gradients_are_those_of_the_plain_computation(variant):
    model = TransformerModule(Transformer(width=32, **{"qk": 16, **variant}), 5, 4, stream(0, "init"))
    inputs = torch.randn(6, 9, 5, generator=stream(0, "data"))
    ours, theirs = model(inputs), plain(model, inputs)
    assert torch.allclose(ours, theirs, atol=1e-5)
    names = [n for n, _ in model.named_parameters()]
    ours_grad = torch.autograd.grad(ours.square().sum(), list(model.parameters()), allow_unused=True)
    their_grad = torch.autograd.grad(theirs.square().sum(), list(model.parameters()), allow_unused=True)
    for name, a, b in zip(names, ours_grad, their_grad, strict=True):
        a, b = (torch.zeros(1) if g is None else g for g in (a, b))
        assert torch.allclose(a, b.expand_as(a) if a.numel() > 1 else b, atol=2e-4), name  # an unused key bias has none


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_attention_from_the_last_position_is_the_last_row_of_the_map(variant):
    model = TransformerModule(Transformer(width=32, **{"qk": 16, **variant}), 5, 4, stream(0, "init"))
    inputs = torch.randn(3, 7, 5, generator=stream(0, "data"))
    output, rows = model.observe(inputs)
    assert torch.allclose(output, model(inputs), atol=1e-5)
    for row, full in zip(rows, model.attention(inputs), strict=True):
        assert torch.allclose(row, full[:, :, -1], atol=1e-5)
        assert torch.allclose(row.sum(-1), torch.ones(()), atol=1e-5)


def test_token_embedding_is_a_linear_map_of_one_hots():
    model = TransformerModule(Transformer(width=16, heads=2, qk=8), 11, 11, stream(0, "init"), discrete=True)
    tokens = torch.randint(11, (4, 6), generator=stream(0, "data"))
    one_hot = F.one_hot(tokens, 11).float() @ model.embed.weight + model.embed.bias
    assert torch.allclose(model.embed(tokens), one_hot, atol=1e-6)


def test_default_start_has_the_spread_of_pytorchs_own():
    ours = TransformerModule(Transformer(), 17, 16, stream(0, "init"))
    theirs = nn.Linear(256, 1024)
    assert ours.blocks[0].up.weight.std().item() == pytest.approx(theirs.weight.std().item(), rel=0.02)
    assert ours.blocks[0].up.weight.abs().max().item() <= 1 / 16


def test_the_paper_s_size_has_the_parameters_counted_by_hand():
    model = TransformerModule(Transformer(), 17, 16, stream(0, "init"))
    block = 4 * (256 * 256 + 256) + 256 * 1024 + 1024 + 1024 * 256 + 256
    assert sum(p.numel() for p in model.parameters()) == 2 * block + 17 * 256 + 256 + 256 * 16 + 16
