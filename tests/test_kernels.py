"""Attention of every kind of kernel, against a computation without one."""

import logging
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from unstuck import Watch
from unstuck.attach import attention_maps, weights
from unstuck.attach.capture import each_layer
from unstuck.attach.weights import not_tokens_of

TOKENS = torch.randint(16, (3, 12), generator=torch.Generator().manual_seed(1))


class Layer(nn.Module):
    """Queries, keys and values of two heads; `attend` does the rest."""

    def __init__(self, attend, tokens=16):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.qkv, self.attend = nn.Embedding(tokens, 16), nn.Linear(16, 48), attend

    def heads(self, tokens):
        return self.qkv(self.embed(tokens)).unflatten(2, (3, 2, 8)).permute(2, 0, 3, 1, 4)

    def forward(self, tokens):
        return self.attend(*self.heads(tokens))


def scores_of(model, tokens):
    q, k, _ = model.heads(tokens)
    return q @ k.mT / math.sqrt(8)


def places(T):
    return torch.arange(T)[:, None] - torch.arange(T)


def causal(scores):
    return scores.masked_fill(places(scores.shape[-1]) < 0, -math.inf).softmax(-1)


@pytest.mark.parametrize("compiled", [False, True])
def test_flex_attention(compiled):
    """With a bias for each head, a sliding window and shared keys."""
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    function = torch.compile(flex.flex_attention, backend="eager") if compiled else flex.flex_attention

    def attend(q, k, v):
        window = flex.create_block_mask(
            lambda b, h, i, j: (i >= j) & (i - j < 5), None, None, len(q[0, 0]), len(k[0, 0]), device="cpu"
        )
        k, v = k[:, :1], v[:, :1]
        return function(q, k, v, lambda s, b, h, i, j: s - 0.1 * (h + 1) * (i - j), window, enable_gqa=True)

    model = Layer(attend).requires_grad_(False)
    (found,) = attention_maps(model, TOKENS)
    q, k, v = model.heads(TOKENS)
    back = places(12)
    scores = q @ k[:, :1].mT / math.sqrt(8) - 0.1 * torch.tensor([1.0, 2.0])[:, None, None] * back
    expected = scores.masked_fill((back < 0) | (back >= 5), -math.inf).softmax(-1)
    assert torch.allclose(found, expected, atol=1e-5)
    assert torch.allclose(found @ v[:, :1], model(TOKENS), atol=1e-5)


@pytest.mark.parametrize("kernel", ["softmax", "sdpa"])
@pytest.mark.parametrize("order", ["sequences first", "heads first"])
def test_sequences_and_heads_on_one_axis(order, kernel):
    def merged(x):
        return (x if order == "sequences first" else x.transpose(0, 1)).flatten(0, 1)

    def attend(q, k, v):
        if kernel == "sdpa":
            return F.scaled_dot_product_attention(merged(q), merged(k), merged(v), is_causal=True)
        scores = torch.bmm(merged(q), merged(k).mT) / math.sqrt(8)
        return torch.bmm(F.dropout(scores.masked_fill(places(q.shape[2]) < 0, -1e9).softmax(-1), 0.1), merged(v))

    model = Layer(attend)
    (found,) = attention_maps(model, TOKENS)
    assert torch.allclose(found, causal(scores_of(model, TOKENS)), atol=1e-5)


@pytest.mark.parametrize("known", [True, False])
def test_heads_that_the_sequences_do_not_show(known, caplog):
    """The model works on two thirds of the sequences at a time, so that their number is no part of the axis."""

    def attend(q, k, v):
        return F.scaled_dot_product_attention(*(x[:2].flatten(0, 1) for x in (q, k, v)), is_causal=True)

    model = Layer(attend)
    model.config = {"num_heads": 2} if known else {}
    (found,) = attention_maps(model, TOKENS[:3])
    expected = causal(scores_of(model, TOKENS[:2]))
    assert torch.allclose(found, expected if known else expected.flatten(0, 1)[:, None], atol=1e-5)
    attention_maps(model, TOKENS[:3])
    assert len([r for r in caplog.records if r.levelno == logging.WARNING]) == (0 if known else 1)


def rotated(x):
    """Rotary positions."""
    angle = torch.arange(x.shape[-2])[:, None] * 10.0 ** -torch.arange(4.0)
    a, b = x[..., :4], x[..., 4:]
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


def test_rotary_positions_and_a_window():
    hidden = (places(12) < 0) | (places(12) >= 4)
    model = Layer(lambda q, k, v: F.scaled_dot_product_attention(rotated(q), rotated(k), v, attn_mask=~hidden))
    (found,) = attention_maps(model, TOKENS)
    q, k, _ = model.heads(TOKENS)
    expected = (rotated(q) @ rotated(k).mT / math.sqrt(8)).masked_fill(hidden, -math.inf).softmax(-1)
    assert torch.allclose(found, expected, atol=1e-5)


# -- columns that are no tokens


def with_memory(many, at, kernel, *, see_ahead=False):
    """Attention to `many` more keys than there are tokens, before or behind them; zero keys if there is one."""
    memory = (
        torch.randn(1, 2, many, 8, generator=torch.Generator().manual_seed(2)) if many > 1 else torch.zeros(1, 2, 1, 8)
    )

    def attend(q, k, v):
        extra = memory.expand(len(q), -1, -1, -1)
        k, v = (torch.cat([extra, x] if at == "before" else [x, extra], 2) for x in (k, v))
        seen = (places(q.shape[2]) >= 0) | see_ahead
        pad = (many, 0) if at == "before" else (0, many)
        seen = F.pad(seen, pad, value=True)
        if kernel == "sdpa":
            return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        scores = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(8)
        weights = scores.masked_fill(~seen, torch.finfo(scores.dtype).min).softmax(-1, dtype=torch.float32)
        return torch.einsum("bhij,bhjd->bhid", weights.type(v.dtype), v)

    return attend


