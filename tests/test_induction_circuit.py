"""The induction circuit of models built by hand is named right, and that of a random model is not named."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from refusals import refused
from unstuck.config import load_spec
from unstuck.models.gpt import GPT, GPTModule
from unstuck.probes.induction import copy_advantage, previous_token
from unstuck.probes.induction_circuit import InductionCircuit, find_induction_circuit
from unstuck.probes.stored_circuit import in_words
from unstuck.runner.execute import execute
from unstuck.store.store import Store
from unstuck.tasks.task import Repeated
from unstuck.training import evaluator
from unstuck.view.report.runs import runs_of

VOCABULARY = PERIOD = 12
START = VOCABULARY  # a token before the two passes
T, HEADS, QK = 1 + 2 * PERIOD, 4, 30
TOKEN = slice(0, VOCABULARY)  # parts of the residual stream: one-hot token, one-hot position, previous token, answer
POSITION = slice(VOCABULARY, VOCABULARY + T)
PREVIOUS = slice(POSITION.stop, POSITION.stop + VOCABULARY)
ANSWER = slice(PREVIOUS.stop, PREVIOUS.stop + VOCABULARY)
SURE = 20.0  # logit of the answer


def qkv(layer, head):
    """The rows of a layer's map that make a head's queries, keys and values, (QK, width) each."""
    width = HEADS * QK
    return (layer.qkv.weight[part * width + head * QK : part * width + (head + 1) * QK] for part in range(3))


def by_hand(previous, induction, sharp=40.0):
    """Two layers of attention: these heads of the first attend to the previous token and write it down; these heads of
    the second attend where the previous token is the present one, and answer the token there. Where there is none, they
    attend to the start token, which answers nothing. The other heads attend at random and write next to nothing.
    `sharp` is the attention logit where query and key agree."""
    rng = torch.Generator().manual_seed(0)
    c = GPT(layers=2, heads=HEADS, width=HEADS * QK, mlp=False, layer_norm=False, tied=False)
    model = GPTModule(c, VOCABULARY + 1, VOCABULARY, T, rng)
    one, asks = torch.eye(VOCABULARY), sharp * QK**0.5
    with torch.no_grad():
        for p in (model.embed, model.positions, model.read_out.weight):
            p.zero_()
        model.embed[:VOCABULARY, TOKEN] = one
        model.positions[:, POSITION] = torch.eye(T)
        model.read_out.weight[:, ANSWER] = SURE * one
        first, second = (block.attention for block in model.blocks)
        for layer in (first, second):
            layer.out.weight.mul_(0.01)
        for layer, heads in ((first, previous), (second, induction)):
            for head in heads:
                for matrix in (*qkv(layer, head), layer.out.weight[:, head * QK : (head + 1) * QK]):
                    matrix.zero_()
        for head in previous:
            q, k, v = qkv(first, head)
            q[:T, POSITION] = asks * torch.eye(T).roll(-1, 0)  # position t asks for t - 1
            k[:T, POSITION] = torch.eye(T)
            v[:VOCABULARY, TOKEN] = one
            first.out.weight[PREVIOUS, head * QK : head * QK + VOCABULARY] = one
        for head in induction:
            q, k, v = qkv(second, head)
            q[:VOCABULARY, TOKEN] = asks * one
            k[:VOCABULARY, PREVIOUS] = one
            q[VOCABULARY, POSITION] = 0.75 * asks  # every position asks for the start, but less
            k[VOCABULARY, POSITION.start] = 1.0
            v[:VOCABULARY, TOKEN] = one
            second.out.weight[ANSWER, head * QK : head * QK + VOCABULARY] = one
    return model


def repeated(n=256):
    tokens = torch.rand(n, VOCABULARY, generator=torch.Generator().manual_seed(1)).argsort(1)
    return Repeated(torch.cat([torch.full((n, 1), START), tokens, tokens], 1), PERIOD)


def test_a_circuit_made_by_hand_is_named():
    model, sequences = by_hand(previous=[2], induction=[1]), repeated()
    with torch.no_grad():
        maps = model.observe(sequences.tokens, whole=True)[1]
    assert previous_token(maps[0])[2].item() == pytest.approx(1, abs=1e-4)
    found = find_induction_circuit(model, sequences)
    assert (found.feeder, found.induction_head) == ((0, 2), (1, 1))
    assert found.induction == pytest.approx(1, abs=1e-4)
    assert found.copy_advantage == pytest.approx(np.log(VOCABULARY), rel=0.01)  # a guess, then certain
    assert found.load_bearing == [(0, 2), (1, 1)]
    assert (found.induction_heads, found.feeders) == (None, None)
    without = {(a.layer, a.head): a for a in found.ablations}
    assert set(without) == {(layer, head) for layer in range(2) for head in range(HEADS)}
    assert without[0, 2].induction < 0.2
    for at, a in without.items():
        if at not in found.load_bearing:
            assert a.copy_advantage == pytest.approx(found.copy_advantage, rel=0.02)
            assert a.induction == pytest.approx(1, abs=1e-3)
    assert "layer 2, head 2" in found.says[0]
    assert "layer 1, head 3" in found.says[1]


def test_heads_that_replace_each_other_are_named_together():
    found = find_induction_circuit(by_hand(previous=[0, 3], induction=[1, 2], sharp=8.0), repeated())
    assert found.load_bearing == []
    assert set(found.induction_heads.heads) == {(1, 1), (1, 2)}
    assert set(found.feeders.heads) == {(0, 0), (0, 3)}
    for together in (found.induction_heads, found.feeders):
        assert together.copy_advantage < 0.1 * found.copy_advantage
        assert together.without_others > 0.9 * found.copy_advantage


def test_ablation_by_the_definition():
    """Against an own computation: the output of the head replaced by its mean over sequences, at each position."""
    model, sequences = by_hand(previous=[2], induction=[1]), repeated(32)
    layer = model.blocks[1].attention
    plain = layer.out.forward

    def without(y):
        y = y.clone()
        for t in range(T):
            y[:, t, QK : 2 * QK] = y[:, t, QK : 2 * QK].mean(0)
        return plain(y)

    found = find_induction_circuit(model, sequences)
    layer.out.forward = without
    with torch.no_grad():
        logits = model(sequences.tokens)
    losses = nn.functional.cross_entropy(logits[:, :-1].mT, sequences.tokens[:, 1:], reduction="none")
    expected = (losses[:, 1:PERIOD].mean() - losses[:, PERIOD + 1 :].mean()).item()
    (row,) = (a for a in found.ablations if (a.layer, a.head) == (1, 1))
    assert row.copy_advantage == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_a_random_model_has_no_load_bearing_head(seed):
    c = GPT(layers=3, heads=HEADS, width=32)
    model = GPTModule(c, START + 1, START + 1, T, torch.Generator().manual_seed(seed))
    found = find_induction_circuit(model, repeated())
    assert abs(found.copy_advantage) < 0.1
    assert found.load_bearing == []
    assert (found.induction_heads, found.feeders) == (None, None)
    assert len(found.says) == 1


def test_one_layer_has_no_feeder():
    model = GPTModule(GPT(layers=1, heads=2, width=8), START + 1, START + 1, T, torch.Generator().manual_seed(0))
    assert find_induction_circuit(model, repeated(8)).feeder is None


def test_a_model_without_heads_is_refused():
    with refused("model"):
        find_induction_circuit(nn.Linear(2, 2), repeated(8))


def test_a_stored_circuit_is_read_back():
    for model in (by_hand([2], [1]), by_hand([0, 3], [1, 2], sharp=8.0)):
        found = find_induction_circuit(model, repeated())
        stored = json.loads(json.dumps(found.as_dict()))
        assert InductionCircuit.from_dict(stored) == found
        assert in_words(stored, None) == found.says == stored["says"]


def test_a_text_run_that_emerged_stores_its_circuit(tmp_path, monkeypatch):
    """The evaluator sees 5 nats more than there are, so that the run emerges at once."""
    monkeypatch.setattr(evaluator, "copy_advantage", lambda *args: 5.0 + copy_advantage(*args))
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("".join(map(chr, np.random.default_rng(0).integers(97, 123, 4000))))
    small = ["task.vocabulary=256", "task.context=32", "model.width=16", "model.heads=2", "train.batch=4"]
    spec = load_spec("text", [f"task.corpus={corpus}", *small, "train.max_steps=50"])
    done, again = (execute(spec, Store(tmp_path / "runs")) for _ in range(2))
    assert done.result.status == "emerged"
    circuit = done.result.circuit
    assert circuit["kind"] == "induction"
    assert circuit["copy_advantage"] == pytest.approx(done.result.final["copy_advantage"] - 5.0, abs=1e-5)
    assert len(circuit["ablations"]) == 4
    assert again.cached
    assert again.result.circuit == json.loads(json.dumps(circuit))
    shown = runs_of(tmp_path / "runs")
    assert shown.circuits == {done.run_id: circuit["says"]}
    assert {"copy_advantage", "in_context_score", "best_induction"} <= set(shown.curves[done.run_id])
