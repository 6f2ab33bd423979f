"""Training for real: emergence, the plateau's definition, divergence, budgets, and the same bits after a stop."""

import math

import numpy as np
import pytest
import torch

import unstuck
from refusals import invalid
from unstuck.cli import main
from unstuck.config import load_spec
from unstuck.curve import Curve
from unstuck.models.transformer import Transformer
from unstuck.runner.budget import satisfies, truncate
from unstuck.runner.execute import execute
from unstuck.store.store import Result, Store
from unstuck.tasks.single_location import SingleLocation
from unstuck.theory import Flow
from unstuck.training.emergence import FallingCrossings
from unstuck.training.loop import Run
from waiting import eventually

TINY = [
    "task.T=6",
    "task.d=2",
    "model.width=32",
    "model.heads=2",
    "model.qk=16",
    "optim.lr=1e-3",
    "train.probe_every=5",
]


def tiny(*words):
    return load_spec("regression", [*TINY, *words])


def same_tensors(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_the_papers_transformer_emerges():
    """d = 8, T = 16: between step 100 and 260 (facts: 160), with attention rising before the loss falls."""
    run = Run(load_spec("regression", ["task.d=8", "task.T=16"]))
    result = run.advance()
    assert result.status == "emerged"
    assert 100 <= result.plateau_steps <= 260
    assert result.curve.loss[-1] <= 0.1
    best, flat = result.curve.best("attention"), result.curve.loss > 0.4
    gains = best[1:][flat[1:]] / best[0]
    assert gains[-1] > 1.3  # while the loss is still flat
    assert best[-1] > 0.5
    assert result.curve.has("train_loss", "clean_loss", "like_loss", "grad_norm")
    assert result.curve.measures == ["attention", "selectivity", "readout_entropy", "row_entropy"]
    assert result.curve.heads("row_entropy").shape[1:] == (2, 4)


@pytest.mark.slow
@pytest.mark.parametrize(("words", "low", "high"), [(["task.d=16", "task.T=32"], 350, 700)])
def test_larger_runs_emerge_where_the_facts_say(words, low, high):
    assert low <= Run(load_spec("regression", words)).advance().plateau_steps <= high


@pytest.mark.slow
def test_repetition_in_context_is_faster():
    plateaus = [
        Run(load_spec("regression", ["task.d=16", "task.T=32", f"task.B={B}"])).advance().plateau_steps for B in (1, 4)
    ]
    assert plateaus[1] < 0.75 * plateaus[0]


@pytest.mark.slow
def test_adam_beats_sgd_by_ten():
    small = ["task.d=16", "task.T=32", "model.layers=1", "model.heads=1"]
    adam = Run(load_spec("regression", small)).advance().plateau_steps
    sgd = Run(load_spec("regression", [*small, "optim.name=sgd", "optim.lr=5e-3"])).advance().plateau_steps
    assert sgd > 10 * adam


def drop(step, *, at, width, floor=0.01):
    """A loss like those we train on: flat at 0.55, then down."""
    return floor + (0.55 - floor) / (1 + math.exp((step - at) / width))


@pytest.mark.parametrize(("at", "width"), [(160, 8), (500, 25), (3000, 120), (20_000, 700)])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_the_plateau_is_found_within_two_percent_with_few_evaluations(at, width, noise):
    rng = np.random.default_rng(0)
    watch = FallingCrossings((0.1,))
    full, step, next_row = 0, 0, 20
    while watch.next_threshold is not None:
        step += 1
        watch.trained(drop(step, at=at, width=width) * math.exp(noise * rng.normal()))
        wants = watch.wants_full(step)
        if wants or step >= next_row:
            watch.evaluated(step, drop(step, at=at, width=width), full=wants)
            full += wants
            next_row = step + max(20, int(0.04 * step))
    truth = at + width * math.log((0.55 - 0.1) / (0.1 - 0.01))
    assert watch.crossings["0.1"] == pytest.approx(truth, rel=0.02)
    assert full <= 6


def test_a_noisy_row_between_two_full_evaluations_does_not_move_the_plateau():
    """The bracket is made of full evaluations; ordinary rows, on few sequences, may dip below the threshold early."""
    watch = FallingCrossings((0.1,))
    for _ in range(20):
        watch.trained(0.14)
    watch.evaluated(100, 0.14, full=True)
    watch.evaluated(104, 0.09, full=False)
    watch.evaluated(110, 0.08, full=True)
    expected = 100 + 10 * math.log(0.14 / 0.1) / math.log(0.14 / 0.08)
    assert watch.crossings["0.1"] == pytest.approx(expected)


@pytest.mark.parametrize(("at", "width"), [(200, 10), (1500, 40)])
@pytest.mark.parametrize("thresholds", [(0.1, 0.4, 0.2), (0.4,), (0.3,)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_thresholds_at_any_height_are_found_within_two_percent(at, width, thresholds, seed):
    """Also 0.4, close to the plateau itself, and with rows on few sequences that are 6% off."""
    rng = np.random.default_rng(seed)
    watch, full, step, next_row = FallingCrossings(thresholds), 0, 0, 0
    while watch.next_threshold is not None:
        value = drop(step, at=at, width=width)
        if step:
            watch.trained(value * math.exp(0.1 * rng.normal()))
        wants = watch.wants_full(step)
        if wants or step >= next_row:
            watch.evaluated(step, value * math.exp(0 if wants else 0.06 * rng.normal()), full=wants)
            full += wants
            next_row = step + max(20, int(0.04 * step))
        step += 1
    for threshold in thresholds:
        truth = at + width * math.log((0.55 - threshold) / (threshold - 0.01))
        assert watch.crossings[f"{threshold:g}"] == pytest.approx(truth, rel=0.02)
    assert list(watch.crossings.values()) == sorted(watch.crossings.values())
    assert watch.last_crossing == max(watch.crossings.values())
    assert full <= 4 * len(thresholds) + 0.005 * at  # each takes the time of eleven steps


def test_a_budget_that_ended_on_the_plateau_does_not_move_the_crossing():
    """Its last row is a full evaluation far from the threshold; the crossing is bounded by later ones."""
    watch = FallingCrossings((0.1,))
    for step in range(600):
        value = drop(step, at=500, width=15)
        if step:
            watch.trained(value)
        full = step == 70 or watch.wants_full(step)
        if full or step % 20 == 0:
            watch.evaluated(step, value, full=full)
    assert watch.crossings["0.1"] == pytest.approx(500 + 15 * math.log(0.45 / 0.09), rel=0.005)


def test_a_run_stopped_anywhere_goes_on_to_the_same_bits(tmp_path):
    spec = tiny("train.max_steps=60", "train.thresholds=[]")
    whole = Run(spec)
    expected = whole.advance()
    for stop_at in (0, 1, 7, 33, 59):
        store = Store(tmp_path / str(stop_at))
        calls = iter(range(10**6))
        first = execute(spec, store, stop=lambda calls=calls, at=stop_at: next(calls) >= at, keep=True)
        assert first.result.status == "stopped"
        again = execute(spec, store, keep=True)
        assert (again.result.status, again.result.resumed_from) == ("finished", stop_at)
        directory = store.run(spec.run_id)
        assert directory.curve() == expected.curve
        assert same_tensors(directory.read_checkpoint()["tensors"], whole.checkpoint().tensors)


def test_the_same_bits_also_with_evaluations_near_the_threshold(tmp_path):
    """Full evaluations come between the ordinary rows; a stop just before one must not show."""
    spec = tiny("task.T=2", "task.d=1", "train.thresholds=[0.3, 0.2]", "train.max_steps=2000", "train.after=7")
    whole = Run(spec)
    expected = whole.advance()
    assert expected.status == "emerged"
    near = [int(step) for step in expected.curve.steps if step > 0][-4:]
    for stop_at in {max(0, step + shift) for step in near for shift in (-1, 0)}:
        store = Store(tmp_path / str(stop_at))
        calls = iter(range(10**6))
        execute(spec, store, stop=lambda calls=calls, at=stop_at: next(calls) >= at, keep=True)
        again = execute(spec, store, keep=True)
        directory = store.run(spec.run_id)
        assert again.result.plateau_steps == expected.plateau_steps
        assert directory.curve() == expected.curve
        assert same_tensors(directory.read_checkpoint()["tensors"], whole.checkpoint().tensors)


def test_a_larger_budget_continues_a_censored_run_and_the_same_is_cached(tmp_path):
    store = Store(tmp_path)
    short = execute(tiny("train.max_steps=20", "train.thresholds=1e-9"), store)
    assert (short.result.status, short.result.steps, short.result.plateau_steps) == ("censored", 20, None)
    assert execute(tiny("train.max_steps=20", "train.thresholds=1e-9"), store).cached
    longer = execute(tiny("train.max_steps=50", "train.thresholds=1e-9"), store)
    assert (longer.cached, longer.result.resumed_from, longer.result.steps) == (False, 20, 50)
    straight = Run(tiny("train.max_steps=50", "train.thresholds=1e-9")).advance()
    # the shorter run looked once more at its own end; all rows they share are equal
    both = store.run(short.run_id).curve().to_frame().merge(straight.curve.to_frame(), how="inner")
    assert len(both) >= len(straight.curve) - 1


def test_a_diverging_run_is_named_with_its_step(tmp_path):
    result = execute(tiny("optim.name=sgd", "optim.lr=100", "train.max_steps=200"), Store(tmp_path))
    assert result.result.status == "diverged"
    assert 0 < result.result.steps < 200


def test_after_keeps_training_after_the_crossing():
    easy = ["task.T=2", "task.d=1", "train.thresholds=0.2", "train.max_steps=3000"]
    plain, longer = Run(tiny(*easy)).advance(), Run(tiny(*easy, "train.after=40")).advance()
    assert plain.status == longer.status == "emerged"
    assert plain.plateau_steps == longer.plateau_steps
    assert longer.steps >= plain.plateau_steps + 40


def test_without_learning_nothing_emerges():
    result = Run(tiny("optim.lr=0", "train.max_steps=30")).advance()
    assert result.status == "censored"
    assert len(set(result.curve.loss)) <= 2  # the probe set and the full one


def test_train_from_python_with_a_class_of_ones_own():
    result = unstuck.train(SingleLocation(T=4, d=1), Transformer(width=16, heads=1, qk=8), train={"max_steps": 12})
    assert isinstance(result.curve, Curve)
    assert result.steps == 12


def test_tensorboard_gets_every_row(tmp_path, capsys):
    words = ["train", "regression", *TINY, "train.max_steps=12", "--out", str(tmp_path / "runs")]
    assert main([*words, "--tensorboard", str(tmp_path / "board"), "--json"]) == 0
    capsys.readouterr()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(next((tmp_path / "board").iterdir())))
    board.Reload()
    assert [e.step for e in board.Scalars("test_loss")] == [0, 5, 10, 12]
    assert "attn_1_1" in board.Tags()["scalars"]


def test_wandb_works_offline(tmp_path, capsys, offline_wandb):
    words = ["train", "regression", *TINY, "train.max_steps=12", "--out", str(tmp_path / "runs")]
    assert main([*words, "--wandb", "plateaus", "--json"]) == 0
    capsys.readouterr()
    log = next(tmp_path.glob("wandb/offline-run-*/*.wandb"))  # its format is W&B's own affair
    # Rows at steps 0, 5, 10, 12. W&B's service writes them out a moment after finish() has returned.
    assert eventually(lambda: log.read_bytes().count(b"test_loss") >= 4)
    assert b"single_location" in log.read_bytes()


def test_a_threshold_nobody_looked_out_for_is_not_answered_from_the_store(tmp_path):
    """Easy runs: a finished or censored result says nothing about another threshold; nothing finished is lost."""
    easy = ["task.T=2", "task.d=1", "train.max_steps=400"]
    truth = {x: Run(tiny(*easy, f"train.thresholds={x}")).advance().plateau_steps for x in (0.3, 0.2)}
    for first in ("[]", "1e-9", "0.2"):
        store = Store(tmp_path / first)
        before = execute(tiny(*easy, f"train.thresholds={first}"), store)
        asked = execute(tiny(*easy, "train.thresholds=0.3"), store)
        assert (asked.result.status, asked.cached) == ("emerged", False)
        assert asked.result.plateau_steps == pytest.approx(truth[0.3], rel=0.02)
        assert asked.result.steps >= before.result.steps
        again = execute(tiny(*easy, f"train.thresholds={first}"), store)
        assert (again.result.status, again.cached) == (before.result.status, True)
        if first == "0.2":
            assert again.result.plateau_steps == pytest.approx(truth[0.2], rel=0.02)


def test_going_over_a_finished_run_again_leaves_its_result_until_there_is_more(tmp_path):
    store, easy = Store(tmp_path), ["task.T=2", "task.d=1", "train.max_steps=2000", "train.thresholds=0.3"]
    first = execute(tiny(*easy), store)
    curve = store.run(first.run_id).curve()
    calls = iter(range(10**6))
    stopped = execute(tiny(*easy, "train.after=50"), store, stop=lambda: next(calls) >= 5)
    assert stopped.result.status == "stopped"
    assert execute(tiny(*easy), store).result.plateau_steps == first.result.plateau_steps
    assert store.run(first.run_id).curve() == curve
    longer = execute(tiny(*easy, "train.after=50"), store)
    assert (longer.result.resumed_from, longer.result.plateau_steps) == (5, first.result.plateau_steps)
    assert longer.result.steps >= first.result.plateau_steps + 50


def test_the_plateau_belongs_to_the_threshold_asked_for(tmp_path):
    store, easy = Store(tmp_path), ["task.T=2", "task.d=1", "train.max_steps=2000"]
    both = execute(tiny(*easy, "train.thresholds=[0.3,0.2]"), store, keep=True)
    one = execute(tiny(*easy, "train.thresholds=0.3", "train.after=60"), store)
    assert (one.result.threshold, one.result.plateau_steps) == (0.3, both.result.crossings["0.3"])


def test_an_evaluation_that_explodes_is_a_divergence():
    words = ["optim.name=sgd", "optim.lr=100", "model.layers=4", "train.max_steps=1"]
    assert Run(tiny(*words)).advance().status == "diverged"


def test_skipping_what_is_not_read_leaves_the_plateau_where_it_was():
    """The last block computed in full, by autograd through all positions: the same plateau but for rounding."""
    spec = tiny("task.T=4", "train.thresholds=0.3", "train.max_steps=600")
    pruned, plain = Run(spec), Run(spec)
    block = plain.model.blocks[-1]
    block.at_last = lambda x: block(x)[:, -1]
    assert plain.advance().plateau_steps == pytest.approx(pruned.advance().plateau_steps, rel=0.02)


def test_a_module_and_an_optimiser_of_ones_own():
    linear = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4 * 3, 2))
    before = linear[1].weight.clone()
    task = SingleLocation(T=4, d=2)
    result = unstuck.train(
        task, linear, optim=lambda p: torch.optim.SGD(p, lr=0.1, nesterov=True, momentum=0.5), train={"max_steps": 8}
    )
    assert result.steps == 8
    assert torch.equal(linear[1].weight, before)
    with invalid("out"):
        unstuck.train(task, linear, optim=lambda p: torch.optim.SGD(p, lr=0.1), out="somewhere")


