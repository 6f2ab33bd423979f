"""The induction-heads task: what is drawn, and that a GPT trains on it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from amounts import examples
from refusals import refused
from unstuck.config import load_spec
from unstuck.models.gpt import GPT
from unstuck.runner.execute import execute
from unstuck.store.store import Store
from unstuck.tasks.induction_heads import InductionHeads
from unstuck.training.seeds import stream

SMALL = ["task.tokens=6", "task.T=8", "model.width=16", "model.heads=2", "train.batch=8", "train.probe_every=20"]
sizes = st.builds(InductionHeads, tokens=st.integers(2, 20), T=st.integers(4, 40))


def read(sequence, special):
    """By reading: what followed the special token the first time."""
    return sequence[sequence.index(special) + 1]


@given(sizes, st.integers(0, 5))
@settings(max_examples=examples(100), deadline=None)
def test_what_every_batch_obeys(task, seed):
    batch = task.sample(24, stream(seed, "data"), {})
    assert batch.inputs.shape == (24, task.T)
    assert batch.inputs.dtype == batch.targets.dtype == torch.long
    assert batch.inputs.min() >= 0
    for sequence, target, relevant in zip(*(x.tolist() for x in batch[:3]), strict=True):
        assert max(sequence) == task.tokens
        assert sequence.count(task.tokens) == 2
        assert sequence[-1] == task.tokens
        assert target == read(sequence, task.tokens) < task.tokens
        assert [t for t, r in enumerate(relevant) if r] == [sequence.index(task.tokens) + 1]


@given(sizes, st.integers(0, 5))
@settings(max_examples=25, deadline=None)
def test_reading_the_sequence_answers_it(task, seed):
    batch = task.sample(16, stream(seed, "data"), {})
    guess = torch.tensor([read(sequence, task.tokens) for sequence in batch.inputs.tolist()])
    found = task.measures(50 * torch.nn.functional.one_hot(guess, task.outputs).float(), batch)
    assert found["accuracy"].tolist() == [1.0] * 16
    assert found["loss"].max() < 1e-6


def test_places_and_tokens_are_uniform():
    batch = InductionHeads(tokens=5, T=10).sample(40_000, stream(0, "data"), {})
    assert batch.relevant.float().mean(0).tolist() == pytest.approx([0] + [1 / 8] * 8 + [0], abs=0.006)
    assert (torch.bincount(batch.targets) / 40_000).tolist() == pytest.approx([1 / 5] * 5, abs=0.008)
    others = batch.inputs[batch.inputs < 5]
    assert (torch.bincount(others) / len(others)).tolist() == pytest.approx([1 / 5] * 5, abs=0.005)


@pytest.mark.parametrize(("T", "share"), [(32, 0.15), (256, 0.10)])
def test_the_most_frequent_token_is_a_better_guess_than_chance(T, share):  # as the docstring of `chance` says
    task = InductionHeads(tokens=16, T=T)
    batch = task.sample(20_000, stream(0, "data"), {})
    most = torch.nn.functional.one_hot(batch.inputs, 17)[:, :, :16].sum(1).argmax(1)
    assert (most == batch.targets).float().mean().item() == pytest.approx(share, abs=0.01)
    assert task.chance < share


def test_copying_leads_from_the_relevant_token_to_the_special_one():
    task = InductionHeads(tokens=7, T=12)
    batch = task.sample(50, stream(0, "data"), {})
    copy = task.links(batch)["copy"]
    assert copy.sum((1, 2)).tolist() == [1] * 50
    for n, row, column in copy.nonzero().tolist():
        assert batch.relevant[n, row]
        assert column == row - 1
        assert batch.inputs[n, column] == 7


def test_defaults_are_those_of_mamba():
    task = InductionHeads()
    assert (task.tokens, task.T, task.inputs, task.outputs) == (16, 256, 17, 17)


def test_draws_are_what_they_were():  # of every stored run; other draws are another `version`
    batch = InductionHeads(tokens=6, T=8).sample(2, stream(0, "data"), {})
    assert batch.inputs.tolist() == [[2, 6, 2, 0, 2, 0, 1, 6], [2, 5, 2, 4, 6, 4, 3, 6]]
    assert batch.targets.tolist() == [2, 4]


@pytest.mark.parametrize(
    ("word", "error"),
    [
        ("task.T=3", refused("task.T", 3, allowed=[4])),
        ("task.tokens=1", refused("task.tokens", 1, allowed=[2])),
        ("task.tokens=2.5", refused("task.tokens", 2.5)),
        ("task.token=3", refused("task.token", 3, nearest="tokens")),
        ("train.thresholds=1.5", refused("train.thresholds", [1.5], allowed=[0, 1])),
    ],
)
def test_impossible_induction_heads_are_refused(word, error):
    with error:
        load_spec("induction-heads", [word])


def test_a_gpt_is_read_at_the_end():
    task = InductionHeads(tokens=6, T=8)
    model = GPT(width=16, heads=2).build(task, stream(0, "init"))
    assert model(task.sample(3, stream(0, "data"), {}).inputs).shape == (3, 7)


def test_a_run_is_stored_and_resumes(tmp_path):
    part, whole = (load_spec("induction-heads", [*SMALL, f"train.max_steps={n}"]) for n in (20, 45))
    assert execute(part, Store(tmp_path / "a")).result.status == "censored"
    resumed = execute(whole, Store(tmp_path / "a")).result
    at_once = execute(whole, Store(tmp_path / "b")).result
    assert (resumed.resumed_from, resumed.steps) == (20, 45)
    assert resumed.final == at_once.final
    curve = Store(tmp_path / "a").run(whole.run_id).curve()
    assert {"attention", "copying", "readout_entropy", "row_entropy"} <= set(curve.measures)
    assert curve.has("train_accuracy", "test_accuracy")
