"""Watching other people's models: the weights are the right ones, and nothing else changes."""

import math
import subprocess
import sys
import warnings
import weakref
from collections import OrderedDict
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from refusals import invalid, names, refused, warned
from unstuck import Forecaster, Watch
from unstuck.attach import attention_maps
from unstuck.attach.capture import beside, each_attention
from unstuck.attach.inputs import shapes_of
from unstuck.config import load_spec
from unstuck.curve import Curve
from unstuck.errors import InvalidCombination
from unstuck.forecast import Outcome
from unstuck.forecast.sources import read_curve
from unstuck.probes.attention import readout_entropy
from unstuck.runner.execute import execute
from unstuck.store.store import RunDirectory, Store


class Plain(nn.Module):
    """A causal layer by hand, by either road."""

    def __init__(self, kernel):
        super().__init__()
        self.kernel, self.embed, self.qkv = kernel, nn.Embedding(16, 8), nn.Linear(8, 24)
        self.drop, self.out = nn.Dropout(0.5), nn.Linear(8, 16)

    def forward(self, tokens):
        x = self.embed(tokens)
        q, k, v = self.qkv(x).unflatten(2, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        if self.kernel:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.mT / 2).masked_fill(torch.ones(q.shape[2], q.shape[2]).triu(1).bool(), -math.inf)
            y = scores.softmax(-1) @ v
        return self.out(self.drop(y.transpose(1, 2).flatten(2)))


@pytest.mark.parametrize("kernel", [True, False])
def test_kernels_and_plain_softmax_show_the_same_weights(kernel):
    torch.manual_seed(0)
    model, tokens = Plain(kernel), torch.randint(16, (3, 5))
    (found,) = attention_maps(model, tokens)
    other = Plain(not kernel)
    other.load_state_dict(model.state_dict())
    (expected,) = attention_maps(other, tokens)
    assert torch.allclose(found, expected, atol=1e-6)
    assert torch.allclose(found.sum(-1), torch.ones(3, 2, 5))
    assert found.triu(1).abs().max() == 0


def test_multihead_attention_and_encoder_layers():
    torch.manual_seed(0)
    attention, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(3, 5, 8)
    (found,) = attention_maps(attention, (x, x, x))
    expected = attention(x, x, x, need_weights=True, average_attn_weights=False)[1]
    assert torch.allclose(found, expected, atol=1e-6)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    layer = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
    maps = attention_maps(layer, {"src": x, "mask": mask, "is_causal": True})
    assert [tuple(m.shape) for m in maps] == [(3, 2, 5, 5)] * 2
    assert all(m.triu(1).abs().max() == 0 for m in maps)


def test_grouped_keys_and_masks():
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    seen = torch.rand(2, 1, 5, 5) < 0.7
    seen[..., 0] = True

    class Grouped(nn.Module):
        def forward(self, q):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True, scale=0.3)

    (found,) = attention_maps(Grouped(), q)
    assert torch.allclose(found @ v.repeat_interleave(2, 1), Grouped()(q), atol=1e-5)


class Drawing(nn.Module):
    """Draws random numbers whether in training or not."""

    def forward(self, x):
        return x + 0 * torch.rand(1)


def test_looking_changes_nothing():
    torch.manual_seed(0)
    model, tokens = Plain(True), torch.randint(16, (3, 5))
    model.out = nn.Sequential(model.out, Drawing())
    model.train()
    model.drop.eval()  # a mode of its own
    loss = model(tokens).sum()
    loss.backward()
    before = [p.grad.clone() for p in model.parameters()]
    output, state = model(tokens), torch.get_rng_state()
    watch = Watch(model, tokens, every=1)
    watch(0, loss=loss)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert not model.drop.training
    assert torch.equal(model(tokens), output)
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), before, strict=True))


class Merging(nn.Linear):
    """A layer that folds an adapter into its weights for evaluation, as LoRA's do."""

    def train(self, mode=True):
        if not mode:
            self.weight.data += 1.0
        return super().train(mode)


def test_looking_does_not_make_layers_ready_for_evaluation():
    model = nn.Sequential(Plain(True), Merging(16, 16), nn.Dropout(0.5))
    model[2].training = False  # as its owner wants it
    before = model[1].weight.clone()
    Watch(model, torch.zeros(2, 5, dtype=torch.long)).look(0)
    assert torch.equal(model[1].weight, before)
    assert [m.training for m in model] == [True, True, False]


class Pair(NamedTuple):
    tokens: torch.Tensor
    other: torch.Tensor