@pytest.mark.parametrize("kernel", ["sdpa", "einsum"])
@pytest.mark.parametrize("at", ["before", "behind"])
@pytest.mark.parametrize(("many", "see_ahead"), [(1, False), (3, False), (1, True)])
def test_columns_that_are_no_tokens_are_left_out(kernel, at, many, see_ahead):
    """Memory keys and sinks: what is left are the weights of tokens, a row of which sums to less than 1."""
    model, found = Layer(with_memory(many, at, kernel, see_ahead=see_ahead)), []

    def take(layer, blocks):
        found.extend(blocks)

    each_layer(model, TOKENS, take)
    (block,) = found
    assert (block.before, block.after) == ((many, 0) if at == "before" else (0, many))
    assert block.is_square
    own = block.of_tokens
    plain = scores_of(model, TOKENS).softmax(-1) if see_ahead else causal(scores_of(model, TOKENS))
    assert torch.allclose(own / own.sum(-1, keepdim=True), plain, atol=1e-5)


@pytest.mark.parametrize("at", ["before", "behind"])
def test_a_perfect_induction_head_scores_the_same_with_a_sink(at):
    half = 24
    perfect = torch.zeros(1, 1, 48, 48)
    perfect[..., :half, 0] = 0.9
    perfect[..., torch.arange(half, 48), torch.arange(1, half + 1)] = 0.9
    weights = F.pad(perfect, (1, 0) if at == "before" else (0, 1), value=0.1)
    watch = Watch(nn.Linear(1, 1), vocabulary=64, attention=lambda model, x: [weights.expand(len(x), -1, -1, -1)])
    assert watch.tried["induction_0_0"] == pytest.approx(0.9)


def test_rows_of_another_sequence_are_no_memory():
    cross = torch.rand(2, 2, 6, 9).softmax(-1)
    assert not_tokens_of(cross) == (0, 0)
    assert not_tokens_of(torch.rand(2, 2, 1, 9).softmax(-1)) == (0, 0)  # from the last row alone


# -- rows in blocks


@pytest.mark.parametrize("many", [1, 3, 12])
def test_rows_in_blocks_give_the_same_measures(monkeypatch, many):
    torch.manual_seed(3)
    model = Layer(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    targets = {"attention": TOKENS[:, :1] == TOKENS, "copying": (places(12) == 2).expand(3, -1, -1)}
    whole = Watch(model, TOKENS, targets=targets, vocabulary=16, length=12)
    maps = attention_maps(model, TOKENS)
    monkeypatch.setattr(weights, "MOST", many * 3 * 2 * 12)
    sizes = []
    each_layer(model, TOKENS, lambda layer, blocks: sizes.extend(block.weights.shape[2] for block in blocks))
    assert sizes == [many] * (12 // many)
    parts = Watch(model, TOKENS, targets=targets, vocabulary=16, length=12)
    assert parts.tried.keys() == whole.tried.keys()
    assert parts.tried == pytest.approx(whole.tried, abs=1e-6)
    assert torch.allclose(attention_maps(model, TOKENS)[0], maps[0], atol=1e-6)


@pytest.mark.slow
def test_a_context_of_8192_takes_less_than_500_megabytes():
    import subprocess
    import sys

    code = """
import resource, torch
from torch import nn
from torch.nn import functional as F
from unstuck import Watch
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.qkv, self.out = nn.Embedding(32, 96), nn.Linear(96, 288), nn.Linear(96, 32)
    def forward(self, tokens):
        q, k, v = self.qkv(self.embed(tokens)).unflatten(2, (3, 12, 8)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
model = Model()
Watch(model, torch.randint(32, (1, 64)), vocabulary=32)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
Watch(model, torch.randint(32, (1, 8192)), vocabulary=32)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 500


# -- Hugging Face


def llama(**options):
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 16, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.MistralConfig(
        **sizes, intermediate_size=32, num_key_value_heads=2, max_position_embeddings=64, sliding_window=5, **options
    )
    torch.manual_seed(0)
    return transformers.MistralForCausalLM(config)


def opaque(module, query, key, value, mask, scaling, **options):
    """A kernel that calls nothing which could be seen."""
    out = query.new_zeros(query.shape[0], query.shape[2], query.shape[1], query.shape[3])
    return out, None


@pytest.mark.parametrize("kernel", ["sdpa", "eager", "flex_attention", "flash_like"])
def test_any_kernel_of_hugging_face_with_grouped_queries_and_a_window(kernel):
    transformers = pytest.importorskip("transformers")
    if kernel == "flash_like":
        transformers.AttentionInterface.register(kernel, opaque)
    model = llama(attn_implementation="sdpa" if kernel == "flash_like" else kernel).eval()
    if kernel == "flash_like":
        model.config._attn_implementation = kernel
    found = attention_maps(model, {"input_ids": TOKENS})
    assert model.config._attn_implementation == kernel
    plain = llama(attn_implementation="eager").eval()
    plain.load_state_dict(model.state_dict())
    expected = plain(TOKENS, output_attentions=True).attentions
    assert expected[0][0, 0, 11, :7].max() == 0  # the window
    assert len(found) == 2
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, atol=1e-5)
