"""`Curve`: names of columns are read and written in one place, and nothing is lost on the way."""

import ast
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amounts import examples
from refusals import names, refused, warned
from unstuck import curve as curve_module
from unstuck.columns import (
    CLEAN_ACCURACY,
    CLEAN_LOSS,
    EVALUATED,
    EXCESS_LOSS,
    GRAD_NORM,
    LIKE_ACCURACY,
    LIKE_LOSS,
    MEASURES,
    REPETITION,
    SPECIALISATION,
    TEST_ACCURACY,
    TEST_LOSS,
    TRAIN_ACCURACY,
    TRAIN_LOSS,
    alignment_columns,
    head_columns,
    pattern,
    place,
    reference_columns,
    renamed_row,
    set_columns,
)
from unstuck.curve import Curve
from unstuck.store.archive import archived_runs

STORE = Path(__file__).parents[1] / "results" / "store"
stored = pytest.mark.skipif(not STORE.is_dir(), reason="needs the committed runs")
measures = st.sampled_from([*MEASURES, "group1", "group12", "readout_group3"])
places = st.integers(0, 120)


def by_hand(frame, prefix):
    """Layers and heads from a plain split of the names."""
    out = {}
    for column in frame:
        words = column.split("_")
        if "_".join(words[:-2]) == prefix and len(words) > 2:
            out[int(words[-2]), int(words[-1])] = frame[column].to_numpy(dtype=float)
    return out


@stored
def test_every_stored_run_comes_back_as_it_was():
    runs = archived_runs(STORE / "archive").values()
    assert runs
    for run in runs:
        frame = run.rows("curves").to_pandas()
        found = Curve.from_frame(frame, "run").to_frame()
        old = {c: c.replace("entropy_", "readout_entropy_") for c in frame if c.startswith("entropy_")}
        pd.testing.assert_frame_equal(found, frame.rename(columns=old))


@stored
def test_heads_are_those_that_a_loop_over_columns_finds():
    for run in list(archived_runs(STORE / "archive").values())[::25]:
        frame = run.rows("curves").to_pandas()
        curve = Curve.from_frame(frame, "run")
        assert np.array_equal(curve.steps, frame["step"])
        prefixes = dict(MEASURES)
        if any(c.startswith("entropy_") for c in frame):  # a run of an earlier version
            prefixes["readout_entropy"] = "entropy"
        for measure in curve.measures:
            prefix = prefixes.get(measure, measure)
            expected = by_hand(frame, prefix)
            heads = curve.heads(measure)
            assert np.isfinite(heads[-1]).sum() == len(expected)
            for (layer, head), values in expected.items():
                assert np.array_equal(heads[:, layer, head], values, equal_nan=True)
                assert np.array_equal(curve.head(measure, layer, head), values, equal_nan=True)
            best = max(expected, key=lambda at: expected[at][-1])
            assert curve.best_head(measure) == best
            assert curve.ranked_heads(measure)[0] == best
            assert np.array_equal(curve.best(measure), np.nanmax(list(expected.values()), axis=0))
            assert curve.flat(measure).shape == (len(frame), len(expected))


@given(measures, places, st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_names_that_are_written_are_read(measure, layer, values):
    columns = head_columns(measure, layer, values)
    assert [place(c) for c in columns] == [(measure, layer, head) for head in range(len(values))]
    curve = Curve.from_rows([{"step": 0, **columns}])
    assert curve.measures == [measure]
    assert curve.heads(measure)[0, layer].tolist() == values
    assert np.isnan(curve.heads(measure)[0, :layer]).all()


@given(st.text(max_size=12))
def test_a_name_is_that_of_a_head_only_if_it_would_be_written_so(name):
    found = place(name)
    if found is not None:
        prefix, layer, head = found
        assert name in (f"{MEASURES.get(prefix, prefix)}_{layer}_{head}", f"entropy_{layer}_{head}")


@pytest.mark.parametrize(
    "name", ["attn_0", "attn_0_1_2", "attn_00_1", "attn_a_0", "align_0_1", "kl_1", "cross_entropy_0_0", "group0_0_0"]
)
def test_other_names_are_of_no_head(name):
    assert place(name) is None


def test_old_entropies_are_called_by_what_they_were():
    frame = pd.DataFrame({"step": [0, 1], "entropy_0_1": [1.0, 0.5], "entropy_loss": [2.0, 2.0]})
    for source, name in (("run", "readout_entropy"), ("watch", "row_entropy"), ("foreign", "row_entropy")):
        curve = Curve.from_frame(frame, source)
        assert curve.measures == [name]
        assert curve.heads(name)[:, 0, 1].tolist() == [1.0, 0.5]
        assert curve.columns == ["step", f"{name}_0_1", "entropy_loss"]
        assert renamed_row(frame.iloc[0].to_dict(), source) == curve.last | curve.at(0)
    assert list(frame) == ["step", "entropy_0_1", "entropy_loss"]
    with warned(FutureWarning, "entropy_L_H"):
        assert Curve.of(frame).measures == ["row_entropy"]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.integers(-5, 60))