def test_what_a_model_is_shown_goes_where_the_model_is(monkeypatch):
    """A trainer moves the model after the watch was made; there is no such device here, so it is made up."""
    there = SimpleNamespace(parameters=lambda: iter([SimpleNamespace(device=torch.device("cuda"))]))
    tokens = torch.zeros(2, 5, dtype=torch.long)
    monkeypatch.setattr(torch.Tensor, "to", lambda self, device: ("on", device.type))
    moved = ("on", "cuda")
    assert beside(there, tokens) == moved
    assert beside(there, {"a": tokens, "b": [3, (tokens, None)]}) == {"a": moved, "b": [3, (moved, None)]}
    assert beside(there, (Pair(tokens, tokens),)) == (Pair(moved, moved),)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_what_need_not_move_stays_what_it_is(device):
    """On the same device; and where parameters are brought in layer by layer."""
    model = nn.Linear(2, 2).to(device)
    tokens = torch.zeros(2, 5)
    for inputs in (tokens, (Pair(tokens, tokens), 3), OrderedDict(a=tokens)):
        assert beside(model, inputs) is inputs


def test_a_row_that_looks_at_nothing_has_no_part_in_the_entropy():
    """Strictly causal: the first token looks at nothing, the others uniformly."""
    weights = torch.ones(4, 4).tril(-1)
    weights = (weights / weights.sum(-1, keepdim=True).clamp_min(1)).expand(2, 1, 4, 4)
    watch = Watch(nn.Identity(), torch.zeros(1), attention=lambda model, inputs: [weights])
    assert watch.look(0)["row_entropy_0_0"] == pytest.approx(1.0)


def test_both_links_of_a_task_in_two_steps_can_be_named():
    torch.manual_seed(0)
    model, tokens = Plain(True), torch.randint(16, (4, 5))
    before = torch.ones(1, 5, 5, dtype=torch.bool).tril(-1).triu(-1)
    last = torch.tensor([[True, False, False, False, False]])
    watch = Watch(model, tokens, targets={"attention": last, "copying": before})
    row, (weights,) = watch.look(0), attention_maps(model, tokens)
    assert row["attn_0_1"] == pytest.approx(weights[:, 1, -1, 0].mean().item())
    assert row["copy_0_1"] == pytest.approx(weights[:, 1].diagonal(-1, 1, 2).mean().item(), rel=1e-5)
    assert watch.forecast().signal == "attention"
    old = Watch(model, tokens, targets={"attn": last, "copy": before})
    assert (old.look(0), old.seen_with) == (row, watch.seen_with)
    for wrong in ({"copies": before}, {"copy": before}, {}):
        with refused("targets"):
            Watch(model, tokens, targets=wrong)
    with refused("targets", allowed=["(4, 2, 5, 5)"]):
        Watch(model, tokens, targets={"attn": last, "copy": before[:, :3, :3]}).look(0)


def test_one_mask_for_all_sequences_counts_once():
    torch.manual_seed(0)
    model, tokens = Plain(True), torch.randint(16, (8, 5))
    mask = torch.ones(1, 5, 5, dtype=torch.bool).tril(-1).triu(-1)
    one, each = (Watch(model, tokens, targets=m).look(0) for m in (mask, mask.repeat(8, 1, 1)))
    assert one == pytest.approx(each)
    assert 0 < one["attn_0_0"] < 1


def test_a_loss_of_ones_own_is_kept(tmp_path):
    watch = Watch(Plain(True), torch.zeros(2, 5, dtype=torch.long))
    watch.look(0, loss=5.0, train_loss=1.0)
    curve = pd.read_parquet(watch.save(tmp_path / "mine") / "curve.parquet")
    assert curve["train_loss"].tolist() == [1.0]


def test_rows_have_entropy_distance_targets_and_induction():
    model, tokens = Plain(True), torch.randint(16, (4, 6))
    targets = torch.zeros(4, 6, dtype=torch.bool)
    targets[:, 2] = True
    watch = Watch(model, tokens, targets=targets, vocabulary=16, every=10)
    assert watch(5) is None
    row = watch(10, loss=1.5)
    (weights,) = attention_maps(model, tokens)
    assert row["attn_0_1"] == pytest.approx(weights[:, 1, -1, 2].mean().item(), rel=1e-5)
    by_hand = -(weights * weights.clamp_min(1e-30).log()).sum(-1)[:, 0].mean().item()
    uniform = (weights[0, 0] > 0).sum(-1).float().log().mean().item()  # on as many columns as a row may look at
    assert row["row_entropy_0_0"] == pytest.approx(by_hand / uniform, rel=1e-4)
    back = (torch.arange(6)[:, None] - torch.arange(6)).clamp_min(0)
    assert row["distance_0_0"] == pytest.approx((weights[:, 0] * back).sum(-1).mean().item(), rel=1e-4)
    assert 0 < row["induction_0_0"] < 1
    assert row["loss"] == 1.5
    everywhere = Watch(model, tokens, targets=targets[:, None].expand(-1, 6, -1), every=1)
    seen = everywhere.look(0)["attn_0_0"]
    assert seen == pytest.approx(weights[:, 0, :, 2].mean().item(), rel=1e-4)


