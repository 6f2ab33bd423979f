"""Curves as people log them: other names of the step, prefixed columns, W&B folders, Hugging Face's trainer state."""

import json
import math
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logs import wandb_file
from refusals import refused, warned
from unstuck.curve import Curve
from unstuck.forecast import Outcome, curve_files
from unstuck.forecast.loss import from_loss
from unstuck.forecast.plain_files import plain_columns
from unstuck.forecast.sources import read_curve

STEPS = [0, 500, 1000, 1500, 2000]


@pytest.mark.parametrize("name", ["iter", "Iter", "iteration", "global_step", "train/iter", "trainer/global_step"])
def test_the_step_has_many_names(tmp_path, name):
    """nanoGPT logs `iter`; W&B adds `_step`, which counts calls of its logger."""
    table = pd.DataFrame({"_step": range(5), name: STEPS, "val/loss": 1.0, "time/step": 0.1})
    table.to_csv(tmp_path / "curve.csv", index=False)
    assert read_curve(tmp_path / "curve.csv").steps.tolist() == STEPS


def test_prefixes_of_heads_columns_are_left_out(tmp_path):
    columns = {"watch/induction_0_0": 0.1, "unstuck/attn_1_2": 0.2, "a.b/copy_0_0": 0.3, "train/loss": 1.0}
    pd.DataFrame({"iter": STEPS, **columns}).to_csv(tmp_path / "curve.csv", index=False)
    curve = read_curve(tmp_path / "curve.csv")
    assert set(curve.measures) == {"induction", "attention", "copying"}
    assert curve.head("attention", 1, 2).tolist() == [0.2] * 5
    assert curve.loss_name == "train/loss"


def test_two_prefixes_of_one_name_are_kept_apart(tmp_path):
    columns = {"a/attn_0_0": 0.1, "b/attn_0_0": 0.2, "a/attn_0_1": 0.3}
    pd.DataFrame({"step": STEPS, **columns}).to_csv(tmp_path / "curve.csv", index=False)
    assert set(read_curve(tmp_path / "curve.csv").columns) == {"step", "a/attn_0_0", "b/attn_0_0", "attn_0_1"}


def test_prefixes_in_tensorboard(tmp_path):
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        for step in STEPS:
            writer.add_scalar("watch/induction_0_1", 0.5, step)
            writer.add_scalar("eval/loss", 1.5, step)
    curve = read_curve(tmp_path)
    assert curve.head("induction", 0, 1).tolist() == [0.5] * 5
    assert curve.loss_name == "eval_loss"


# -- Weights & Biases


def wandb_run(folder, name, steps, loss):
    directory = folder / name
    directory.mkdir(parents=True)
    rows = [{"_step": i, "iter": step, "val/loss": loss} for i, step in enumerate(steps)]
    (directory / f"run-{name.split('-')[-1]}.wandb").write_bytes(content := wandb_file(rows))
    assert len(content) < curve_files.BLOCK
    return directory


@pytest.mark.parametrize("given", ["wandb", "."])
def test_a_wandb_folder_is_its_last_run_with_all_its_parts(tmp_path, given):
    folder = tmp_path / "wandb"
    wandb_run(folder, "offline-run-20260101_100000-aaaaaaaa", STEPS[:3], 1.0)
    assert read_curve(tmp_path / given).steps.tolist() == STEPS[:3]
    wandb_run(folder, "run-20260103_100000-aaaaaaaa", STEPS[2:], 2.0)  # resumed
    curve = read_curve(tmp_path / given)
    assert curve.steps.tolist() == STEPS
    assert curve.loss.tolist() == [1.0, 1.0, 2.0, 2.0, 2.0]
    wandb_run(folder, "offline-run-20260102_100000-bbbbbbbb", STEPS, 7.0)
    with warned(UserWarning, 1):
        assert read_curve(tmp_path / given).loss.tolist() == [1.0, 1.0, 2.0, 2.0, 2.0]
    (folder / "latest-run").symlink_to("offline-run-20260102_100000-bbbbbbbb")
    with warned(UserWarning, 1):
        assert read_curve(tmp_path / given).loss.tolist() == [7.0] * 5


# -- Hugging Face


def trainer_state(steps):
    """As Trainer writes it: training and evaluation are rows of their own, and the last row sums up."""
    log = []
    for step in steps:
        log.append({"epoch": step / 1000, "grad_norm": 1.0, "learning_rate": 1e-4, "loss": 3.0, "step": step})
        log.append({"epoch": step / 1000, "eval_loss": 2.0, "eval_runtime": 1.0, "step": step})
    log.append({"epoch": 2.0, "step": steps[-1], "total_flos": 1e15, "train_loss": 2.5, "train_runtime": 10.0})
    return {"best_metric": None, "global_step": steps[-1], "log_history": log, "max_steps": 10_000}