def test_a_module_in_a_store_is_known_by_its_start(tmp_path):
    task, runs = SingleLocation(T=4, d=2), []
    for seed in (0, 1, 0):
        torch.manual_seed(seed)
        module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4 * 3, 2))
        runs.append(unstuck.train(task, module, train={"max_steps": 4}, out=tmp_path))
    assert len(list(Store(tmp_path))) == 2
    assert runs[0].curve == runs[2].curve


def test_the_toy_model_is_trained_by_name_and_agrees_with_the_theory():
    result = Run(load_spec("toy")).advance()
    assert result.plateau_steps == pytest.approx(Flow(T=64, d=16).plateau().time, rel=0.05)
    with invalid("model.name", "toy", "task.position", "task.feature"):
        Run(load_spec("regression", ["model.name=toy"]))


def test_a_smaller_budget_gets_the_numbers_of_its_own_end(tmp_path):
    words = [*TINY, "train.thresholds=1e-9"]
    long, short = (load_spec("regression", [*words, f"train.max_steps={n}"]) for n in (60, 10))
    execute(long, Store(tmp_path))
    stored, fresh = execute(short, Store(tmp_path)), execute(short, Store(tmp_path / "fresh"))
    assert (stored.cached, stored.result.steps, fresh.result.steps) == (True, 10, 10)
    assert stored.result.final["test_loss"] > 1.5 * execute(long, Store(tmp_path)).result.final["test_loss"]
    settings = {"train": short.train, "optim": short.optim, "seed": short.seed}
    assert unstuck.train(short.task, short.model, out=tmp_path, **settings).curve.steps.max() <= 10