def test_a_saved_watch_is_forecast(tmp_path):
    model = Plain(True)
    watch = Watch(model, torch.randint(16, (4, 6)), every=1)
    for step in range(4):
        watch(step)
    found = pd.read_parquet(watch.save(tmp_path / "mine") / "curve.parquet")
    assert found["step"].tolist() == [0, 1, 2, 3]
    said = watch.forecast()
    assert (said.outcome, said.signal, said.now, said.interval()) == (Outcome.NO_SIGN, "row_entropy", 3, None)


def test_the_entropy_of_all_rows_gives_no_interval():
    """However it falls: the calibration was fitted on that of the read-out position, where the same fall is a sign."""
    steps = np.arange(0, 2001, 20.0)
    fall = 1 - 0.1 * (steps / 2000) ** 5
    for name, sign in (("readout_entropy", True), ("row_entropy", False)):
        curve = Curve.from_rows([{"step": s, f"{name}_0_0": x} for s, x in zip(steps, fall, strict=True)])
        said = Forecaster().predict(curve)
        assert (said.notes.calibrated_on is not None) == sign
        assert (said.probability is not None) == sign
        by_law = Forecaster(prior=(4000, 0.2)).predict(curve)
        assert by_law.step is not None
    with refused("the curve", allowed=["readout_entropy_L_H"]):
        Forecaster("entropy").predict(curve)


def test_old_columns_of_a_watch_are_those_of_all_rows(tmp_path):
    model, tokens = Plain(True), torch.randint(16, (4, 6))
    watch = Watch(model, tokens, every=1)
    for step in range(3):
        watch(step)
    saved = watch.save(tmp_path / "mine") / "curve.parquet"
    old = pd.read_parquet(saved).rename(columns=lambda c: c.replace("row_entropy", "entropy"))
    old.to_parquet(saved)
    assert "entropy_0_0" in old
    assert RunDirectory(tmp_path / "mine").curve() == watch.curve
    assert read_curve(tmp_path / "mine").measures == watch.curve.measures == ["row_entropy", "distance"]
    assert Watch(model, tokens).load(tmp_path / "mine").curve == watch.curve


def test_what_cannot_be_watched_is_said():
    with refused("the model", allowed=["scaled_dot_product_attention"]):
        Watch(nn.Linear(3, 3), torch.zeros(2, 3)).look(0)
    with refused("Watch", allowed=["probe", "vocabulary"]):
        Watch(nn.Linear(3, 3))
    with invalid("Plain", 48, 16, "IndexError"):
        Watch(Plain(True), vocabulary=17).look(0)
    by_adapter = Watch(nn.Linear(3, 3), torch.zeros(2, 3), attention=lambda model, x: [torch.ones(2, 1, 1, 1)])
    assert by_adapter.look(0)["row_entropy_0_0"] == 0


def test_induction_is_tested_on_tokens_that_the_data_have():
    model = nn.Sequential(nn.Embedding(64, 8), nn.TransformerEncoderLayer(8, 1, 8, batch_first=True))
    known = [3, 5, 7, 11, 13, 17, 19, 23, 29, 31]
    repeated = Watch(model, vocabulary=known, length=16).repeated
    assert set(repeated.flatten().tolist()) <= set(known)
    assert torch.equal(repeated[:, :8], repeated[:, 8:])
    assert all(len(set(row)) == 8 for row in repeated[:, :8].tolist())  # each token once, as far as there are so many
    assert Watch(model, vocabulary=known[:3], length=16).repeated.shape == repeated.shape
    for same in (np.array(known), torch.tensor(known), [*known, 3, 5]):
        assert torch.equal(Watch(model, vocabulary=same, length=16).repeated, repeated)
    assert Watch(model, vocabulary=np.int64(10), length=16).repeated.max() < 10
    for bad in ([3], [3, 3], 1, {"a": 0, "b": 1}, "ab", 32.0, [0.5, 2.7], [-1, 2, 3]):
        with refused("vocabulary"):
            Watch(model, vocabulary=bad)


