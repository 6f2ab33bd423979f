"""The regression task as in B.1: what is drawn, and which combinations cannot be solved."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from amounts import examples
from refusals import names
from unstuck.tasks.single_location import SingleLocation
from unstuck.training.seeds import stream


@st.composite
def tasks(draw):
    T = draw(st.integers(2, 12))
    position, feature = draw(st.sampled_from([("random", True), ("fixed", True), ("fixed", False), ("last", False)]))
    return SingleLocation(
        T=T,
        d=draw(st.integers(1, 6)),
        B=draw(st.integers(1, T - 1)),
        p=draw(st.sampled_from([0.0, 0.3, 1.0])),
        position=position,
        feature=feature,
    )


@given(tasks(), st.integers(0, 5))
@settings(max_examples=examples(80), deadline=None)
def test_what_every_batch_obeys(task, seed):
    world = task.world(stream(seed, "world"))
    batch = task.sample(16, stream(seed, "data"), world)
    assert batch.inputs.shape == (16, task.T, task.inputs)
    assert torch.all(batch.relevant.sum(1) == task.B)  # B distinct positions
    tokens = batch.inputs[:, :, : task.d]
    first = batch.relevant.float().argmax(1)
    x = tokens[torch.arange(16), first]
    copies = tokens[batch.relevant].view(16, task.B, task.d)
    assert torch.equal(copies, x[:, None].expand_as(copies))  # the same token everywhere
    assert torch.allclose(batch.targets, x @ world["target"].T, atol=1e-5)
    if task.feature:
        assert torch.equal(batch.inputs[:, :, -1].bool(), batch.relevant)
    if task.position != "random":
        assert torch.equal(batch.relevant, batch.relevant[:1].expand_as(batch.relevant))
    if task.position == "last":
        assert batch.relevant[:, task.T - task.B :].all()
    if task.p == 1:
        assert torch.equal(x, world["frequent"].expand_as(x))


def test_moments_are_those_of_the_paper():
    task = SingleLocation(T=6, d=20, p=0.25)
    world = task.world(stream(0, "world"))
    batch = task.sample(40_000, stream(0, "data"), world)
    assert batch.inputs[:, :, :20].square().sum(-1)[~batch.relevant].mean().item() == pytest.approx(1, abs=0.01)
    assert batch.relevant.float().mean(0).tolist() == pytest.approx([1 / 6] * 6, abs=0.01)  # no favourite position
    x = batch.inputs[:, :, :20][batch.relevant]
    repeated = (x == world["frequent"]).all(1).float().mean().item()
    assert repeated == pytest.approx(0.25, abs=0.01)
    big = SingleLocation(T=2, d=200).world(stream(1, "world"))["target"]
    assert big.square().sum(0).mean().item() == pytest.approx(1, abs=0.05)  # columns of norm one on average


def test_test_data_has_no_repetition_and_bursty_tasks_are_judged_as_trained():
    task = SingleLocation(T=8, d=2, B=4, p=0.5)
    assert (task.clean().B, task.clean().p) == (1, 0)
    assert (task.primary().B, task.primary().p) == (4, 0)


@pytest.mark.parametrize(
    "wrong",
    [{"T": 1}, {"d": 0}, {"B": 0}, {"p": 1.1}, {"p": -0.1}, {"position": "first"}, {"size": 3}],
)
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(ValidationError) as refused:
        SingleLocation(**wrong)
    assert [(e["loc"], e["input"]) for e in refused.value.errors()] == [((name,), x) for name, x in wrong.items()]


@pytest.mark.parametrize(
    ("together", "settings"),
    [({"T": 4, "B": 4}, ["task.B", "task.T"]), ({"feature": False}, ["task.feature", "task.position"])],
)
def test_settings_that_do_not_go_together_are_named(together, settings):
    with pytest.raises(ValidationError) as refused:
        SingleLocation(**together)
    (error,) = refused.value.errors()
    assert error["loc"] == ()
    assert names(error["msg"], *settings)


def test_streams_of_a_seed_differ_by_name_and_by_seed():
    draws = {
        torch.rand(4, generator=stream(seed, name)).sum().item() for seed in (0, 1) for name in ("init", "data", "eval")
    }
    assert len(draws) == 6
    assert torch.equal(torch.rand(4, generator=stream(3, "data")), torch.rand(4, generator=stream(3, "data")))
