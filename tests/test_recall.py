"""Recall: what is drawn (C.1), when an accuracy has emerged, and a small model whose circuit is named and proven."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from amounts import examples
from refusals import invalid, names, refused, refused_command
from unstuck.cli import main
from unstuck.config import load_spec
from unstuck.errors import InvalidCombination
from unstuck.models.transformer import Transformer
from unstuck.papers.lab import TieredRun, curves, finished
from unstuck.probes.circuit import UNTRIED, ablated, ablations, find_circuit, in_words
from unstuck.probes.maps import attention_table, draw_attention
from unstuck.runner.budget import satisfies, truncate
from unstuck.runner.execute import execute
from unstuck.store.shards import copy_shards
from unstuck.store.store import Result, Store
from unstuck.tasks.recall import Recall
from unstuck.training.emergence import RisingCrossings
from unstuck.training.evaluator import link_columns
from unstuck.training.loop import Run
from unstuck.training.seeds import stream

SMALL = ["task.tokens=16", "task.pairs=4", "model.layers=2", "model.heads=1", "model.width=64", "model.qk=32"]
SMALL += ["optim.lr=3e-3", "train.batch=64"]


# -- the task


@st.composite
def tasks(draw):
    pairs = draw(st.integers(2, 8))
    return Recall(
        pairs=pairs,
        tokens=draw(st.integers(max(3, pairs + 1), 20)),
        B=draw(st.floats(1, pairs)),
        p=draw(st.sampled_from([0.0, 0.3, 1.0])),
        copies=draw(st.sampled_from(["always", "bernoulli"])),
    )


@given(tasks(), st.integers(0, 5))
@settings(max_examples=examples(100), deadline=None)
def test_what_every_batch_obeys(task, seed):
    batch = task.sample(24, stream(seed, "data"), {})
    assert batch.inputs.shape == (24, 2 * task.pairs + 1)
    assert batch.inputs.dtype == torch.long
    assert batch.inputs.min() >= 0
    assert batch.inputs.max() < task.tokens
    for sequence, target, relevant in zip(*(x.tolist() for x in batch[:3]), strict=True):
        keys, values, query = sequence[:-1:2], sequence[1::2], sequence[-1]
        mapping = {}
        for key, value in zip(keys, values, strict=True):
            assert mapping.setdefault(key, value) == value  # a key has one value
        assert len(set(mapping.values())) == len(mapping)  # and a value one key
        copies = keys.count(query)
        assert len(mapping) == len(keys) - max(0, copies - 1)  # the other keys are distinct
        assert [i for i, r in enumerate(relevant) if r] == [2 * i + 1 for i, k in enumerate(keys) if k == query]
        if copies:
            assert mapping[query] == target
        else:
            assert target not in mapping.values()
            assert task.copies == "bernoulli"
        if task.p == 1:
            assert query < 2


@pytest.mark.parametrize("copies", ["always", "bernoulli"])
def test_the_query_stands_in_the_context_as_often_as_asked(copies):
    task = Recall(tokens=12, pairs=5, B=2.5, copies=copies)
    batch = task.sample(40_000, stream(0, "data"), {})
    count = batch.relevant.sum(1)
    assert count.float().mean().item() == pytest.approx(2.5, abs=0.03)
    assert batch.relevant[:, 1::2].float().mean(0).tolist() == pytest.approx([0.5] * 5, abs=0.015)  # no favourite slot
    none = (count == 0).float().mean().item()
    assert none == (0 if copies == "always" else pytest.approx(0.5**5, abs=0.005))


def test_the_query_has_the_distribution_of_the_paper():
    queries = Recall(tokens=10, pairs=3, p=0.4).queries(100_000, stream(0, "data"))
    share = torch.bincount(queries, minlength=10) / len(queries)
    assert share.tolist() == pytest.approx([0.4 / 2 + 0.6 / 10] * 2 + [0.6 / 10] * 8, abs=0.005)


def test_values_and_other_keys_are_uniform():
    batch = Recall(tokens=7, pairs=4, p=1.0).sample(60_000, stream(0, "data"), {})
    assert (torch.bincount(batch.targets) / 60_000).tolist() == pytest.approx([1 / 7] * 7, abs=0.006)
    others = batch.inputs[:, 0:-1:2][~batch.relevant[:, 1::2]]
    share = torch.bincount(others, minlength=7) / len(others)
    assert share[2:].tolist() == pytest.approx([1 / 6] * 5, abs=0.006)  # token 0 or 1 is the query, the other half free
    assert share[:2].tolist() == pytest.approx([1 / 12] * 2, abs=0.006)


def test_draws_are_what_they_were():  # of every stored run; other draws are another `version`
    batch = Recall(tokens=6, pairs=3).sample(2, stream(0, "data"), {})
    assert batch.inputs.tolist() == [[3, 3, 5, 1, 2, 0, 2], [4, 5, 3, 1, 1, 2, 4]]
    assert batch.targets.tolist() == [0, 5]


def test_test_data_has_no_repetition():
    clean = Recall(tokens=9, pairs=4, B=3, p=0.5, copies="bernoulli").primary()
    assert clean == Recall(tokens=9, pairs=4)
    assert (clean.sample(500, stream(0, "data"), {}).relevant.sum(1) == 1).all()


def test_joined_sequences_are_the_same_draw_with_a_pair_at_one_position():
    apart = Recall(tokens=9, pairs=4, B=1.5, p=0.3)
    joined = replace(apart, joined=True)
    a, j = (task.sample(200, stream(0, "data"), {}) for task in (apart, joined))
    assert j.inputs.shape == (200, 5, 2)
    assert torch.equal(j.inputs[:, :, 0], a.inputs[:, 0::2])  # keys, and last the query
    assert torch.equal(j.inputs[:, :-1, 1] - 9, a.inputs[:, 1::2])
    assert set(j.inputs[:, -1, 1].tolist()) == {18}  # beside the query stands nothing
    assert torch.equal(j.relevant[:, :-1], a.relevant[:, 1::2])
    assert torch.equal(j.targets, a.targets)
    assert (joined.T, joined.inputs, joined.outputs) == (5, 19, 9)
    assert joined.links(j) == {}


def test_joined_recall_is_solved_by_looking_the_query_up():
    batch = Recall(tokens=12, pairs=5, joined=True).sample(500, stream(0, "data"), {})
    for rows, target, relevant in zip(*(x.tolist() for x in batch[:3]), strict=True):
        *pairs, (query, _) = rows
        found = [(place, value - 12) for place, (key, value) in enumerate(pairs) if key == query]
        assert found == [(relevant.index(True), target)]


def test_joined_recall_needs_one_layer_only(tmp_path):
    """Nothing has to be copied, so that one head selects; what copies is neither probed nor named."""
    spec = load_spec("recall", [*SMALL, "task.joined=true", "model.layers=1", "train.thresholds=0.5", "train.after=9"])
    result = execute(spec, Store(tmp_path))
    assert result.result.status == "emerged"
    assert result.result.plateau_steps < 600
    assert result.result.circuit is None
    assert not any(c.startswith("copy_") for c in Store(tmp_path).run(spec.run_id).curve().columns)


@pytest.mark.parametrize("repeated", [1, 4, 10])
def test_as_many_tokens_are_repeated_as_asked(repeated):
    queries = Recall(tokens=10, pairs=3, p=0.4, repeated=repeated).queries(100_000, stream(0, "data"))
    share = torch.bincount(queries, minlength=10) / len(queries)
    wanted = [0.4 / repeated + 0.06] * repeated + [0.06] * (10 - repeated)
    assert share.tolist() == pytest.approx(wanted, abs=0.006)


def test_clean_data_keep_the_shape_of_the_task():
    task = Recall(tokens=9, pairs=4, B=2, p=0.5, repeated=3, copies="bernoulli", joined=True)
    assert task.clean() == Recall(tokens=9, pairs=4, joined=True)


# -- the start of the tokens' vectors


def start(tokens, **settings):
    model = Transformer(layers=1, heads=1, width=64, qk=8, **settings)
    return model.build(Recall(tokens=tokens, pairs=2), stream(0, "init"))


@pytest.mark.parametrize("tokens", [16, 256, 4096])
def test_a_normal_start_does_not_shrink_with_the_vocabulary(tokens):
    linear, normal = start(tokens), start(tokens, embedding="normal")
    assert normal.embed.weight.std().item() == pytest.approx(1, abs=0.05)
    assert normal.embed.weight.mean().item() == pytest.approx(0, abs=0.1)
    assert linear.embed.weight.std().item() == pytest.approx(1 / math.sqrt(3 * tokens), rel=0.05)
    others = {name: value for name, value in linear.state_dict().items() if name != "embed.weight"}
    assert all(torch.equal(value, normal.state_dict()[name]) for name, value in others.items())


def test_two_tokens_at_one_position_are_a_linear_map_of_both():
    model = start(8).embed
    tokens = torch.randint(8, (3, 4, 2), generator=stream(0, "data"))
    hot = torch.nn.functional.one_hot(tokens, 8).sum(2).to(model.weight.dtype)
    assert torch.allclose(model(tokens), hot @ model.weight + model.bias, atol=1e-6)


def test_vectors_have_no_embedding():
    spec = load_spec("regression", ["model.embedding=normal"])
    with pytest.raises(InvalidCombination):
        Run(spec)


@pytest.mark.parametrize(
    ("word", "error"),
    [
        ("task.pairs=64", invalid("task.pairs", "task.tokens", 64)),
        ("task.B=9", invalid("task.B", 9, "task.pairs", 8)),
        ("task.repeated=65", invalid("task.repeated", 65, "task.tokens", 64)),
        ("task.tokens=2", refused("task.tokens", 2, allowed=[3])),
        ("task.repeated=0", refused("task.repeated", 0)),
        ("task.B=0.5", refused("task.B", 0.5)),
        ("task.p=1.5", refused("task.p", 1.5)),
        ("task.p=nan", refused("task.p", pytest.approx(math.nan, nan_ok=True))),
        ("task.p=true", refused("task.p", True)),
        ("task.B=false", refused("task.B", False)),
        ("task.tokens=3.5", refused("task.tokens", 3.5)),
        ("train.maps=abc", refused("train.maps", "abc")),
        ("task.pair=3", refused("task.pair", 3, nearest="pairs")),
        ("pairs=3", refused("override", "pairs", nearest="task.pairs")),
        ("task.copies=never", refused("task.copies", "never", allowed=["'always'", "'bernoulli'"])),
        ("train.thresholds=[0.5,1.5]", refused("train.thresholds", [0.5, 1.5], allowed=[0, 1])),
        ("train.maps=-3", refused("train.maps.0", -3, allowed=[0])),
    ],
)
def test_impossible_recall_is_refused(word, error):
    with error:
        load_spec("recall", [word])


NUMBERS = {"task.tokens": (9, 10**6), "task.pairs": (2, 63), "task.B": (1, 8), "task.p": (0, 1)}


@given(key=st.sampled_from(sorted(NUMBERS)), below=st.booleans(), far=st.integers(1, 10**9))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_numbers_outside_are_one_sentence(capsys, key, below, far):
    low, high = NUMBERS[key]
    word = f"{key}={low - far if below else high + far}"
    refused_command(capsys, "train", "recall", word, "--dry-run", says=[key])


# -- when an accuracy has emerged


def watch_a_curve(accuracy, thresholds, *, steps, noise=0.0, seed=0):
    """Feed a watch with a curve as the loop does; returns it, and how many full evaluations it asked for."""
    rng = torch.Generator().manual_seed(seed)
    watch, full, next_row = RisingCrossings(thresholds), 0, 0
    for step in range(steps):
        if step:
            right = torch.rand(32, generator=rng) < accuracy(step)
            watch.trained(right.float().mean().item() if noise else accuracy(step))
        wants = watch.wants_full(step)
        if wants or step >= next_row:
            n = 2048 if wants else 64
            wobble = noise * math.sqrt(accuracy(step) * (1 - accuracy(step)) / n) * torch.randn(1, generator=rng).item()
            watch.evaluated(step, min(1.0, max(0.0, accuracy(step) + wobble)), full=wants)
            full += wants
            next_row = step + max(25, math.ceil(0.04 * step))
        if watch.last_crossing is not None:
            break
    return watch, full


def jump(step, *, at, width, low=0.12):
    return low + (0.98 - low) / (1 + math.exp(-(step - at) / width))


@pytest.mark.parametrize(("at", "width"), [(800, 30), (5800, 120), (6000, 20), (3000, 400)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_crossings_are_found_within_two_percent(at, width, seed):
    watch, full = watch_a_curve(lambda s: jump(s, at=at, width=width), (0.5, 0.9), steps=3 * at, noise=1.0, seed=seed)
    for threshold in (0.5, 0.9):
        true = at - width * math.log((0.98 - 0.12) / (threshold - 0.12) - 1)
        assert watch.crossings[f"{threshold:g}"] == pytest.approx(true, rel=0.02)
    assert full * 21 < 0.15 * watch.last_crossing  # a full evaluation takes the time of about 21 steps


@pytest.mark.parametrize(("tokens", "pairs", "at", "width"), [(128, 4, 300, 20), (128, 8, 2000, 60), (64, 4, 300, 40)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_small_threshold_is_bounded_from_below_too(tokens, pairs, at, width, seed):
    """64 sequences say nothing of 5%, so several such evaluations are taken together; no crossing falls to step 0."""

    def curve(step):
        return 1 / tokens + (1 / pairs - 1 / tokens) / (1 + math.exp(-(step - at) / width))

    watch, _ = watch_a_curve(curve, (0.05,), steps=3 * at, noise=1.0, seed=seed)
    true = next(step for step in range(3 * at) if curve(step) >= 0.05)
    assert watch.crossings["0.05"] == pytest.approx(true, rel=0.1)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_accuracy_that_comes_back_late_is_found_though_training_is_flat(seed):
    """As with repetition: the training accuracy has long been 1 when the clean one rises."""
    rng, watch, next_row = torch.Generator().manual_seed(seed), RisingCrossings((0.5,)), 0
    for step in range(12_000):
        if step:
            watch.trained(0.995)
        if (full := watch.wants_full(step)) or step >= next_row:
            n, true = (2048 if full else 64), jump(step, at=8000, width=200)
            watch.evaluated(step, (torch.rand(n, generator=rng) < true).float().mean().item(), full=full)
            next_row = step + max(25, math.ceil(0.04 * step))
    assert watch.crossings["0.5"] == pytest.approx(8000 - 200 * math.log((0.98 - 0.12) / (0.5 - 0.12) - 1), rel=0.025)


def test_one_evaluation_by_luck_is_no_crossing():
    watch = RisingCrossings((0.5,))
    for step, value in ((0, 0.1), (100, 0.55), (200, 0.2), (300, 0.6), (400, 0.7)):
        watch.evaluated(step, value, full=True)
    assert 200 < watch.crossings["0.5"] < 300


def test_what_holds_from_the_start_is_crossed_at_the_start():
    perfect = RisingCrossings((1.0,))
    for step, value in enumerate((0.1, 0.9, 1.0, 1.0)):
        perfect.evaluated(step, value, full=True)
    assert perfect.crossings == {"1": 2.0}
    watch = RisingCrossings((0.05, 0.5))
    watch.evaluated(0, 0.08, full=True)
    watch.evaluated(40, 0.09, full=True)
    assert watch.crossings == {"0.05": 0.0}


def test_small_evaluations_establish_nothing():
    watch = RisingCrossings((0.5,))
    for step in range(5):
        watch.evaluated(step, 0.9, full=False)
    assert watch.crossings == {}


def test_a_stored_run_answers_for_the_thresholds_it_crossed():
    crossings = {"0.5": 60.0, "0.9": 90.0}
    stored = Result(status="emerged", plateau_steps=90.0, crossings=crossings, steps=100, final={}, seconds=1.0)

    def answer(*words):
        spec = load_spec("recall", words)
        return truncate(stored, spec) if satisfies(stored, spec) else None

    half = answer("train.thresholds=0.5")
    assert (half.plateau_steps, half.threshold) == (60.0, 0.5)
    both = answer("train.thresholds=[0.5,0.9]")
    assert (both.plateau_steps, both.threshold) == (90.0, 0.9)
    assert answer("train.thresholds=[0.5,0.95]") is None
    short = answer("train.thresholds=[0.5,0.9]", "train.max_steps=80")
    assert (short.status, short.plateau_steps, short.steps) == ("censored", None, 80)
    assert set(short.crossings) == {"0.5"}  # not what came after the steps asked for


def test_a_figure_sees_a_longer_run_up_to_the_steps_it_asked_for(tmp_path):
    words = [*SMALL, "model.width=16", "train.thresholds=0.9", "task.B=2"]
    long, short = (load_spec("recall", [*words, f"train.max_steps={n}"]) for n in (60, 30))
    assert long.run_id == short.run_id
    execute(long, Store(tmp_path))
    for spec, last in ((long, 60), (short, 30)):
        assert finished([TieredRun(1, spec)], tmp_path)["steps"].tolist() == [last]
        table = curves([TieredRun(1, spec)], tmp_path)
        assert 25 <= table["step"].max() <= last
    assert set(table["like_accuracy"] * Recall.beside % 1) == {0}  # of so many sequences


# -- a small model that learns it


def untrained():
    task = Recall(tokens=16, pairs=4)
    return Transformer(layers=2, heads=2, width=16, qk=8, causal=True).build(task, stream(0, "init"))


@pytest.fixture(scope="module")
def small():
    """A two-layer model trained to 90%."""
    spec = load_spec("recall", [*SMALL, "train.after=60", "train.max_steps=2000"])
    run = Run(spec)
    return run, run.advance()


def test_recall_emerges_and_its_heads_rise_at_the_jump(small):
    _, result = small
    assert result.status == "emerged"
    assert result.crossings["0.5"] < result.crossings["0.9"] < 1500
    before = result.curve.truncate(0.6 * result.crossings["0.5"])
    assert before.head("attention", 1, 0).max() < 0.2  # the selecting head, from the query to the value
    assert result.curve.head("attention", 1, 0)[-1] > 0.5
    assert result.curve.head("copying", 0, 0)[-1] > 0.5
    assert result.curve.has("train_accuracy", "test_accuracy", "clean_accuracy", "like_accuracy", "test_loss")


def test_the_circuit_is_named_and_proven(small):
    run, result = small
    task, batch = run.evaluator.primary(512)
    circuit = find_circuit(run.model, task, batch, result.curve, task.chance)
    assert [(p.role, p.layer, p.head) for p in circuit.parts] == [("copies", 0, 0), ("selects", 1, 0)]
    assert circuit.accuracy > 0.85
    assert all(abs(p.since - result.crossings["0.5"]) < 0.5 * result.crossings["0.5"] for p in circuit.parts)
    without = {(r["layer"], r["head"]): r["without"] for r in circuit.without}
    assert max(without[0, 0], without[1, 0]) < 0.35
    assert names(circuit.says[0], "layer 1", "head 1", "copies")


def test_no_head_is_named_where_none_is_needed():
    """An untrained model: ablation changes nothing, so there is nobody to name."""
    task = Recall(tokens=16, pairs=4)
    model = untrained()
    batch = task.sample(256, stream(0, "data"), {})
    columns = [f"{kind}_{layer}_{head}" for kind in ("copy", "attn") for layer in (0, 1) for head in (0, 1)]
    curve = pd.DataFrame({"step": [0, 10], **{n: [0.2, 0.4 if n == "attn_1_0" else 0.3] for n in columns}})
    for chance in (-1.0, task.chance):  # nothing falls below it; everything is below it
        circuit = find_circuit(model, task, batch, curve, chance)
        assert [p.layer for p in circuit.parts] == [None, None]
        assert names(circuit.says[0], "copies")
        assert names(circuit.says[1], "selects", "layer 2", "head 1")  # the strongest


@pytest.mark.parametrize("heads", [[(0, -1)], [(0, 7)], [(9, 0)], [(-1, 0)]])
def test_heads_that_are_not_there_cannot_be_ablated(heads):
    with refused("heads", heads[0], allowed=["layers from 0 to 1", "heads from 0 to 1"]), ablated(untrained(), heads):
        pass


def test_what_has_no_heads_or_no_probes_is_refused():
    task, model = Recall(tokens=16, pairs=4), untrained()
    batch = task.sample(8, stream(0, "data"), {})
    with refused("model", "Linear"), ablated(torch.nn.Linear(2, 2), [(0, 0)]):
        pass
    with refused("the curve", allowed=["copy_L_H"]):
        find_circuit(model, task, batch, pd.DataFrame({"step": [0.0], "loss": [1.0]}), task.chance)
    table = attention_table(model, batch, step=5)
    for heads, steps in (([(0, 0)], [6]), ([(0, 2)], [5])):
        with refused("map", allowed=["4 heads", 5]):
            draw_attention(table, heads=heads, steps=steps)


ALL = {(layer, head): 1.0 for layer in (0, 1) for head in (-1, 0, 1)}  # accuracy without a head, or a layer (-1)


@pytest.mark.parametrize(
    ("without", "layers", "named"),
    [
        ({(0, 0): 0.3, (0, -1): 0.3, (1, 0): 0.3, (1, -1): 0.3}, (0, 1), [(0, 0), (1, 0)]),
        ({(0, -1): 0.3, (1, -1): 0.3}, (0, 1), [(0, None), (1, None)]),  # heads stand in for each other
        ({(0, -1): 0.6, (1, -1): 0.3}, (0, 1), [(None, None), (1, None)]),  # without the first, half is left
        ({(0, 0): 0.3, (0, 1): 0.3, (0, -1): 0.3, (1, -1): 0.3}, (0, 1), [(0, None), (1, None)]),  # a second is needed
        ({(0, -1): 0.3, (1, -1): 0.3}, (1, 1), [(None, None), (None, None)]),  # what selects must come after
        ({(0, -1): 0.3, (1, -1): 0.3}, (1, 0), [(None, None), (None, None)]),
    ],
)
def test_whom_ablations_name(monkeypatch, without, layers, named):
    task = Recall(tokens=16, pairs=4)
    batch = task.sample(64, stream(0, "data"), {})
    rows = [{"layer": a, "head": b, "without": x} for (a, b), x in {**ALL, **without}.items()]
    monkeypatch.setattr("unstuck.probes.circuit.ablations", lambda *_: pd.DataFrame(rows))
    monkeypatch.setattr("unstuck.probes.circuit.without_heads", lambda *_: 1.0)
    columns = [f"{kind}_{layer}_{head}" for kind in ("copy", "attn") for layer in (0, 1) for head in (0, 1)]
    curve = pd.DataFrame({"step": [0, 10, 20], **{n: [0.1, 0.1, 0.2] for n in columns}})
    curve[f"copy_{layers[0]}_0"], curve[f"attn_{layers[1]}_0"] = [0.1, 0.9, 0.9], [0.1, 0.1, 0.8]

    def knows(inputs):
        return torch.nn.functional.one_hot(batch.targets, 16).float()

    circuit = find_circuit(knows, task, batch, curve, task.chance)
    assert [(p.layer, p.head) for p in circuit.parts] == named
    assert names(circuit.says[1], "selects", f"layer {layers[1] + 1}")
    assert names(circuit.says[1], "head 1") == (named[1] != (1, None))
    assert in_words(circuit.as_dict(), curve) == circuit.says
    if named[0] == (None, None) != named[1]:
        assert names(circuit.says[0], "100%", "60%")


@pytest.mark.parametrize(
    ("needed", "named"),
    [
        ([{(1, 0), (0, 0)}], [(1, 0), (0, 0)]),  # each stands in for the other, in another layer
        ([{(1, 0), (0, 1)}], [(1, 0), (0, 1)]),  # but not the one between them
        ([{(1, 0), (0, 0), (0, 1)}], [(1, 0), (0, 0), (0, 1)]),
        ([{(1, 0), (0, 0)}, {(0, 2), (0, 3)}], []),  # but so it does without any two
        ([{(1, 0), (0, 3)}], []),  # not without most of the model
        ([{(1, 0), (1, 1)}], []),  # of one layer alone
        ([{(1, 0), (0, 0)}, {(0, 2)}], []),  # a bystander is needed too
        ([{(1, 0)}, {(0, 2)}], []),  # nobody stands in for the strongest
    ],
)
def test_heads_of_several_layers_that_stand_in_for_each_other_are_named_together(monkeypatch, needed, named):
    """Three layers of four heads; accuracy falls to chance when all of a set in `needed` are gone."""
    task = Recall(tokens=16, pairs=4)
    batch = task.sample(64, stream(0, "data"), {})

    def without(model, task, batch, heads, measure="accuracy"):
        return 0.25 if any(one <= set(heads) for one in needed) else 1.0

    rows = [
        {"layer": a, "head": b, "without": 0.25 if (a == 2 and b == -1) or {(a, b)} in needed else 1.0}
        for a in range(3)
        for b in (-1, *range(4))
    ]
    monkeypatch.setattr("unstuck.probes.circuit.ablations", lambda *_: pd.DataFrame(rows))
    monkeypatch.setattr("unstuck.probes.circuit.without_heads", without)
    ends = {(1, 0): 0.9, (0, 0): 0.5, (0, 1): 0.4, (1, 1): 0.3, (1, 2): 0.25, (1, 3): 0.22, (0, 2): 0.1, (0, 3): 0.05}
    curve = pd.DataFrame({"step": [0, 10]} | {f"copy_{a}_{b}": [0.01, x] for (a, b), x in ends.items()})
    curve = curve.assign(**{f"copy_2_{b}": [0.01, 0.8] for b in range(4)})  # too late to be of use
    curve = curve.assign(**{f"attn_{a}_{b}": [0.1, 0.1 + 0.2 * a] for a in range(3) for b in range(4)})

    def knows(inputs):
        return torch.nn.functional.one_hot(batch.targets, 16).float()

    circuit = find_circuit(knows, task, batch, curve, task.chance)
    copies, selects = circuit.parts
    assert (copies.together, copies.layer, selects.layer) == (named, None, 2)
    stored = json.loads(json.dumps(circuit.as_dict()))
    assert in_words(stored, curve) == circuit.says
    del stored["parts"][0]["together"]  # as runs have it that were made before it was tried
    assert in_words(stored, curve)[0].endswith(UNTRIED)
    if len(named) == 3:
        assert names(circuit.says[0], "3 heads", "layer 2 head 1", "layer 1 heads 1 and 2", "25%", "100%")
    if not named:
        assert names(circuit.says[0], "copies", "layer 2", "head 1", "100%")  # the strongest is not needed


def test_ablation_cuts_one_head_and_only_while_it_lasts():
    task = Recall(tokens=16, pairs=4)
    model = untrained()
    inputs = task.sample(8, stream(0, "data"), {}).inputs
    plain = model(inputs)
    for layer in (0, 1):
        with ablated(model, [(layer, 1)]):
            assert not torch.allclose(model(inputs), plain, atol=1e-6)
            one = model(inputs[:1])  # the mean over one sequence is that sequence
        assert torch.allclose(one, plain[:1], atol=1e-5)
    assert torch.equal(model(inputs), plain)
    table = ablations(model, task, task.sample(64, stream(1, "data"), {}))
    assert len(table) == 6


def test_links_are_averaged_over_their_starts():
    task = Recall(tokens=16, pairs=4, B=2)
    batch = task.sample(32, stream(0, "data"), {})
    maps = [torch.rand(32, 3, 9, 9, generator=stream(1, "data"))]
    found = link_columns(maps, task.links(batch))
    wanted = [maps[0][n, 1, t, t - 1].item() for n in range(32) for t in range(9) if batch.relevant[n, t]]
    assert found["copy_0_1"] == pytest.approx(sum(wanted) / len(wanted), abs=1e-5)


def test_the_same_attention_at_the_read_out_and_in_whole():
    model = untrained()
    inputs = Recall(tokens=16, pairs=4).sample(8, stream(0, "data"), {}).inputs
    (a, last), (b, whole) = model.observe(inputs), model.observe(inputs, whole=True)
    assert torch.allclose(a, b)
    for x, y in zip(last, whole, strict=True):
        assert torch.allclose(x, y[:, :, -1], atol=1e-6)


def test_the_command_names_the_circuit_and_keeps_the_maps(tmp_path, capsys):
    words = ["train", "recall", *SMALL, "train.thresholds=0.3", "train.maps=[0,100]", "--out", str(tmp_path)]
    assert main([*words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["status"], result["threshold"]) == ("emerged", 0.3)
    assert {p["role"] for p in result["circuit"]["parts"]} == {"copies", "selects"}
    maps = Store(tmp_path).run(result["run_id"]).maps()
    assert sorted(maps["step"].unique()) == [0, 100, result["steps"]]  # the last step, too
    assert main([*words[:-3], "train.after=5", "--out", str(tmp_path), "--json"]) == 0  # more asked for, but no maps
    again = json.loads(capsys.readouterr().out)
    assert again["mapped"][:2] == [0, 100]
    assert maps.groupby(["step", "layer", "head", "row"])["weight"].sum().round(4).eq(1).all()
    assert isinstance(draw_attention(maps, [(0, 0), (1, 0)], [0, 100]), Figure)
    assert main(words) == 0
    assert names(capsys.readouterr().out, "accuracy", 0.3, result["run_id"])


def test_a_map_has_the_tokens_of_its_sequence(small):
    run, _ = small
    _, batch = run.evaluator.primary(4)
    table = attention_table(run.model, batch, step=7)
    row = table[(table["layer"] == 1) & (table["row"] == 8)].sort_values("column")
    assert row["token"].tolist() == batch.inputs[0].tolist()
    assert row["relevant"].tolist() == batch.relevant[0].tolist()
    assert row["weight"].sum() == pytest.approx(1, abs=1e-5)


def test_recall_goes_on_from_a_checkpoint_bit_for_bit():
    words = [*SMALL, "train.max_steps=60"]
    whole = Run(load_spec("recall", words)).advance()
    first = Run(load_spec("recall", words))
    count = iter(range(10**6))
    first.advance(stop=lambda: next(count) >= 33)
    second = Run(load_spec("recall", words), first.checkpoint()).advance()
    pd.testing.assert_frame_equal(whole.curve.to_frame(), second.curve.to_frame())


@pytest.mark.slow
def test_the_papers_transformer_learns_recall():
    result = Run(load_spec("recall", ["task.tokens=32", "task.pairs=4", "seed=0"])).advance()
    assert 150 <= result.crossings["0.05"] <= 700
    assert result.crossings["0.9"] < 4000
    best = ("attention", *result.curve.best_head("attention"))
    assert result.curve.truncate(0.5 * result.crossings["0.5"]).head(*best).max() < 0.2
    assert result.curve.head(*best)[-1] > 0.5


def test_a_shorter_budget_is_not_told_of_the_circuit_that_came_later(tmp_path):
    """The committed run of Figure 17 got to 50% at step 5,826, and was trained for 15,000 steps."""
    store = Store(tmp_path)
    spec = load_spec("recall", ["task.tokens=64", "task.pairs=8", "train.max_steps=3000"])
    copy_shards(Store(Path(__file__).parents[1] / "results" / "store").archive, store.archive)
    early = execute(spec, store)
    assert (early.cached, early.result.status, early.result.steps) == (True, "censored", 3000)
    assert early.result.circuit is None
    assert all(step <= 3000 for step in early.result.mapped)
    late = execute(load_spec("recall", ["task.tokens=64", "task.pairs=8", "train.max_steps=15000"]), store)
    assert late.cached
    curve = store.run(late.run_id).curve()
    assert late.result.circuit["says"] == in_words(late.result.circuit, curve)  # in today's words