class Bare(nn.Module):
    """One head, without an axis for it."""

    def __init__(self, batch=True):
        super().__init__()
        self.map = nn.Linear(4, 4)
        self.batch = batch

    def forward(self, x):
        x = self.map(x if self.batch else x[0])
        return F.scaled_dot_product_attention(x, x, x)


@pytest.mark.parametrize("batch", [True, False])
def test_attention_without_an_axis_of_heads(batch):
    model, x = Bare(batch), torch.randn(3 if batch else 1, 5, 4)
    (weights,) = attention_maps(model, x)
    assert weights.shape == (len(x), 1, 5, 5)
    assert set(Watch(model, x).look(0)) == {"step", "row_entropy_0_0", "distance_0_0"}


def test_a_softmax_over_something_else_is_no_attention():
    class Routing(nn.Module):
        def forward(self, x):
            return x.softmax(1) + F.softmax(x, dim=-2) + torch.softmax(x, 0)

    assert attention_maps(Routing(), torch.randn(2, 3, 4, 5)) == []

    class Plain(nn.Module):
        def forward(self, x):
            return (x.softmax(axis=-1) @ x.mT, torch.matmul(torch.softmax(x, axis=3), x.mT), F.softmax(x, -1) @ x.mT)

    assert len(attention_maps(Plain(), torch.randn(2, 3, 4, 5))) == 3


def test_a_gate_is_no_attention():
    """The softmax of a gate weighs parts of one position, or goes through a matrix of parameters."""

    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix, self.layer = nn.Parameter(torch.randn(6, 4)), nn.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, x):
            gate = x[..., None, None].expand(*x.shape, 5, 6).mean(2).softmax(-1)  # (n, T, 5, 6)
            x = x + (gate @ self.mix).mean(2) + (gate[..., None] * self.mix).sum((2, 3))
            return self.layer(x, x, x)[0]

    (weights,) = attention_maps(Gated(), torch.randn(2, 7, 4))
    assert weights.shape == (2, 2, 7, 7)


def test_induction_is_not_looked_for_in_attention_to_something_else():
    def both(model, tokens):
        n, columns = tokens.shape
        return [
            torch.full((n, 1, columns, columns), 1 / columns),
            torch.full((n, 1, columns, columns + 20), 1 / (columns + 20)),
        ]

    row = Watch(nn.Linear(1, 1), vocabulary=64, attention=both).look(0)
    assert "induction_0_0" in row
    assert "induction_1_0" not in row


def test_targets_are_a_mask_beside_a_probe():
    model, x = Bare(), torch.randn(3, 5, 4)
    for targets in (
        torch.tensor([[1, 2], [0, 3], [4, 4]]),
        torch.ones(5, dtype=torch.bool),
        [1, 2],
        "abc",
        [[1], [1, 2]],
    ):
        with refused("targets"):
            Watch(model, x, targets=targets)
    with refused("targets"):
        Watch(model, vocabulary=9, targets=torch.ones(3, 5, dtype=torch.bool))
    assert Watch(model, x, targets=torch.ones(3, 5, dtype=torch.bool)).look(0)["attn_0_0"] == pytest.approx(1)
    assert Watch(model, x, targets=torch.ones(1, 5, dtype=torch.bool)).look(0)["attn_0_0"] == pytest.approx(1)
    for shape in ((3, 7), (2, 5), (3, 4, 5)):
        with refused("targets"):
            Watch(model, x, targets=torch.ones(shape, dtype=torch.bool)).look(0)


def test_induction_behind_a_first_token():
    """A head that finds the token after the last time scores 1, also where something stands before the sequence."""
    half = 24

    def perfect(model, tokens):
        n, columns = tokens.shape
        weights = torch.zeros(n, 1, columns, columns)
        rows = torch.arange(columns - half, columns)
        weights[:, :, rows, rows - half + 1] = 1.0
        return [weights]

    begun = Watch(nn.Linear(1, 1), vocabulary=64, tokens=lambda x: F.pad(x, (1, 0)), attention=perfect)
    assert begun.look(0)["induction_0_0"] == pytest.approx(1)


