"""Measures of attention against loops over sequences, heads, rows and columns."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unstuck import Watch
from unstuck.config import load_spec
from unstuck.probes.attention import (
    attention_along,
    attention_to,
    distance,
    induction_score,
    readout_entropy,
    row_entropy,
    selectivity,
    without_sink,
)
from unstuck.training.loop import Run

sizes = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(2, 7), st.integers(0, 1000))


def drawn(size, *, causal=False):
    n, heads, columns, seed = size
    rng = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, heads, columns, columns, generator=rng)
    if causal:
        scores = scores.masked_fill(torch.ones(columns, columns).triu(1).bool(), -math.inf)
    mask = torch.rand(n, columns, columns, generator=rng) < 0.4
    mask[0, -1, 0] = True  # something is to be looked at
    return scores.softmax(-1), mask


def entropy(weights):
    return -sum(float(w) * math.log(w) for w in weights if w > 0)


@given(sizes)
@settings(max_examples=40, deadline=None)
def test_attention_to_tokens_and_along_links(size):
    weights, mask = drawn(size)
    n, heads, columns, _ = size
    for h in range(heads):
        asked = [b for b in range(n) if mask[b, -1].any()]
        to = np.mean([sum(weights[b, h, -1, t].item() for t in range(columns) if mask[b, -1, t]) for b in asked])
        assert attention_to(weights[:, :, -1], mask[:, -1])[h].item() == pytest.approx(to, abs=1e-5)
        starts = [(b, r) for b in range(n) for r in range(columns) if mask[b, r].any()]
        along = [sum(weights[b, h, r, t].item() for t in range(columns) if mask[b, r, t]) for b, r in starts]
        assert attention_along(weights, mask)[h].item() == pytest.approx(np.mean(along), abs=1e-5)


@given(st.integers(2, 5), st.integers(2, 6), st.integers(0, 1000), st.booleans())
@settings(max_examples=30, deadline=None)
def test_selectivity_is_the_z_among_all_assignments_of_targets(n, columns, seed, links):
    """All n! assignments, one by one; a head that prefers a position or a sequence gains nothing by it."""
    weights, mask = drawn((n, 2, columns, seed))
    if links:  # every row has a target in every sequence
        mask[..., 0] |= ~mask.any(-1)
    else:
        weights, mask = weights[:, :, -1], mask[:, -1]
    given = [[(weights[i] * mask[j]).flatten(1).sum(1) for j in range(n)] for i in range(n)]
    total = torch.stack([sum(given[i][j] for i, j in enumerate(order)) for order in itertools.permutations(range(n))])
    spread = total.std(0, correction=0)
    for head, z in enumerate(selectivity(weights, mask).tolist()):
        if spread[head] < 1e-6 or math.isnan(z):
            assert spread[head] < 1e-5
        else:
            assert z == pytest.approx(((total[0] - total.mean(0)) / spread)[head].item(), rel=1e-2, abs=1e-2)


def test_selectivity_is_not_defined_where_targets_are_the_same_or_start_elsewhere():
    weights, _ = drawn((4, 2, 6, 0))
    same = torch.zeros(4, 6, dtype=torch.bool)
    same[:, 2] = True
    copying = torch.diag_embed(torch.eye(4, 5, dtype=torch.bool), offset=-1)  # from another row in each sequence
    for seen, mask in ((weights[:, :, -1], same), (weights, copying), (weights[:1, :, -1], same[:1])):
        assert all(map(math.isnan, selectivity(seen, mask).tolist()))


def test_tokens_that_nobody_names_get_no_attention():
    weights, mask = drawn((2, 2, 4, 0))
    assert attention_to(weights[:, :, -1], torch.zeros_like(mask[:, -1])).tolist() == [0, 0]


@given(sizes, st.booleans())
@settings(max_examples=40, deadline=None)
def test_entropies_are_parts_of_that_of_uniform_attention(size, causal):
    weights, _ = drawn(size, causal=causal)
    n, heads, columns, _ = size
    for h in range(heads):
        readout = np.mean([entropy(weights[b, h, -1]) for b in range(n)]) / math.log(columns)
        assert readout_entropy(weights[:, :, -1])[h].item() == pytest.approx(readout, abs=1e-5)
        rows = sum(entropy(weights[b, h, r]) for b in range(n) for r in range(columns))
        uniform = n * sum(math.log(r + 1 if causal else columns) for r in range(columns))
        assert row_entropy(weights)[h].item() == pytest.approx(rows / uniform, abs=1e-5)
        far = np.mean(
            [
                sum(weights[b, h, r, t].item() * abs(r - t) for t in range(columns))
                for b in range(n)
                for r in range(columns)
            ]
        )
        assert distance(weights)[h].item() == pytest.approx(far, abs=1e-4)


@pytest.mark.parametrize("columns", [2, 5, 16])
def test_uniform_attention_of_causal_rows_has_entropy_one(columns):
    """Also the first row, which sees itself alone, and so has no entropy to lose."""
    causal = torch.ones(columns, columns).tril()
    weights = (causal / causal.sum(-1, keepdim=True)).expand(3, 2, -1, -1)
    assert row_entropy(weights).tolist() == pytest.approx([1, 1])
    assert readout_entropy(weights[:, :, -1]).tolist() == pytest.approx([1, 1])
    sharp = torch.eye(columns).expand(3, 2, -1, -1)
    assert readout_entropy(sharp[:, :, -1]).tolist() == [0, 0]
    both = torch.cat([weights[:, :1], sharp[:, :1]], dim=1)  # the rows of one head tell what the other may see
    assert row_entropy(both).tolist() == pytest.approx([1, 0])


def test_the_two_entropies_differ_where_rows_do():
    """All rows of one head uniform but the last, which is read: it is one of eight, or all that counts."""
    weights = torch.full((2, 2, 8, 8), 1 / 8)
    weights[:, 0, -1] = torch.eye(8)[3]
    assert readout_entropy(weights[:, :, -1]).tolist() == pytest.approx([0, 1])
    assert row_entropy(weights).tolist() == pytest.approx([7 / 8, 1])


@given(st.integers(1, 3), st.integers(3, 6), st.integers(0, 3), st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_induction_is_attention_to_what_followed_the_last_time(n, half, before, seed):
    columns = before + 2 * half
    weights, _ = drawn((n, 2, columns, seed))
    for h in range(2):
        found = [weights[b, h, r, r - half + 1].item() for b in range(n) for r in range(columns - half, columns)]
        assert induction_score(weights, half)[h].item() == pytest.approx(np.mean(found), abs=1e-5)


def test_a_sink_is_nowhere():
    weights = torch.rand(2, 1, 4, 5)
    assert torch.equal(without_sink(weights), weights[..., :-1])
    assert without_sink(weights[..., :-1]).shape == (2, 1, 4, 4)


@pytest.mark.parametrize("preset", ["regression", "recall"])
def test_the_loop_and_a_watch_measure_the_same(preset):
    """One model, the same sequences: attention, copying and the entropy of rows agree; our loop has that of the
    read-out position besides."""
    words = ["task.T=12", "task.d=4"] if preset == "regression" else ["task.tokens=16", "task.pairs=4"]
    run = Run(load_spec(preset, [*words, "train.max_steps=1"]))
    task, part = run.evaluator.primary(run.task.probe)
    ours = run.evaluator.observe()[1]
    targets = {"attention": part.relevant}
    if links := task.links(part):
        targets["copying"] = links["copy"]
    watch = Watch(run.model, part.inputs, targets=targets, attention=lambda model, inputs: model.attention(inputs))
    theirs = watch.look(0)
    shared = {c for c in ours if c in theirs}
    assert {c.rsplit("_", 2)[0] for c in shared} == {"attn", "selectivity", "row_entropy", *(["copy"] if links else [])}
    for column in shared:
        assert theirs[column] == pytest.approx(ours[column], rel=1e-4), column
    assert {c.rsplit("_", 2)[0] for c in ours} - {"attn", "selectivity", "row_entropy", "copy"} == {"readout_entropy"}
