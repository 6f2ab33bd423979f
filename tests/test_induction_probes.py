"""Probes of induction heads against hand-made attention, closed forms, and plain loops over positions."""

import io
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from torch import nn
from torch.nn import functional as F

from unstuck import Watch
from unstuck.attach import attention_maps
from unstuck.attach.language import logits_of, token_indices
from unstuck.columns import COPY_ADVANTAGE, IN_CONTEXT_SCORE
from unstuck.config import load_spec
from unstuck.probes.attention import induction_score
from unstuck.probes.induction import copy_advantage, duplicate_token, head_scores, previous_token
from unstuck.training.loop import Run
from unstuck.view.terminal import progress_of

PERIOD = 6


def attending(targets):
    """Attention of one head, (1, 1, T, T), that puts all weight of row t on column targets[t]."""
    weights = torch.zeros(1, 1, len(targets), len(targets))
    weights[0, 0, range(len(targets)), targets] = 1.0
    return weights


def perfect_heads():
    """Over two passes of PERIOD tokens: heads that attend to the previous token, to the same token before, to the one
    after that, and to themselves. In the first pass, where nothing can be found, they attend to the first token."""
    T = range(2 * PERIOD)
    rules = {
        "previous_token": [max(t - 1, 0) for t in T],
        "duplicate_token": [max(t - PERIOD, 0) for t in T],
        "induction": [max(t - PERIOD + 1, 0) if t >= PERIOD else 0 for t in T],
        "itself": list(T),
    }
    return list(rules), torch.cat([attending(rule) for rule in rules.values()], 1)


def test_errors_on_first_halves_are_no_gain_by_copying():
    """As of a model that is trained on second halves alone: it is sure of the wrong token in the first."""
    tokens = torch.stack([torch.randperm(30)[:PERIOD].repeat(2) for _ in range(8)])
    logits = torch.zeros(8, 2 * PERIOD, 30)
    logits[:, :PERIOD] = 100.0 * F.one_hot((tokens[:, 1 : PERIOD + 1] + 1) % 30, 30)
    assert copy_advantage(logits, tokens, PERIOD).tolist() == pytest.approx([0.0] * 8, abs=1e-5)
    logits[:, PERIOD:-1] = 100.0 * F.one_hot(tokens[:, PERIOD + 1 :], 30)
    assert copy_advantage(logits, tokens, PERIOD).tolist() == pytest.approx([math.log(30)] * 8, rel=1e-5)


def test_perfect_heads_score_one_and_others_zero():
    names, weights = perfect_heads()
    scores = head_scores(weights, PERIOD)
    for measure in ("duplicate_token", "induction"):
        assert scores[measure].tolist() == [float(name == measure) for name in names]
    found = dict(zip(names, previous_token(weights).tolist(), strict=True))
    rows = 2 * PERIOD - 1
    assert found["previous_token"] == 1.0
    assert found["itself"] == 0.0
    # row 1 of the others attends to the first token, which is also its previous one
    assert found["duplicate_token"] == found["induction"] == pytest.approx(1 / rows)