def test_entropy_is_in_the_units_of_our_own_runs():
    """1 when uniform, 0 on one token, causal or not; the same where a layer has the read-out row alone."""
    causal = torch.ones(6, 6).tril()
    for seen in (torch.ones(6, 6), causal):
        uniform = (seen / seen.sum(-1, keepdim=True)).expand(4, 2, 6, 6)
        watch = Watch(nn.Linear(2, 2), torch.zeros(4, 6), attention=lambda model, probe, maps=uniform: [maps])
        assert watch.look(0)["row_entropy_0_1"] == pytest.approx(1.0)
    last = torch.rand(4, 2, 1, 6, generator=torch.Generator().manual_seed(0)).softmax(-1)
    ours = readout_entropy(last[:, :, 0])
    theirs = Watch(nn.Linear(2, 2), torch.zeros(4, 6), attention=lambda model, probe: [last]).look(0)
    assert theirs["row_entropy_0_0"] == pytest.approx(ours[0].item(), rel=1e-5)


@pytest.mark.parametrize("wrong", [{"every": 2.5}, {"every": "x"}, {"every": True}, {"length": "x"}, {"length": 5}])
def test_steps_and_lengths_are_whole_numbers(wrong):
    with refused(next(iter(wrong))):
        Watch(Plain(True), torch.zeros(2, 6, dtype=torch.long), **wrong)


def test_targets_of_another_shape_than_the_probe_and_targets_without_one_name_the_probe():
    probe = torch.zeros(2, 6, dtype=torch.long)
    given = {"input_ids": probe, "output_attentions": False}
    mask = torch.ones(2, 5, dtype=torch.bool)
    with refused("targets", allowed=["(2, 6)"]):
        Watch(Plain(True), probe, targets=mask)
    assert shapes_of(given) == "(2, 6)"
    for vocabulary in (None, 16):
        with refused("targets", allowed=["probe"]):
            Watch(Plain(True), targets=mask, vocabulary=vocabulary)


def test_a_mask_of_ones_and_zeros_is_one_of_true_and_false():
    probe = torch.arange(12).view(2, 6)
    mask = probe % 5 == 2
    expected = Watch(Plain(True), probe, targets=mask)
    for dtype in (torch.long, torch.uint8):
        assert Watch(Plain(True), probe, targets=mask.to(dtype)).seen_with == expected.seen_with
    with refused("targets"):
        Watch(Plain(True), probe, targets=2 * mask.long())


def test_targets_that_name_nothing_are_refused():
    with refused("targets"):
        Watch(Plain(True), torch.zeros(2, 6, dtype=torch.long), targets=torch.zeros(2, 6, dtype=torch.bool))


@pytest.mark.parametrize("loss", [None, "low", torch.ones(3), [1.0, 2.0]])
def test_a_measure_that_is_no_number_is_named(loss):
    watch = Watch(Plain(True), probe=torch.randint(16, (3, 5)))
    with refused("loss"):
        watch(0, loss=loss)


