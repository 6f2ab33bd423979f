"""The models of paper 2 from outside: their start, the full model against PyTorch's own layers, dropout, windows."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from unstuck.config import load_spec
from unstuck.errors import InvalidCombination
from unstuck.models.minimal import Minimal, MinimalModule
from unstuck.models.post_norm import PostNorm, PostNormModule
from unstuck.tasks.markov import Markov
from unstuck.tasks.markov_regression import MarkovRegression
from unstuck.training.loop import Run
from unstuck.training.seeds import stream

TASKS = [Markov(d=5, sequences=0, scored=4), MarkovRegression(d=5, scored=4)]
SMALL = PostNorm(heads=2, width=12, mlp=8)


def inputs_of(task, n=5):
    tokens = task.sample(n, stream(0, "data"), task.world(stream(0, "world"))).inputs
    return tokens.double() if tokens.is_floating_point() else tokens


def sharpened(model):
    """In double precision and with larger weights, so that attention is far from uniform."""
    model = model.double().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name:
                p.add_(0.3 * torch.randn(p.shape, generator=stream(1, name)))
            else:
                p.mul_(3).add_(0.1 * torch.randn(p.shape, generator=stream(1, name)))
    return model


def gradients(outputs, parameters):
    weight = torch.randn(outputs.shape, generator=stream(2, "weight")).double()
    return torch.autograd.grad((outputs * weight).sum(), list(parameters))


# -- the start


def test_the_full_model_starts_as_published():
    task = Markov(span=4)
    model = PostNorm().build(task, stream(0, "init"))
    assert torch.allclose(model.encoder @ model.encoder.T, torch.eye(50), atol=1e-5)
    assert torch.allclose(model.decoder.T @ model.decoder, torch.eye(50), atol=1e-5)
    (block,) = model.layers
    square, perceptron = math.sqrt(6 / 510), math.sqrt(6 / (255 + 64))
    bounds = {model.positions: math.sqrt(6 / (50 + 255)), block.up.weight: perceptron, block.down.weight: perceptron}
    bounds |= {block.qkv: square, block.out: square}
    for weight, bound in bounds.items():
        assert weight.abs().max().item() == pytest.approx(bound, rel=0.01)
        assert weight.abs().max() <= bound
        assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02)
        assert abs(weight.mean().item()) < 0.01 * bound + 5 * bound / math.sqrt(3 * weight.numel())
    assert model.positions.shape == (task.T, 255)
    assert not block.up.bias.any()
    assert not block.down.bias.any()
    square_maps, tables, others = 4 * 255**2, (50 + task.T + 50) * 255, 2 * 255 * 64 + 64 + 255 + 4 * 255
    assert sum(p.numel() for p in model.parameters()) == square_maps + tables + others  # so no bias anywhere else


def test_the_orthogonal_start_is_uniform_over_orthogonal_matrices():
    """Haar: the mean trace is 0 with variance 1, where the raw Q of a QR decomposition has a negative one."""
    task = Markov(d=6, sequences=0)
    kind, rng = PostNorm(heads=1, width=6, mlp=1), stream(0, "init")
    traces = torch.stack([kind.build(task, rng).encoder.trace() for _ in range(1500)])
    assert abs(traces.mean().item()) < 4 / math.sqrt(1500)
    assert traces.var().item() == pytest.approx(1, rel=0.15)


def test_the_start_comes_from_the_generator_handed_over():
    builds = []
    for seed in (0, 0, 1):
        torch.manual_seed(len(builds))
        builds.append(SMALL.build(TASKS[0], stream(seed, "init")).state_dict())
    assert all(torch.equal(builds[0][k], builds[1][k]) for k in builds[0])
    assert not torch.equal(builds[0]["encoder"], builds[2]["encoder"])


# -- the full model's arithmetic


class Reference(nn.Module):
    """The same model in PyTorch's own layers, at all positions of one-hot tokens, without dropout."""

    def __init__(self, ours, c):
        super().__init__()
        self.ours, self.layers = ours, nn.ModuleList()
        for block in ours.layers:
            layer = nn.TransformerEncoderLayer(c.width, c.heads, c.mlp, dropout=0.0, batch_first=True).double()
            copies = {
                "self_attn.in_proj_weight": block.qkv.mT.flatten(0, 1),
                "self_attn.in_proj_bias": torch.zeros(3 * c.width),
                "self_attn.out_proj.weight": block.out.T,
                "self_attn.out_proj.bias": torch.zeros(c.width),
                **{f"linear1.{k}": v for k, v in block.up.named_parameters()},
                **{f"linear2.{k}": v for k, v in block.down.named_parameters()},
                **{f"norm1.{k}": v for k, v in block.norm1.named_parameters()},
                **{f"norm2.{k}": v for k, v in block.norm2.named_parameters()},
            }
            layer.load_state_dict(copies)
            self.layers.append(layer)

    def forward(self, tokens):
        ours = self.ours
        x = (tokens if tokens.is_floating_point() else F.one_hot(tokens, len(ours.encoder)).double()) @ ours.encoder
        x = x + ours.positions
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=torch.double)
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return (x @ ours.decoder)[:, -ours.scored :]