@pytest.mark.parametrize("T", [2, 12, 64])
def test_uniform_causal_attention_has_closed_forms(T):
    causal = torch.ones(T, T).tril()
    uniform = (causal / causal.sum(-1, keepdim=True)).expand(3, 2, -1, -1)
    assert previous_token(uniform).tolist() == pytest.approx([np.mean([1 / t for t in range(2, T + 1)])] * 2)
    second = [1 / t for t in range(T // 2 + 1, T + 1)]
    assert duplicate_token(uniform, T // 2).tolist() == pytest.approx([np.mean(second)] * 2)
    assert induction_score(uniform, T // 2).tolist() == pytest.approx([np.mean(second)] * 2)


# -- plain loops


def loss_of(logits, target):
    """Cross-entropy of one token, in nats."""
    numbers = [float(x) for x in logits]
    top = max(numbers)
    return top + math.log(sum(math.exp(x - top) for x in numbers)) - numbers[int(target)]


def loop_scores(weights, period):
    """Scores of a layer, by head, from (n, heads, T, T)."""
    w = weights.numpy()
    n, heads, T, _ = w.shape
    second = range(T - period, T)
    return {
        "previous_token": [np.mean([w[b, h, t, t - 1] for b in range(n) for t in range(1, T)]) for h in range(heads)],
        "duplicate_token": [np.mean([w[b, h, t, t - period] for b in range(n) for t in second]) for h in range(heads)],
        "induction": [np.mean([w[b, h, t, t - period + 1] for b in range(n) for t in second]) for h in range(heads)],
    }


def loop_copy_advantage(logits, tokens, period):
    """Token 1 to period - 1 of each of the last two passes, predicted one position before."""
    each = []
    start = len(tokens[0]) - 2 * period
    for scores, row in zip(logits, tokens, strict=True):
        first = [loss_of(scores[t - 1], row[t]) for t in range(start + 1, start + period)]
        second = [loss_of(scores[t - 1], row[t]) for t in range(start + period + 1, start + 2 * period)]
        each.append(min(np.mean(first), math.log(len(scores[0]))) - np.mean(second))
    return np.mean(each)


def loop_in_context_score(losses):
    """The second eighth minus the last eighth."""
    each = []
    for row in losses:
        eighth = len(row) // 8
        each.append(np.mean(row[eighth : 2 * eighth]) - np.mean(row[len(row) - eighth :]))
    return np.mean(each)


# -- Watch


@pytest.fixture
def gpt2():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "n_positions": 64, "n_embd": 16, "n_layer": 2, "n_head": 4, "initializer_range": 0.5}
    config = transformers.GPT2Config(bos_token_id=0, eos_token_id=0, attn_implementation="eager", **sizes)
    return transformers.GPT2LMHeadModel(config).eval()


@pytest.mark.parametrize("form", ["none", "tensor", "mapping"])
def test_a_watch_agrees_with_plain_loops_on_gpt2(gpt2, form):
    text = torch.randint(40, (3, 20), generator=torch.Generator().manual_seed(1))
    probe = {"none": None, "tensor": text, "mapping": {"input_ids": text}}[form]
    watch = Watch(gpt2, probe, vocabulary=40, length=2 * PERIOD)
    row = watch.look(0)
    with torch.no_grad():
        repeated = gpt2(watch.repeated, output_attentions=True)
        plain = gpt2(text, output_attentions=True)
    for layer, weights in enumerate(repeated.attentions):
        expected = loop_scores(weights, PERIOD)
        if probe is not None:
            expected["previous_token"] = loop_scores(plain.attentions[layer], PERIOD)["previous_token"]
        for measure, values in expected.items():
            found = [row[f"{measure}_{layer}_{head}"] for head in range(4)]
            assert found == pytest.approx(values, abs=1e-5), measure
    advantage = loop_copy_advantage(repeated.logits, watch.repeated, PERIOD)
    assert abs(advantage) > 1e-3
    assert row[COPY_ADVANTAGE] == pytest.approx(advantage, abs=1e-5)
    if probe is None:
        assert IN_CONTEXT_SCORE not in row
    else:
        losses = [
            [loss_of(scores[t - 1], tokens[t]) for t in range(1, 20)]
            for scores, tokens in zip(plain.logits, text, strict=True)
        ]
        assert row[IN_CONTEXT_SCORE] == pytest.approx(loop_in_context_score(losses), abs=1e-5)


class Small(nn.Module):
    """A causal layer over 16 tokens; `form` wraps its logits."""

    def __init__(self, form=lambda logits: logits):
        super().__init__()
        self.embed, self.out, self.form, self.passes = nn.Embedding(16, 8), nn.Linear(8, 16), form, 0

    def forward(self, tokens):
        self.passes += 1
        x = self.embed(tokens)[:, None]
        return self.form(self.out(F.scaled_dot_product_attention(x, x, x, is_causal=True)[:, 0]))


FORMS = {
    "tensor": lambda logits: logits,
    "object": lambda logits: SimpleNamespace(logits=logits),
    "mapping": lambda logits: {"logits": logits, "loss": logits.mean()},
    "tuple": lambda logits: (logits.mean(), logits, None),
}


@pytest.mark.parametrize("form", FORMS)
def test_logits_are_found_in_what_models_give(form):
    torch.manual_seed(0)
    model, probe = Small(), torch.randint(16, (2, 12))
    plain = Watch(model, probe, vocabulary=16, length=12).look(0)
    assert {COPY_ADVANTAGE, IN_CONTEXT_SCORE} <= set(plain)
    model.form = FORMS[form]
    model.passes = 0
    assert Watch(model, probe, vocabulary=16, length=12).look(0) == plain
    assert model.passes == 2  # for probe and random sequences; the first step has the row of the trial


@pytest.mark.parametrize(
    "form",
    [
        lambda logits: logits[:, -1],  # of the last position alone
        lambda logits: logits[:, -1:],
        lambda logits: logits[..., :8],  # too few for the vocabulary: hidden states
        lambda logits: SimpleNamespace(last_hidden_state=logits),
        lambda logits: None,
    ],
)
def test_without_logits_the_losses_are_left_out(form):
    row = Watch(Small(form), torch.randint(16, (2, 12)), vocabulary=16, length=12).look(0)
    assert not {COPY_ADVANTAGE, IN_CONTEXT_SCORE} & set(row)
    assert {"induction_0_0", "duplicate_token_0_0", "previous_token_0_0"} <= set(row)


def test_what_needs_a_vocabulary_and_a_text_is_measured_with_them_alone():
    model, probe = Small(), torch.randint(16, (2, 12))
    assert set(Watch(model, probe).look(0)) == {"step", "row_entropy_0_0", "distance_0_0"}
    assert IN_CONTEXT_SCORE not in Watch(model, probe[:, :8], vocabulary=16).look(0)
    own = Watch(model, probe, vocabulary=16, length=12, attention=attention_maps).look(0)
    assert not {COPY_ADVANTAGE, IN_CONTEXT_SCORE} & set(own)
    assert "previous_token_0_0" in own
    for other in ((probe,), probe.float(), probe > 3, probe[0], probe[:0], {"inputs": probe}):
        assert token_indices(other) is None


def test_tokens_before_the_random_sequences_do_not_count():
    """A model whose input begins with a token of its own."""
    torch.manual_seed(0)
    model = Small()
    watch = Watch(
        model, vocabulary=16, length=12, tokens=lambda batch: torch.cat([torch.zeros_like(batch[:, :1]), batch], 1)
    )
    row = watch.look(0)
    with torch.no_grad():
        logits = model(watch.repeated)
    assert row[COPY_ADVANTAGE] == pytest.approx(loop_copy_advantage(logits[:, 1:], watch.repeated[:, 1:], 6), abs=1e-5)
    assert logits_of(logits, watch.repeated).shape == (16, 13, 16)


def test_losses_change_nothing_in_training():
    """Weights after ten steps with dropout are the same with and without a watch."""

    def trained(watched):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(16, 8), nn.TransformerEncoderLayer(8, 2, 16, 0.3, batch_first=True))
        model.append(nn.Linear(8, 16))
        optimizer = torch.optim.AdamW(model.parameters())
        watch = Watch(model, torch.arange(12)[None] % 16, vocabulary=16, length=12, every=2)
        for step in range(10):
            row = watch(step) if watched else None
            assert row is None or {COPY_ADVANTAGE, IN_CONTEXT_SCORE} <= set(row)
            tokens = torch.randint(16, (4, 12))
            loss = F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return model

    alone, watched = trained(False), trained(True)
    assert all(torch.equal(a, b) for a, b in zip(alone.parameters(), watched.parameters(), strict=True))


def test_a_curve_from_before_these_measures_is_continued(tmp_path):
    model, probe = Small(), torch.randint(16, (2, 12))
    first = Watch(model, probe, vocabulary=16, length=12, every=1)
    for step in range(3):
        first(step)
    path = first.save(tmp_path / "mine") / "curve.parquet"
    old = pd.read_parquet(path)
    new = [c for c in old if c.startswith(("previous", "duplicate", "copy", "in_context"))]
    assert len(new) == 4
    old.drop(columns=new).to_parquet(path)
    resumed = Watch(model, probe, vocabulary=16, length=12, every=1).load(tmp_path / "mine")
    resumed(3)
    resumed.save(tmp_path / "mine")
    saved = pd.read_parquet(path)
    assert saved["induction_0_0"].notna().all()
    assert saved[new].notna().sum(axis=1).tolist() == [0, 0, 0, 4]
    fresh = Watch(model, probe, vocabulary=16, length=12, every=1)  # not loaded: save joins the two tables
    fresh(4)
    fresh.save(tmp_path / "mine")
    assert pd.read_parquet(path)[new].notna().sum(axis=1).tolist() == [0, 0, 0, 4, 4]


# -- our own loop


@pytest.fixture
def text_run(tmp_path):
    words = [
        "the",
        "cat",
        "sat",
        "on",
        "mat",
        "and",
        "dog",
        "lay",
        "by",
        "door",
        "while",
        "bird",
        "sang",
        "old",
        "tree",
    ]
    rng = np.random.default_rng(0)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(" ".join(rng.choice(words, 4000)))
    small = ["task.vocabulary=256", "task.context=32", "model.width=16", "model.heads=2", "train.batch=4"]
    return Run(load_spec("text", [f"task.corpus={corpus}", *small, "train.max_steps=20", "train.probe_every=20"]))


def test_the_loop_agrees_with_plain_loops(text_run):
    curve = text_run.advance().curve
    row = curve.last
    evaluator, model = text_run.evaluator, text_run.model
    repeated, period = evaluator.repeated.alone, evaluator.repeated.period
    _, text = evaluator.primary(text_run.task.probe)
    with torch.no_grad():
        logits, maps = model.observe(repeated, whole=True)
        plain, plain_maps = model.observe(text.inputs, whole=True)
    for layer, weights in enumerate(maps):
        expected = loop_scores(weights, period)
        expected["previous_token"] = loop_scores(plain_maps[layer], period)["previous_token"]
        for measure, values in expected.items():
            found = [row[f"{measure}_{layer}_{head}"] for head in range(2)]
            assert found == pytest.approx(values, abs=1e-5), measure
    assert row[COPY_ADVANTAGE] == pytest.approx(loop_copy_advantage(logits, repeated, period), abs=1e-5)
    for name, tokens in (("in_text", evaluator.repeated.tokens), ("backwards", evaluator.repeated.backwards)):
        with torch.no_grad():
            expected = loop_copy_advantage(model(tokens), tokens, period)
        assert row[f"{COPY_ADVANTAGE}_{name}"] == pytest.approx(expected, abs=1e-5)
    losses = [
        [loss_of(scores[t], targets[t]) for t in range(32)] for scores, targets in zip(plain, text.targets, strict=True)
    ]
    assert row[IN_CONTEXT_SCORE] == pytest.approx(loop_in_context_score(losses), abs=1e-5)


def test_the_loop_and_a_watch_have_the_same_scores(text_run):
    """The same model and sequences: scores of heads and the copying advantage agree."""
    evaluator, model = text_run.evaluator, text_run.model
    _, text = evaluator.primary(text_run.task.probe)
    repeated = evaluator.repeated
    watch = Watch(model, text.inputs, vocabulary=256, length=2 * repeated.period)
    watch.repeated = watch.random = repeated.alone
    ours, theirs = evaluator.observe()[1], watch.look(0)
    shared = {c for c in ours if c in theirs}
    kinds = {"previous_token", "duplicate_token", "induction", "row_entropy"}
    assert {c.rsplit("_", 2)[0] for c in shared if c[-1].isdigit()} == kinds
    assert {COPY_ADVANTAGE, IN_CONTEXT_SCORE} <= shared
    for column in shared - {IN_CONTEXT_SCORE} - {c for c in shared if c.startswith("row_entropy")}:
        assert theirs[column] == pytest.approx(ours[column], abs=1e-5), column


def test_the_bar_that_follows_a_text_run_has_its_measures_and_fits(text_run):
    row = text_run.advance().curve.last
    best = max(value for name, value in row.items() if name.startswith("induction_"))
    screen = io.StringIO()
    Console(file=screen, width=80).print(progress_of(text_run))
    head, line, *_ = screen.getvalue().splitlines()
    assert f"step {text_run.step:,} of {text_run.spec.train.max_steps:,}" in head
    assert f"copying advantage {row[COPY_ADVANTAGE]:.2f}" in line
    assert f"induction score {best:.2f}" in line
    assert max(map(len, screen.getvalue().splitlines())) <= 80