def test_a_watch_that_has_not_looked_has_nothing_to_save(tmp_path):
    with pytest.raises(InvalidCombination):
        Watch(Plain(True), probe=torch.randint(16, (3, 5))).save(tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kernel", [True, False])
def test_a_model_of_nan_is_no_sign_of_anything(kernel):
    """Weights that are no numbers give entropies that are none: not 0, which would be attention to one token."""
    torch.manual_seed(0)
    model = Plain(kernel)
    watch = Watch(model, torch.randint(16, (4, 12)), every=50)
    for step in range(0, 1000, 50):
        watch(step, loss=2.7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(math.nan)
    for step in range(1000, 1200, 50):
        row = watch(step, loss=math.nan)
        assert all(math.isnan(v) for k, v in row.items() if k.startswith("row_entropy"))
    assert watch.forecast().outcome is Outcome.DIVERGED


def test_a_row_that_may_look_at_nothing_looks_at_nothing():
    q = torch.randn(1, 1, 3, 4)
    hidden = torch.tensor([[True, False, False], [False, False, False], [True, True, False]])

    class Masked(nn.Linear):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x, attn_mask=hidden)

    (weights,) = attention_maps(Masked(1, 1), q)
    assert weights[0, 0].sum(-1).tolist() == pytest.approx([1.0, 0.0, 1.0])


class Around(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


def test_a_look_within_a_compiled_step():
    model, tokens = Plain(True), torch.randint(16, (3, 5))
    step = torch.compile(lambda: attention_maps(model, tokens), backend="eager")
    assert [tuple(weights.shape) for weights in step()] == [(3, 2, 5, 5)]


def test_looking_does_not_load_the_compiler():
    code = (
        "import sys, torch; from unstuck.attach import attention_maps; "
        "attention_maps(torch.nn.MultiheadAttention(4, 1), 3 * (torch.zeros(2, 1, 4),)); "
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("way", ["outermost", "in place", "inside"])
def test_compiled_layers_are_watched_and_not_compiled_again(way):
    graphs = []

    def counting(graph, inputs):
        graphs.append(graph)
        return graph

    torch.compiler.reset()
    model, tokens = Plain(True), torch.randint(16, (3, 5))
    if way == "in place":
        model.compile(backend=counting)
    else:
        model = torch.compile(model, backend=counting)
        model = Around(model) if way == "inside" else model
    model(tokens).sum().backward()
    compiled = len(graphs)
    assert compiled > 0
    (weights,) = attention_maps(model, tokens)
    assert weights.shape == (3, 2, 5, 5)
    model(tokens).sum().backward()
    assert len(graphs) == compiled


def test_a_look_enters_no_collective(tmp_path):
    """A model with buffers that is trained on several machines sends them around in every forward pass; one process
    that looks alone would wait for the others."""
    model = Plain(True)
    model.register_buffer("mask", torch.zeros(3))
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(model)
        wrapped.forward = None  # would be called
        row = Watch(wrapped, torch.randint(16, (3, 5))).look(0)
    finally:
        torch.distributed.destroy_process_group()
    assert row["row_entropy_0_0"] > 0


def test_the_maps_of_one_layer_are_there_at_a_time():
    layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 3)
    kept, alive = [], []

    def take(weights):
        alive.append(sum(old() is not None for old in kept))
        kept.append(weakref.ref(weights))

    each_attention(layers, torch.randn(2, 5, 8), take)
    assert len(kept) == 3
    assert max(alive) <= 1


def test_padding_does_not_make_uniform_attention_look_sharp():
    """Half of the sequences begin with three tokens nobody may look at; attention is uniform on the others."""
    seen = torch.ones(4, 1, 6, 6).tril()
    seen[:2, :, :, :3] = 0
    uniform = seen / seen.sum(-1, keepdim=True).clamp_min(1)
    watch = Watch(nn.Identity(), torch.zeros(1), attention=lambda model, inputs: [uniform])
    assert watch.look(0)["row_entropy_0_0"] == pytest.approx(1.0)


def test_weights_that_are_rounded_to_nothing_are_not_hidden():
    """Every row looks at two of 48 tokens, in half precision: sharp, not uniform on what may be seen."""
    first = torch.randint(48, (8, 1, 48, 1), generator=torch.Generator().manual_seed(0))
    scores = torch.zeros(8, 1, 48, 48).scatter(-1, torch.cat([first, (first + 7) % 48], -1), 20.0)
    weights = scores.half().softmax(-1)
    assert (weights == 0).any()
    watch = Watch(nn.Identity(), torch.zeros(1), attention=lambda model, inputs: [weights])
    assert watch.look(0)["row_entropy_0_0"] < 0.4


def test_padding_is_read_rightly_in_multihead_attention():
    torch.manual_seed(0)
    layer, x = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.randn(4, 6, 8)
    padded = torch.zeros(4, 6, dtype=torch.bool)
    padded[:2, :3] = True  # on the left: their first rows may look at nothing
    inputs = {"src": x, "src_mask": torch.ones(6, 6, dtype=torch.bool).triu(1), "src_key_padding_mask": padded}
    row = Watch(layer, inputs).look(0)
    assert 0.5 < row["row_entropy_0_0"] <= 1
    assert math.isfinite(row["distance_0_0"])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (rounded,) = attention_maps(layer, {"src": x})
    assert rounded.dtype == torch.float32
    assert (rounded.sum(-1) - 1).abs().max() < 1e-6


def test_sequences_without_a_target_do_not_count():
    torch.manual_seed(0)
    model, tokens = Plain(True), torch.randint(16, (4, 5))
    mask = torch.zeros(4, 5, dtype=torch.bool)
    mask[:2, 1] = True
    whole = torch.zeros(4, 5, 5, dtype=torch.bool)
    whole[:, -1] = mask
    flat, full = (Watch(model, tokens, targets=m).look(0) for m in (mask, whole))
    assert flat == pytest.approx(full)
    (weights,) = attention_maps(model, tokens)
    assert flat["attn_0_1"] == pytest.approx(weights[:2, 1, -1, 1].mean().item())


def test_autocast_does_not_round_what_is_seen():
    torch.manual_seed(0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (weights,) = attention_maps(Bare(), torch.randn(3, 5, 4))
    assert weights.dtype == torch.float32
    assert (weights.sum(-1) - 1).abs().max() < 1e-6
    assert weights.to(torch.bfloat16).float().ne(weights).any()


@pytest.mark.parametrize(
    ("limits", "facts"), [({"vocab_size": 9}, ["vocab_size", 9]), ({"max_position_embeddings": 20}, [48, 20])]
)
def test_what_a_configuration_rules_out_is_said_before_the_model_is_asked(limits, facts):
    model = Plain(True)
    model.config = SimpleNamespace(**limits)
    model.forward = None  # on a GPU an index beyond an embedding ends the process
    with invalid(*facts):
        Watch(model, vocabulary=16).look(0)
    free = Plain(True)
    free.config = SimpleNamespace(max_position_embeddings=-1)  # as those have it that know no limit
    assert "induction_0_0" in Watch(free, vocabulary=16).look(0)


def test_a_watch_takes_up_what_was_saved(tmp_path):
    """Else its forecasts would begin anew where a training is resumed."""
    torch.manual_seed(0)
    model, tokens = Plain(True), torch.randint(16, (4, 6))
    whole = Watch(model, tokens, every=10)
    for step in range(0, 100, 10):
        whole(step, loss=1.0)
    whole.save(tmp_path / "mine")
    resumed = Watch(model, tokens, every=10).load(tmp_path / "mine", before=60)
    assert [row["step"] for row in resumed.rows] == [0, 10, 20, 30, 40, 50]
    for step in range(60, 100, 10):
        resumed(step, loss=1.0)
    assert resumed.forecast() == whole.forecast()
    saved = pd.read_parquet(resumed.save(tmp_path / "mine") / "curve.parquet")
    assert saved["train_loss"].tolist() == [1.0] * 10
    (tmp_path / "run").mkdir()
    RunDirectory(tmp_path / "run").write_status({"state": "finished", "step": 3})
    with refused("directory"):
        Watch(model, tokens).load(tmp_path / "run")
    with refused("directory"):
        Watch(model, tokens).load(tmp_path / "nowhere")


@pytest.mark.parametrize("step", ["10", None, 2.5, [1]])
def test_a_step_is_a_whole_number(step):
    with refused("step"):
        Watch(Plain(True), torch.randint(16, (2, 6)))(step)


def test_rows_of_another_probe_are_no_beginning(tmp_path):
    """Attention differs between sequences: where a probe was drawn anew, a model that never changed seems to move."""
    model, probe = Plain(True), torch.randint(16, (4, 6))
    watch = Watch(model, probe, vocabulary=16)
    watch(0)
    watch.save(tmp_path / "mine")
    Watch(model, probe.clone(), vocabulary=16).load(tmp_path / "mine")
    for other in (
        Watch(model, (probe + 1) % 16, vocabulary=16),
        Watch(model, probe, vocabulary=15),
        Watch(model, probe, targets=probe > 0, vocabulary=16),
    ):
        with refused("directory"):
            other.load(tmp_path / "mine")
        other(50)
        with refused("directory"):
            other.save(tmp_path / "mine")
    (tmp_path / "file").write_text("")
    with refused("directory"):
        watch.save(tmp_path / "file")


def test_steps_that_begin_anew_are_not_taken_for_others():
    watch = Watch(Plain(True), torch.randint(16, (2, 6)), every=10)
    for step in (0, 10, 20):
        assert watch(step)
    assert watch(20) is None  # several batches may make one optimiser step
    with warned(UserWarning, 0, 20):
        assert watch(0, loss=1.0) is None
    with invalid(10, 20):
        watch.look(10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert watch(10) is None  # said once
    assert watch.curve.steps.tolist() == [0, 10, 20]


def dropping():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True)
    return layer, torch.optim.SGD(layer.parameters(), lr=0.1)


def test_an_adapter_does_not_change_training():
    """It is called as the built-in recording is: without dropout, gradients or a change of random states."""
    x, seen = torch.randn(3, 5, 8), []

    def adapter(model, inputs):
        out = model(inputs)
        seen.append((model.training, out.requires_grad))
        return [model.self_attn(inputs, inputs, inputs, average_attn_weights=False)[1]]

    def trained(watched):
        model, optimizer = dropping()
        watch = Watch(model, x, every=1, attention=adapter)
        for step in range(4):
            if watched:
                watch(step)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return watch, model

    watch, model = trained(watched=True)
    _, alone = trained(watched=False)
    assert set(seen) == {(False, False)}
    assert model.training
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), alone.parameters(), strict=True))
    own = Watch(model, x)
    assert own.look(9)["row_entropy_0_1"] == pytest.approx(watch.look(9)["row_entropy_0_1"], abs=1e-6)


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        (torch.ones(2, 3, 3) / 3, ["Tensor", "(2, 3, 3)"]),
        (np.ones((2, 1, 3, 3)) / 3, ["ndarray", "(2, 1, 3, 3)"]),
        (None, ["NoneType"]),
        (torch.randn(2, 1, 3, 3), ["tensor", 1]),
    ],
)
def test_weights_of_ones_own_are_checked(given, facts):
    with refused("what `attention` gave") as error:
        Watch(nn.Linear(3, 3), torch.zeros(2, 3), attention=lambda model, x: [given])
    assert names(error.value.value, *facts)
    with pytest.raises(InvalidCombination):
        Watch(nn.Linear(3, 3), torch.zeros(2, 3), attention=lambda model, x: None).look(0)