@settings(max_examples=examples(50), deadline=None)
def test_what_was_known_at_a_step(steps, step):
    curve = Curve.from_rows([{"step": s, "test_loss": i} for i, s in enumerate(steps)])
    known = [(s, i) for i, s in enumerate(steps) if s <= step]
    assert curve.truncate(step).values("test_loss").tolist() == [i for _, i in known]
    if known:
        assert curve.at(step)["step"] == max(s for s, _ in known)
    else:
        with refused("step", step):
            curve.at(step)


def test_ladders_and_references_are_arrays():
    row = {"step": 0, "kl_2": 0.2, "kl_1": 0.1, "kl_10": 1.0, "context_8": 0.8, "context_2": 0.3, "specialisation": 0.5}
    row |= reference_columns([0.7, 0.9]) | alignment_columns([[1, 2], [3, 4]])
    row |= head_columns("group1", 0, [0.1, 0.2]) | head_columns("group2", 0, [0.3, 0.4])
    row |= head_columns("readout_group1", 0, [0.5, 0.6])
    curve = Curve.from_rows([row])
    assert curve.rungs.tolist() == [[0.1, 0.2, 1.0]]
    assert curve.references.tolist() == [[0.7, 0.9]]
    assert {k: v.tolist() for k, v in curve.contexts.items()} == {2: [0.3], 8: [0.8]}
    assert curve.alignment.tolist() == [[[1, 2], [3, 4]]]
    assert curve.groups().tolist() == [[[[0.1, 0.3], [0.2, 0.4]]]]
    assert curve.groups(readout=True).tolist() == [[[[0.5], [0.6]]]]
    assert curve.values("specialisation").tolist() == [0.5]
    bare = Curve.from_rows([{"step": 0}])
    assert bare.rungs.shape == (1, 0)
    assert bare.alignment is None
    with refused("the curve", allowed=["group1_L_H"]):
        bare.groups()


def test_the_loss_to_judge_by_is_that_on_held_out_data():
    steps = range(20)
    curve = Curve.from_frame(pd.DataFrame({"step": steps, "train_loss": 1.0, "test_loss": 2.0, "loss_scale": 9.0}))
    assert (curve.loss_name, curve.loss[0]) == ("test_loss", 2.0)
    assert curve.losses == ["train_loss", "test_loss"]
    seldom = curve.to_frame().assign(test_loss=[2.0] + 19 * [math.nan])
    assert Curve.from_frame(seldom).loss_name == "train_loss"
    assert Curve.from_frame(pd.DataFrame({"step": steps, "Value": 0.0})).loss_name == "Value"
    assert np.isnan(Curve.from_frame(pd.DataFrame({"step": steps})).loss).all()
    assert curve.accuracy is None
    assert Curve.from_rows([{"step": 0, **set_columns("accuracy", {"test": 0.5, "like": 0.6})}]).accuracy == [0.5]