def test_the_trainer_state_is_read_alone_in_a_checkpoint_and_in_the_last_checkpoint(tmp_path):
    steps = [100 * i for i in range(1, 21)]
    for last in (9, 20):
        directory = tmp_path / f"checkpoint-{100 * last}"
        directory.mkdir()
        (directory / "trainer_state.json").write_text(json.dumps(trainer_state(steps[:last])))
    for source in (tmp_path, directory, directory / "trainer_state.json"):
        curve = read_curve(source)
        assert curve.steps.tolist() == steps
        assert curve.loss_name == "eval_loss"
        assert curve.values("loss").tolist() == [3.0] * 20
        assert from_loss(curve).outcome is Outcome.PLATEAU


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"log_history": [{"step": 1}], "x": ' + "9" * 4_400 + "}",
        '{"log_history": 3}',
        '{"log_history": [1]}',
        "[" * 100_000,
        '{"a": 1}',
    ],
)
def test_a_damaged_trainer_state_is_refused(tmp_path, content):
    (tmp_path / "trainer_state.json").write_text(content)
    for source in (tmp_path, tmp_path / "trainer_state.json"):
        with refused("SOURCE"):
            read_curve(source)


def test_a_trainer_state_without_rows_is_refused(tmp_path):
    (tmp_path / "trainer_state.json").write_text('{"log_history": []}')
    with refused("SOURCE"):
        read_curve(tmp_path)


@pytest.mark.parametrize("name", ["curve.csv", "trainer_state.json", "run-a.wandb"])
def test_a_file_that_is_too_large_is_refused(tmp_path, name, monkeypatch):
    monkeypatch.setattr(curve_files, "MAX_BYTES", 1000)
    (tmp_path / name).write_bytes(b"1" * 1001)
    for source in (tmp_path / name, *([] if name == "curve.csv" else [tmp_path])):
        with refused("SOURCE"):
            read_curve(source)


def test_rows_of_other_calls_of_a_logger_go_by_the_last_step(tmp_path):
    table = pd.DataFrame({"_step": range(6), "iter": [0, np.nan, 500, np.nan, 1000, np.nan]})
    table = table.assign(
        loss=[3.0, None, 2.0, None, 1.0, None], **{"watch/attn_0_0": [None, 0.1, None, 0.2, None, 0.3]}
    )
    table.to_csv(tmp_path / "curve.csv", index=False)
    curve = read_curve(tmp_path / "curve.csv")
    assert curve.steps.tolist() == [0, 500, 1000]
    assert curve.head("attention", 0, 0).tolist() == [0.1, 0.2, 0.3]


# -- plain files, which are read without pandas

CELLS = st.one_of(st.just(""), st.floats(-1e6, 1e6).map(repr), st.integers(-5, 10**6).map(str), st.just("nan"))


@given(st.lists(st.tuples(st.floats(0.1, 50), CELLS, CELLS), min_size=1, max_size=8), st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_plain_csv_is_read_as_pandas_reads_it(rows, windows):
    """But for the last bit of a number, which pandas' parser rounds another way."""
    steps = np.cumsum([step for step, *_ in rows]).tolist()
    lines = ["step,loss,attn_0_0", *(f"{s!r},{a},{b}" for s, (_, a, b) in zip(steps, rows, strict=True))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "curve.csv"
        path.write_text(("\r\n" if windows else "\n").join(lines), newline="")
        plain = plain_columns(path)
        assert plain is not None
        expected = Curve.from_frame(curve_files.logged_table(path)).to_frame().astype(float)
    pd.testing.assert_frame_equal(Curve(plain).to_frame().astype(float), expected, rtol=1e-14)


@pytest.mark.parametrize("nullable", [False, True])
def test_a_plain_parquet_file_is_read_as_pandas_reads_it(tmp_path, nullable):
    table = pd.DataFrame({"loss": [1.5, None, 0.5], "step": [0, 10, 20], "none": [math.nan] * 3, "count": [1, 2, 3]})
    if nullable:
        table["count"] = pd.array([1, None, 3], dtype="Int64")
    table.to_parquet(tmp_path / "curve.parquet", index=False)
    plain = plain_columns(tmp_path / "curve.parquet")
    expected = curve_files.logged_table(tmp_path)
    pd.testing.assert_frame_equal(Curve(plain).to_frame(), Curve.from_frame(expected).to_frame(), check_dtype=False)


@pytest.mark.parametrize(
    "text",
    [
        "step,loss\n0,1\n0,2",  # a step twice
        "step,loss\n10,1\n5,2",
        "step,loss\n0,high",
        "step,loss\n0,inf",
        'step,loss\n0,"1"',
        "step,loss\n0,1,2",
        "step,loss\n0",
        "step,loss\n,1",
        "step,loss,loss\n0,1,2",
        ",step,loss\n0,0,1",
        "step,_step\n0,1",
        "Step,loss\n0,1",
        "step,watch/attn_0_0\n0,1",
        "step,entropy_0_0\n0,1",
        "step;loss\n0;1",
        "\ufeffstep,loss\n0,1",
        "step,loss\n0,0x1",
        "step,loss\n0,1_0",
        "step,loss\n-1,1",
        "step,loss",
    ],
)
def test_what_is_not_plain_is_left_to_pandas(tmp_path, text):
    path = tmp_path / "curve.csv"
    path.write_text(text, encoding="utf-8")
    assert plain_columns(path) is None
    table = pd.DataFrame({"step": [0, 1], "word": ["a", "b"]})
    for odd in (table, table.set_index("word")):
        odd.to_parquet(tmp_path / "curve.parquet")
        assert plain_columns(tmp_path / "curve.parquet") is None