@pytest.mark.parametrize("task", TASKS, ids=["tokens", "vectors"])
@pytest.mark.parametrize("layers", [1, 2])
def test_the_full_model_is_pytorchs_encoder_layer(layers, task):
    c = replace(SMALL, layers=layers)
    model = sharpened(c.build(task, stream(0, "init")))
    tokens, plain = inputs_of(task), Reference(model, c)
    ours, theirs = model(tokens), plain(tokens)
    assert torch.allclose(ours, theirs, atol=1e-5)
    shared = [model.encoder, model.positions, model.decoder]
    for block, layer in zip(model.layers, plain.layers, strict=True):
        mine = [block.qkv, block.out, block.up.weight, block.up.bias]
        mine += [block.down.weight, block.down.bias, *block.norm1.parameters(), *block.norm2.parameters()]
        attention = layer.self_attn
        its = [attention.in_proj_weight, attention.out_proj.weight, layer.linear1.weight, layer.linear1.bias]
        its += [layer.linear2.weight, layer.linear2.bias, *layer.norm1.parameters(), *layer.norm2.parameters()]
        in_proj, out, *rest = gradients(theirs_again := plain(tokens), its)
        for a, b in zip(gradients(model(tokens), mine), [in_proj.unflatten(0, (3, -1)).mT, out.T, *rest], strict=True):
            assert torch.allclose(a, b, atol=1e-5)
        assert torch.equal(theirs_again, theirs)
    for a, b in zip(gradients(ours, shared), gradients(theirs, shared), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_attention_of_the_full_model_is_that_of_pytorch():
    model = sharpened(SMALL.build(TASKS[0], stream(0, "init")))
    tokens, plain = inputs_of(TASKS[0]), Reference(model, SMALL)
    x = F.one_hot(tokens, 5).double() @ model.encoder + model.positions
    mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=torch.double)
    _, theirs = plain.layers[0].self_attn(x, x, x, attn_mask=mask, average_attn_weights=False)
    (ours,) = model.attention(tokens)
    assert torch.allclose(ours[:, :, -4:], theirs[:, :, -4:], atol=1e-5)


# -- dropout


def bare(n=400, rate=0.1, scored=1):
    """A model whose normalisations, queries and maps do nothing, so that outputs show what is dropped: they are the
    residual stream, (n, scored, width), and the first position sees one token, itself."""
    task = Markov(d=5, groups=1, span=1, sequences=0, scored=scored)
    model = PostNorm(heads=3, width=60, mlp=1, dropout=rate).build(task, stream(0, "init")).train()
    (block,) = model.layers
    block.norm1, block.norm2 = nn.Identity(), nn.Identity()
    model.decoder = nn.Parameter(torch.eye(60))
    with torch.no_grad():
        for p in (model.encoder, block.qkv, block.out, block.up.weight, block.down.weight):
            p.zero_()
        model.positions.fill_(1)
    torch.manual_seed(0)
    return model, block, torch.zeros(n, scored, dtype=torch.long)