def test_rows_without_a_head_are_left_out_and_text_must_be_numbers():
    frame = pd.DataFrame({"step": [0, 1, 2], "attn_0_0": [0.1, np.nan, 0.3], "attn_9_9": np.nan, "phase": "warm"})
    curve = Curve.from_frame(frame)
    assert curve.columns == ["step", "attn_0_0", "attn_9_9"]
    assert curve.complete("attention").to_frame().to_numpy().tolist() == [[0, 0.1], [2, 0.3]]
    assert len(curve.complete("attention", "copying")) == 0
    assert Curve.from_frame(frame.assign(attn_0_0=["0.1", "", "0.3"])).heads("attention")[2, 0, 0] == 0.3
    for wrong in (frame.assign(attn_0_0="high"), frame.assign(my_loss="low"), frame.drop(columns="step")):
        with refused("the curve"):
            Curve.from_frame(wrong)
    with refused("the curve", allowed=[pattern("copying")]):
        curve.heads("copying")
    assert len(Curve.from_rows([])) == 0


def test_for_a_release_a_curve_is_also_a_table():
    curve = Curve.from_rows([{"step": 0, "test_loss": 0.5}, {"step": 10, "test_loss": 0.25}])
    with warned(FutureWarning, "to_frame()"):
        assert curve["test_loss"].tolist() == [0.5, 0.25]
    with warned(FutureWarning, "to_frame()"):
        assert curve.iloc[-1]["step"] == 10
    with warned(FutureWarning, "to_frame()"):
        assert "step" in curve
    with pytest.raises(AttributeError) as missing:
        _ = curve.heds
    assert missing.value.name == "heds"
    assert curve == Curve.from_frame(curve.to_frame())
    assert curve != curve.truncate(5)
    assert names(repr(curve), "Curve", 2, 0, 10, "test_loss")


def test_a_curve_can_be_drawn():
    pytest.importorskip("matplotlib")
    curve = Curve.from_rows([{"step": s, "test_loss": 1 / (s + 1), "attn_0_0": s / 10} for s in range(5)])
    assert curve.plot().axes[0].get_ylabel() == "test_loss"
    drawn = curve.plot("attention")
    (ax,) = drawn.axes
    assert ax.lines[-1].get_ydata().tolist() == curve.best("attention").tolist()
    assert curve.plot("attention", ax=ax) is drawn


#: Lines outside curve.py and probes/ that may spell a column.
MOST_LINES = 6
NAMED = {
    EVALUATED, REPETITION, TRAIN_LOSS, TEST_LOSS, CLEAN_LOSS, LIKE_LOSS, TRAIN_ACCURACY, TEST_ACCURACY, CLEAN_ACCURACY,
    LIKE_ACCURACY, EXCESS_LOSS, GRAD_NORM, SPECIALISATION,
}  # fmt: skip


def names_a_column(text):
    """By the grammar of curve.py, with a number or a set of sequences for the fields of an f-string. Plain `step` does
    not count: every table of the field has a column of that name."""
    numbered, of_set = text.replace("{}", "1"), text.replace("{}", "test")
    curve = Curve(pd.DataFrame(columns=["step", numbered]))
    return bool(of_set in NAMED or curve.measures or curve.ladder_names or curve.references.shape[1])


def strings(tree):
    """Line and text of each string that is not a docstring; the fields of an f-string are {}."""
    left_out = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            left_out.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            parts = list(ast.iter_child_nodes(node))
            left_out |= set(map(id, parts))
            yield node.lineno, "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            yield node.lineno, node.value


def test_what_names_a_column():
    assert all(map(names_a_column, ["attn_0_2", "kl_1", "ref_2", "context_4", "align_2_1", "group1_0_0", "clean_loss"]))
    assert not any(map(names_a_column, ["step", "loss", "kl", "attention", "T", "plateau_steps", "crossing_0.5"]))
    tree = ast.parse('"""test_loss"""\ntable["test_loss"], f"kl_{i + 1}", f"{kind}_loss"')
    assert sorted(text for _, text in strings(tree) if names_a_column(text)) == ["kl_{}", "test_loss", "{}_loss"]


def test_few_lines_outside_the_curve_name_a_column():
    root = Path(curve_module.__file__).parent
    found = []
    for path in sorted(root.rglob("*.py")):
        place_of = path.relative_to(root)
        if str(place_of) in ("curve.py", "columns.py") or place_of.parts[0] == "probes":
            continue
        for line, text in strings(ast.parse(path.read_text(encoding="utf-8"))):
            if names_a_column(text):
                found.append(f"{place_of}:{line}: {text}")
    print("\n".join(found))
    assert len({entry.rpartition(": ")[0] for entry in found}) <= MOST_LINES