@pytest.mark.parametrize(
    ("words", "status", "plateau", "steps"),
    [
        (["train.max_steps=1000"], "emerged", 300.0, 1000),  # over before it diverged
        (["train.max_steps=9000"], "emerged", 300.0, 5000),
        (["train.max_steps=9000", "train.at_least=9000"], "diverged", None, 5000),
        (["train.max_steps=200"], "censored", None, 200),
        (["train.max_steps=9000", "train.thresholds=[0.4,0.01]"], "diverged", None, 5000),
        (["train.max_steps=4000", "train.thresholds=[0.4,0.01]"], "censored", None, 4000),
        (["train.max_steps=9000", "train.thresholds=0.2"], None, None, None),  # nobody looked
    ],
)
def test_what_a_run_that_diverged_says_of_another_budget(words, status, plateau, steps):
    result = {"status": "diverged", "plateau_steps": None, "crossings": {"0.4": 200.0, "0.1": 300.0}, "steps": 5000}
    result |= {"watched": [0.4, 0.1, 0.01], "threshold": 0.01}
    stored = Result(**result, final={}, seconds=1.0)
    spec = load_spec("regression", ["train.thresholds=0.1", *words])
    found = truncate(stored, spec) if satisfies(stored, spec) else None
    assert (found and (found.status, found.plateau_steps, found.steps)) == (status and (status, plateau, steps))


def test_a_run_with_maps_goes_on_from_its_checkpoint(tmp_path):
    words = [*TINY, "train.thresholds=1e-9", "train.maps=[0,5]"]
    execute(load_spec("regression", [*words, "train.max_steps=20"]), Store(tmp_path))
    assert execute(load_spec("regression", [*words, "train.max_steps=40"]), Store(tmp_path)).result.resumed_from == 20


def test_a_table_says_what_its_results_looked_out_for(tmp_path):
    """Asked for another threshold and stopped at once, a run keeps its old result, which knows nothing of it."""
    store = Store(tmp_path)
    execute(load_spec("regression", [*TINY, "train.thresholds=1.2"]), store)
    execute(load_spec("regression", [*TINY, "train.thresholds=1.1"]), store, stop=lambda: True)
    assert [list(t) for t in store.table()["thresholds"]] == [[1.2]]