def near(share, rate, draws):
    return abs(share - rate) < 5 * math.sqrt(rate * (1 - rate) / draws)


@pytest.mark.parametrize("rate", [0.1, 0.4])
def test_a_share_of_the_position_sum_is_dropped_and_the_rest_scaled(rate):
    model, _, tokens = bare(rate=rate)
    x = model(tokens)[:, 0]
    kept = x != 0
    assert near(1 - kept.double().mean().item(), rate, x.numel())
    assert torch.allclose(x[kept], torch.tensor(1 / (1 - rate)), rtol=1e-4)
    by_column, by_row = 1 - kept.double().mean(0), 1 - kept.double().mean(1)
    assert by_column.std().item() == pytest.approx(math.sqrt(rate * (1 - rate) / 400), rel=0.5)  # independent draws
    assert by_row.std().item() == pytest.approx(math.sqrt(rate * (1 - rate) / 60), rel=0.3)


@pytest.mark.parametrize("scored", [1, 2])  # one query, and several
def test_attention_weights_are_dropped_by_head(scored):
    model, block, tokens = bare(scored=scored)
    with torch.no_grad():
        block.qkv[2].copy_(torch.eye(60))
        block.out.copy_(torch.eye(60))
    added = model(tokens)[:, 0].view(400, 3, 20) - 1 / 0.9  # through attention and its sub-layer's dropout
    dropped = (added < 0.5).all(-1)
    assert near(dropped.double().mean().item(), 0.1, dropped.numel())
    assert torch.allclose(added.amax(-1)[~dropped], torch.tensor(1 / 0.9**3), rtol=1e-4)


def test_both_sub_layers_are_dropped():
    model, block, tokens = bare()
    with torch.no_grad():
        model.positions.zero_()
        block.up.bias.fill_(1)
        block.down.weight.fill_(1)
    x = model(tokens)[:, 0]
    assert near((x == 0).double().mean().item(), 0.1, x.numel())
    assert torch.allclose(x[x != 0], torch.tensor(1 / 0.9), rtol=1e-4)
    model, block, tokens = bare()
    with torch.no_grad():
        block.qkv[2].fill_(1)
        block.out.fill_(1)
    x = model(tokens)[:, 0]  # what the attention adds is large beside the position sum
    some = x.amax(1) > 2  # unless all three heads are dropped
    assert near((x[some] < 2).double().mean().item(), 0.1, int(some.sum()) * 60)


def test_dropout_is_a_function_of_the_seed_and_absent_from_evaluation():
    task, c = TASKS[0], replace(SMALL, layers=2)
    model = c.build(task, stream(0, "init")).train()
    tokens, found = inputs_of(task), []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        outputs = model(tokens)
        found.append([outputs, *torch.autograd.grad(outputs.square().sum(), list(model.parameters()))])
    assert all(torch.equal(a, b) for a, b in zip(found[0], found[1], strict=True))
    assert not torch.equal(found[0][0], found[2][0])
    still = replace(c, dropout=0.0).build(task, stream(0, "init")).train()
    assert torch.equal(still(tokens), model.eval()(tokens))


def test_gradients_with_dropout_by_finite_differences():
    model = sharpened(SMALL.build(TASKS[0], stream(0, "init"))).train()
    tokens, direction = inputs_of(TASKS[0], 3), [torch.randn(p.shape).double() for p in model.parameters()]

    def loss():
        torch.manual_seed(3)
        return model(tokens).square().sum()

    slope = sum((g * d).sum() for g, d in zip(gradients_of(loss(), model), direction, strict=True))
    h, values = 1e-6, []
    for sign in (1, -1):
        with torch.no_grad():
            for p, d in zip(model.parameters(), direction, strict=True):
                p.add_(sign * h * d)
            values.append(loss())
            for p, d in zip(model.parameters(), direction, strict=True):
                p.sub_(sign * h * d)
    assert slope.item() == pytest.approx(((values[0] - values[1]) / (2 * h)).item(), rel=1e-5)


