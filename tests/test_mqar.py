"""MQAR: what is drawn, that only asked positions count, and that a GPT trains on it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from amounts import examples
from refusals import invalid, refused
from unstuck.config import load_spec
from unstuck.models.gpt import GPT
from unstuck.runner.execute import execute
from unstuck.store.store import Store
from unstuck.tasks.mqar import IGNORED, MQAR
from unstuck.training.evaluator import Evaluator, link_columns
from unstuck.training.seeds import stream

SMALL = [
    "task.tokens=16",
    "task.pairs=2",
    "task.T=8",
    "model.width=16",
    "model.heads=2",
    "train.batch=8",
    "train.probe_every=20",
]


@st.composite
def tasks(draw):
    pairs = draw(st.integers(2, 6))
    return MQAR(
        pairs=pairs,
        tokens=draw(st.integers(2 * pairs + 2, 30)),
        T=draw(st.integers(4 * pairs, 40)),
        power=draw(st.sampled_from([0.01, 0.5, 1.0])),
        filler=draw(st.sampled_from(["random", "zero"])),
    )


def answers(sequence, pairs):
    """By reading: the value of each key of the pairs."""
    return dict(zip(sequence[: 2 * pairs : 2], sequence[1 : 2 * pairs : 2], strict=True))


@given(tasks(), st.integers(0, 5))
@settings(max_examples=examples(100), deadline=None)
def test_what_every_batch_obeys(task, seed):
    batch = task.sample(24, stream(seed, "data"), {})
    assert batch.inputs.shape == batch.targets.shape == (24, task.T)
    assert batch.inputs.dtype == batch.targets.dtype == torch.long
    assert batch.inputs.min() >= 0
    assert batch.inputs.max() < task.tokens
    assert not batch.relevant.any()
    half = task.tokens // 2
    for sequence, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        value_of = answers(sequence, task.pairs)
        assert len(value_of) == len(set(value_of.values())) == task.pairs  # one value a key, one key a value
        assert all(0 < key < half <= value for key, value in value_of.items())
        asked = [t for t, target in enumerate(targets) if target != IGNORED]
        assert sorted(sequence[t] for t in asked) == sorted(value_of)  # every key once
        assert all(targets[t] == value_of[sequence[t]] for t in asked)
        assert all(t >= 2 * task.pairs and t % 2 == 0 for t in asked)
        if task.filler == "zero":
            assert all(sequence[t] == 0 for t in range(2 * task.pairs, task.T) if t not in asked)


@given(tasks(), st.integers(0, 5))
@settings(max_examples=examples(50), deadline=None)
def test_links_lead_from_each_question_to_its_value_and_from_there_to_the_key(task, seed):
    batch = task.sample(8, stream(seed, "data"), {})
    links = task.links(batch)
    assert links["attn"].sum((1, 2)).tolist() == links["copy"].sum((1, 2)).tolist() == [task.pairs] * 8
    for n, row, column in links["attn"].nonzero().tolist():
        assert batch.targets[n, row] == batch.inputs[n, column]
        assert batch.inputs[n, row] == batch.inputs[n, column - 1]
        assert links["copy"][n, column, column - 1]


def test_places_follow_the_power_law():
    """The key of the first pair draws first: it is asked at place i with probability i^(power - 1) / sum."""
    for power in (0.01, 1.0):
        task = MQAR(tokens=16, pairs=2, T=20, power=power)
        places = task.places(100_000, stream(0, "data"))
        share = torch.bincount((places[:, 0] - 4) // 2, minlength=8) / len(places)
        p = torch.arange(1, 9, dtype=torch.float64) ** (power - 1)
        assert share.tolist() == pytest.approx((p / p.sum()).tolist(), abs=0.006)
        second = torch.bincount((places[:, 1] - 4) // 2, minlength=8) / len(places)
        p = (p / p.sum()).tolist()
        without = [sum(p[j] * p[i] / (1 - p[j]) for j in range(8) if j != i) for i in range(8)]
        assert second.tolist() == pytest.approx(without, abs=0.006)


def test_keys_values_and_fillers_are_uniform():
    batch = MQAR(tokens=12, pairs=3, T=40).sample(30_000, stream(0, "data"), {})
    keys, values = batch.inputs[:, 0:6:2], batch.inputs[:, 1:6:2]
    assert (torch.bincount(keys.flatten(), minlength=12) / keys.numel()).tolist() == pytest.approx(
        [0] + [1 / 5] * 5 + [0] * 6, abs=0.005
    )
    assert (torch.bincount(values.flatten(), minlength=12) / values.numel()).tolist() == pytest.approx(
        [0] * 6 + [1 / 6] * 6, abs=0.005
    )
    filler = batch.inputs[:, 7::2]
    assert (torch.bincount(filler.flatten()) / filler.numel()).tolist() == pytest.approx([1 / 12] * 12, abs=0.005)


def oracle(task, batch):
    """Logits of what reading the pairs tells; nonsense where nothing is asked."""
    logits = torch.randn(*batch.inputs.shape, task.outputs, generator=stream(1, "nonsense"))
    for n, sequence in enumerate(batch.inputs.tolist()):
        value_of = answers(sequence, task.pairs)
        for t in range(2 * task.pairs, task.T):
            if sequence[t] in value_of:
                logits[n, t] = 0.0
                logits[n, t, value_of[sequence[t]]] = 50.0
    return logits


@given(tasks(), st.integers(0, 5))
@settings(max_examples=25, deadline=None)
def test_reading_the_pairs_answers_every_question(task, seed):
    batch = task.sample(6, stream(seed, "data"), {})
    found = task.measures(oracle(task, batch), batch)
    assert found["accuracy"].tolist() == pytest.approx([1.0] * 6)
    assert found["loss"].max() < 1e-6


def test_positions_that_are_not_asked_do_not_count():
    task = MQAR(tokens=16, pairs=3, T=16)
    batch = task.sample(5, stream(0, "data"), {})
    logits = torch.randn(5, 16, 16, generator=stream(0, "logits"))
    asked = batch.targets != IGNORED
    changed = torch.where(asked[:, :, None], logits, 7 * logits.flip(0))
    for name, values in task.measures(logits, batch).items():
        assert torch.equal(values, task.measures(changed, batch)[name])
    losses = torch.nn.functional.cross_entropy(logits[asked], batch.targets[asked], reduction="none")
    assert torch.allclose(task.losses(logits, batch.targets), losses.view(5, 3).mean(1))
    right = (logits[asked].argmax(1) == batch.targets[asked]).float()
    assert torch.allclose(task.measures(logits, batch)["accuracy"], right.view(5, 3).mean(1))


def test_draws_are_what_they_were():  # of every stored run; other draws are another `version`
    batch = MQAR(tokens=10, pairs=2, T=10).sample(2, stream(0, "data"), {})
    assert batch.inputs.tolist() == [[2, 6, 1, 5, 1, 0, 2, 9, 0, 4], [2, 5, 3, 7, 2, 0, 0, 5, 3, 3]]
    assert batch.targets[:, 4:].tolist() == [[5, -100, 6, -100, -100, -100], [5, -100, -100, -100, 7, -100]]


@pytest.mark.parametrize(
    ("word", "error"),
    [
        ("task.pairs=9", invalid("task.pairs", 9, "task.tokens", 16)),
        ("task.T=7", refused("task.T", 7, allowed=[8])),
        ("task.T=11", invalid("task.T", 11, "task.pairs", 12)),
        ("task.tokens=5", refused("task.tokens", 5, allowed=[6])),
        ("task.pairs=1", refused("task.pairs", 1, allowed=[2])),
        ("task.power=0", refused("task.power", 0)),
        ("task.power=1.5", refused("task.power", 1.5, allowed=[1])),
        ("task.filler=blank", refused("task.filler", "blank", allowed=["'random'", "'zero'"])),
        ("task.pair=3", refused("task.pair", 3, nearest="pairs")),
        ("train.thresholds=[0.5,1.5]", refused("train.thresholds", [0.5, 1.5], allowed=[0, 1])),
    ],
)
def test_impossible_mqar_is_refused(word, error):
    with error:
        load_spec("mqar", ["task.tokens=16", "task.pairs=3", "task.T=12", word])


def test_attention_along_links_is_measured_by_the_evaluator():
    """By a loop over questions, from the maps that the model shows."""
    spec = load_spec("mqar", SMALL)
    model = spec.model.build(spec.task, stream(0, "init"))
    _, columns = Evaluator(spec, model, {}, "cpu", []).observe()
    task, batch = spec.task, spec.task.sample(16, stream(2, "data"), {})
    _, maps = model.observe(batch.inputs, whole=True)
    found = link_columns(maps, task.links(batch))
    for layer, weights in enumerate(maps):
        for head in range(2):
            assert {f"attn_{layer}_{head}", f"copy_{layer}_{head}", f"row_entropy_{layer}_{head}"} <= columns.keys()
            by_hand = []
            for n, sequence in enumerate(batch.inputs.tolist()):
                for t in (batch.targets[n] != IGNORED).nonzero().flatten().tolist():
                    value = sequence[: 2 * task.pairs : 2].index(sequence[t]) * 2 + 1
                    by_hand.append(weights[n, head, t, value].item())
            assert found[f"attn_{layer}_{head}"] == pytest.approx(sum(by_hand) / len(by_hand), rel=1e-5)


def test_a_gpt_predicts_at_every_position():
    task = MQAR(tokens=16, pairs=2, T=8)
    model = GPT(width=16, heads=2).build(task, stream(0, "init"))
    assert model(task.sample(3, stream(0, "data"), {}).inputs).shape == (3, 8, 16)


def test_a_run_is_stored_and_resumes(tmp_path):
    part, whole = (load_spec("mqar", [*SMALL, f"train.max_steps={n}"]) for n in (20, 45))
    assert execute(part, Store(tmp_path / "a")).result.status == "censored"
    resumed = execute(whole, Store(tmp_path / "a")).result
    at_once = execute(whole, Store(tmp_path / "b")).result
    assert (resumed.resumed_from, resumed.steps) == (20, 45)
    assert resumed.final == at_once.final
    curve = Store(tmp_path / "a").run(whole.run_id).curve()
    assert {"attention", "copying", "row_entropy"} <= set(curve.measures)
    assert curve.has("train_accuracy", "test_accuracy")
