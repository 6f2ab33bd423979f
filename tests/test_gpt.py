"""The GPT: shapes, causality, rotary positions, and the same numbers as Hugging Face's GPT-2 with equal weights."""

import math

import pytest
import torch
from torch.nn import functional as F

from refusals import invalid
from unstuck.models.gpt import GPT, rotated
from unstuck.models.transformer import Transformer
from unstuck.tasks.recall import Recall
from unstuck.tasks.single_location import SingleLocation
from unstuck.tasks.text import Text
from unstuck.training.seeds import stream

TASK = Text(context=32, vocabulary=256)


def built(task=TASK, **settings):
    module = GPT(**{"width": 16, "heads": 2, **settings}).build(task, stream(0, "init"))
    with torch.no_grad():  # away from the small initial weights, where all attention is uniform
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=stream(1, str(parameter.shape))))
    return module


def tokens(n=3, length=32, vocabulary=256):
    return torch.randint(vocabulary, (n, length), generator=stream(0, "tokens"))


SETTINGS = [
    {"layer_norm": layer_norm, "mlp": mlp, "positions": positions, "tied": tied}
    for layer_norm, mlp, positions, tied in [
        (True, True, "learned", True),
        (True, False, "rotary", True),
        (False, True, "none", False),
        (False, False, "learned", False),
    ]
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_shapes_and_causality(settings):
    module, x = built(**settings), tokens()
    logits, maps = module.observe(x, whole=True)
    assert logits.shape == (3, 32, 256)
    torch.testing.assert_close(module(x), logits)
    assert [tuple(m.shape) for m in maps] == [(3, 2, 32, 32)] * 2
    for weights in maps:
        torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, 32))
        assert weights.triu(1).max() == 0
    changed = x.clone()
    changed[:, 20] = (changed[:, 20] + 1) % 256
    before, after = module(x), module(changed)
    torch.testing.assert_close(before[:, :20], after[:, :20])
    assert (before[:, 20:] - after[:, 20:]).abs().amax((0, 2)).min() > 1e-4
    assert [m.shape for m in module.observe(x)[1]] == [(3, 2, 32)] * 2


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_weights_shown_are_those_used(settings):
    """Attention computed from the shown weights gives the block's own output."""
    module, x = built(**settings), tokens()
    hidden = module._start(x)
    for block, weights in zip(module.blocks, module.attention(x), strict=True):
        inner = block.norm1(hidden)
        _, _, v = block.attention._heads(inner)
        expected = block.attention.out((weights @ v).transpose(1, 2).flatten(2))
        torch.testing.assert_close(block.attention(inner), expected, rtol=1e-4, atol=1e-5)
        hidden = block(hidden)


def test_the_same_numbers_as_hugging_faces_gpt2():
    transformers = pytest.importorskip("transformers")
    module, x = built(mlp=True), tokens()
    config = transformers.GPT2Config(
        vocab_size=256, n_positions=32, n_embd=16, n_layer=2, n_head=2, activation_function="gelu",
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    theirs = transformers.GPT2LMHeadModel(config).eval()
    state = {name: torch.zeros_like(value) for name, value in theirs.state_dict().items()}
    ours = module.state_dict()
    state["transformer.wte.weight"] = state["lm_head.weight"] = ours["embed"]
    state["transformer.wpe.weight"] = ours["positions"]
    for i in range(2):
        maps = {"attn.c_attn": "attention.qkv", "attn.c_proj": "attention.out", "mlp.c_fc": "up", "mlp.c_proj": "down"}
        for name, mine in maps.items():
            state[f"transformer.h.{i}.{name}.weight"] = ours[f"layers.{i}.{mine}.weight"].T
        for name, mine in (("ln_1", "norm1"), ("ln_2", "norm2")):
            for part in ("weight", "bias"):
                state[f"transformer.h.{i}.{name}.{part}"] = ours[f"layers.{i}.{mine}.{part}"]
    state |= {f"transformer.ln_f.{part}": ours[f"norm.{part}"] for part in ("weight", "bias")}
    theirs.load_state_dict(state)
    with torch.no_grad():
        torch.testing.assert_close(module(x), theirs(x).logits, rtol=1e-4, atol=1e-4)


def test_rotary_products_depend_on_distance_only():
    q, k = torch.randn(2, 1, 1, 1, 8, generator=stream(0, "q")).expand(2, 1, 1, 12, 8)
    products = (rotated(q) @ rotated(k).mT)[0, 0]
    for distance in (0, 1, 5):
        along = products.diagonal(-distance)
        torch.testing.assert_close(along, along[:1].expand_as(along), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(rotated(q).norm(dim=-1), q.norm(dim=-1))
    assert (products[0, 0] - products[1, 0]).abs() > 1e-3


def test_initial_weights_and_their_scale():
    module = GPT(width=64, heads=2, layers=8).build(Text(vocabulary=512), stream(0, "init"))
    assert module.embed.std().item() == pytest.approx(0.02, rel=0.05)
    block = module.blocks[3]
    assert block.attention.qkv.weight.std().item() == pytest.approx(0.02, rel=0.05)
    for weight in (block.attention.out.weight, block.down.weight):
        assert weight.std().item() == pytest.approx(0.02 / math.sqrt(16), rel=0.05)
    logits = module(tokens(8, 64, 512))
    losses = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens(8, 64, 512)[:, 1:].flatten())
    assert losses.item() == pytest.approx(math.log(512), rel=0.02)


def test_a_task_that_is_read_at_the_end():
    task = Recall(tokens=16, pairs=4)
    module = built(task)
    assert module(tokens(3, task.T, 16)).shape == (3, 16)
    assert module.observe(tokens(3, task.T, 16), whole=True)[0].shape == (3, 16)


def test_what_does_not_go_together():
    with invalid("model.name"):
        GPT().build(SingleLocation(), stream(0, "init"))
    with invalid("model.tied"):
        GPT().build(Recall(joined=True), stream(0, "init"))
    with invalid("model.name", "transformer"):
        Transformer().build(TASK, stream(0, "init"))