def gradients_of(loss, model):
    return torch.autograd.grad(loss, list(model.parameters()))


# -- windows of restricted context

WINDOWED = [
    replace(SMALL, context=3),
    replace(SMALL, context=1),
    replace(SMALL, layers=2, context=3),
    Minimal(heads=2, context=3),
    Minimal(heads=2, context=1),
    Minimal(heads=2, layers=2, context=3),
]


def of_one_window(c, model, vocabulary):
    """A model of sequences of that length with the same weights, read at its last position."""
    build = PostNormModule if isinstance(c, PostNorm) else MinimalModule
    one = build(replace(c, context=0), vocabulary, c.context, 1, stream(9, "init")).double().eval()
    one.load_state_dict(model.state_dict())
    return one


@pytest.mark.parametrize("task", TASKS, ids=["tokens", "vectors"])
@pytest.mark.parametrize("c", WINDOWED)
@pytest.mark.parametrize("n", [2, 9])  # fewer and more windows than pairs of tokens
def test_a_context_is_the_model_on_every_window_by_itself(c, task, n):
    model = sharpened(c.build(task, stream(0, "init")))
    tokens, one = inputs_of(task, n), of_one_window(c, model, task.d)
    ends = range(task.T - task.scored + 1, task.T + 1)
    expected = torch.cat([one(tokens[:, end - c.context : end]) for end in ends], 1)
    ours = model(tokens)
    assert ours.shape == (n, task.scored, task.d)
    assert torch.allclose(ours, expected, atol=1e-6)
    for a, b in zip(gradients_of((ours**3).sum(), model), gradients_of((expected**3).sum(), one), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("c", WINDOWED)
def test_attention_of_windows_stands_at_the_places_of_their_tokens(c):
    task = TASKS[0]
    model = sharpened(c.build(task, stream(0, "init")))
    tokens, one = inputs_of(task), of_one_window(c, model, task.d)
    outputs, maps = model.observe(tokens, whole=True)
    _, last = model.observe(tokens)
    assert torch.equal(outputs, model(tokens))
    for layer, weights in enumerate(maps):
        expected = torch.zeros(5, 2, task.T, task.T).double()
        for row in range(task.T - task.scored, task.T):
            start = row - c.context + 1
            expected[:, :, row, start : row + 1] = one.attention(tokens[:, start : row + 1])[layer][:, :, -1]
        assert torch.allclose(weights, expected, atol=1e-6)
        assert torch.equal(last[layer], weights[:, :, -1])


@pytest.mark.parametrize("c", [SMALL, Minimal(heads=2)])
def test_a_context_longer_than_the_first_scored_position_has_is_refused(c):
    task = TASKS[0]
    replace(c, context=task.context).build(task, stream(0, "init"))
    with pytest.raises(InvalidCombination):
        replace(c, context=task.context + 1).build(task, stream(0, "init"))


@pytest.mark.parametrize("spec", ["markov-minimal", "markov-full"])
def test_a_model_of_restricted_context_trains_and_resumes(spec):
    words = ["task.d=6", "task.span=1", "task.sequences=60", "train.batch=20", "train.max_steps=12", "model.context=2"]
    words += ["model.width=12", "model.mlp=8"] if spec == "markov-full" else []
    whole = Run(load_spec(spec, words))
    whole.advance()
    assert whole.rows[-1]["test_loss"] < whole.rows[0]["test_loss"]
    first, count = Run(load_spec(spec, words)), iter(range(100))
    first.advance(stop=lambda: next(count) >= 5)
    second = Run(load_spec(spec, words), first.checkpoint())
    second.advance()
    assert all(torch.equal(a, b) for a, b in zip(second.model.parameters(), whole.model.parameters(), strict=True))