@pytest.mark.parametrize("probe", [[[1, 2], [3, 4]], "abc", torch.full((2, 4), 99), np.ones((2, 3), dtype=int)])
def test_a_probe_that_the_model_does_not_take_is_a_sentence(probe):
    with invalid("Plain"):
        Watch(Plain(True), probe).look(0)


@pytest.mark.parametrize("model", ["gpt2", lambda x: x])
def test_a_model_is_a_module(model):
    with refused("model", model, allowed=["torch.nn.Module"]):
        Watch(model, torch.zeros(2, 3))


@pytest.mark.parametrize("variant", ["causal_upper_left", "causal_lower_right"])
def test_pytorchs_own_causal_bias(variant):
    from torch.nn.attention import bias

    class Biased(nn.Module):
        def forward(self, q, k):
            return F.scaled_dot_product_attention(q, k, k, attn_mask=getattr(bias, variant)(3, 5))

    q, k = torch.randn(2, 1, 3, 4), torch.randn(2, 1, 5, 4)
    (weights,) = attention_maps(Biased(), (q, k))
    assert weights.shape == (2, 1, 3, 5)
    assert torch.allclose(weights @ k, Biased()(q, k), atol=1e-6)


def test_induction_with_a_sink_and_without_a_layer_that_could_show_it():
    class Sink(nn.Module):
        def __init__(self, **options):
            super().__init__()
            self.embed, self.layer = nn.Embedding(16, 8), nn.MultiheadAttention(8, 2, batch_first=True, **options)

        def forward(self, tokens):
            x = self.embed(tokens)
            return self.layer(x, x, x)[0]

    plain, sink = Sink(), Sink(add_zero_attn=True)  # a column more, at the end
    sink.load_state_dict(plain.state_dict())
    found = [Watch(model, vocabulary=16).look(0)["induction_0_1"] for model in (plain, sink)]
    assert 0.9 * found[0] < found[1] < found[0]
    both = Sink(add_zero_attn=True, add_bias_kv=True)
    both.load_state_dict(plain.state_dict(), strict=False)
    assert 0.8 * found[0] < Watch(both, vocabulary=16).look(0)["induction_0_1"] < found[1]


def test_a_logged_step_is_not_the_step():
    row = Watch(Plain(True), torch.randint(16, (2, 6)))(50, step=7.0, loss=1.0)
    assert (row["step"], row["loss"]) == (50.0, 1.0)


def test_a_resumed_watch_goes_on_and_a_run_of_its_own_is_left_alone(tmp_path):
    probe = torch.randint(16, (2, 6))

    def watched(steps):
        watch = Watch(Plain(True), probe, every=1)
        for step in steps:
            watch(step, loss=float(step))
        return watch

    watched(range(5)).save(tmp_path / "mine")
    watched(range(3, 8)).save(tmp_path / "mine")  # from a checkpoint at step 3
    curve = pd.read_parquet(tmp_path / "mine" / "curve.parquet")
    assert curve["step"].tolist() == list(range(8))
    assert curve["train_loss"].tolist() == list(range(8))
    small = load_spec("regression", ["task.T=4", "task.d=2", "model.width=8", "train.max_steps=3"])
    run = execute(small, Store(tmp_path))
    before = (tmp_path / run.run_id / "curve.parquet").read_bytes()
    with refused("directory"):
        watched(range(5)).save(tmp_path / run.run_id)
    assert (tmp_path / run.run_id / "curve.parquet").read_bytes() == before
