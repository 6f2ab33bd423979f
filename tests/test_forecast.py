"""What forecasts are made of beside attention: losses, laws of other runs, and the files that curves come from."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import erfinv

from refusals import names, refused, refused_command, warned
from unstuck import Forecaster
from unstuck.attach.line import Line
from unstuck.cli import main
from unstuck.config import load_spec
from unstuck.curve import Curve
from unstuck.errors import BadInput
from unstuck.forecast import Forecast, Outcome, prior, sources
from unstuck.forecast.loss import diverged, from_loss
from unstuck.forecast.notes import LossNotes, Notes
from unstuck.forecast.prior import prior_of
from unstuck.forecast.runs import finished_runs
from unstuck.forecast.sources import read_curve
from unstuck.runner.execute import execute
from unstuck.store.store import Store
from waiting import eventually

STORE = Path(__file__).parents[1] / "results" / "store"


def by_the_law(plateau, *, upto=0.98, rows=60, heads=2, noise=0.0, seed=0):
    """A curve whose best head follows elapsed = erf(sqrt(gain)) exactly."""
    steps = np.linspace(0, upto * plateau, rows)
    rng = np.random.default_rng(seed)
    best = 0.03 * np.exp(erfinv(steps / plateau) ** 2 + noise * rng.standard_normal(rows))
    columns = {f"attn_1_{h}": np.full(rows, 0.03) for h in range(heads - 1)}
    return pd.DataFrame({"step": steps, **columns, f"attn_1_{heads - 1}": best})


def test_a_loss_that_is_no_longer_written_has_not_diverged_where_another_is():
    steps = np.arange(60.0)
    curve = pd.DataFrame({"step": steps, "loss": 1.0, "test_loss": np.where(steps < 20, 1.0, math.nan)})
    curve = curve.assign(attn_0_0=0.03, phase="warm")  # and words that nobody needs
    assert Forecaster().predict(curve).outcome is Outcome.NOT_SOON
    gone = Forecaster().predict(curve.drop(columns="loss"))
    assert (gone.outcome, gone.notes.divergence) == (Outcome.DIVERGED, "not finite")
    rising = pd.DataFrame({"step": steps, "Value": np.linspace(0.02, 0.92, 60)})  # an accuracy, as it is exported
    assert diverged(Curve.of(rising), "Value") is None
    far = pd.DataFrame({"step": steps, "loss": np.where(steps < 50, 1.0, 99.0)})
    assert diverged(Curve.of(far), "loss")
    ended = pd.DataFrame({"step": [1.0, 1.0, 5.0], "loss": [1.0, 1.0, math.nan]})
    assert diverged(Curve.of(ended), "loss") is None


@pytest.mark.parametrize("noise", [0.1, 0.3])
def test_a_fall_is_said_where_noise_hides_the_present_slope(noise):
    """As a lookup is learnt: from 2.05 to 0.035, with noise in proportion to the loss."""
    steps = np.arange(5, 301, 5)
    clean = 2.05 / (1 + np.exp((steps - 100) / 12)) + 0.035
    losses = clean * np.exp(noise * np.random.default_rng(0).standard_normal(len(steps)))
    said = from_loss(Curve.of(pd.DataFrame({"step": steps, "loss": losses})))
    assert said.outcome is Outcome.UNCLEAR
    assert said.notes.loss.fell == (np.median(losses[:3]), np.median(losses[-3:]))
    assert names(str(said), f"{np.median(losses[:3]):.4g}", f"{np.median(losses[-3:]):.4g}")
    assert names(str(Line.of(Curve.of(pd.DataFrame({"step": steps, "loss": losses})), said)), "unclear")
    plateau = np.where(steps < 50, 2.0, 1.0) * losses / clean
    assert from_loss(Curve.of(pd.DataFrame({"step": steps, "loss": plateau}))).notes.loss.fell is None


@pytest.mark.parametrize(
    ("losses", "outcome"),
    [
        ([1.0] * 5, Outcome.UNCLEAR),
        (np.linspace(4, 2, 100), Outcome.FALLING),
        (np.linspace(1, 9, 100), Outcome.RISING),
        ([*[1.0] * 30, *[math.inf] * 5], Outcome.DIVERGED),
        ([*[1.0] * 30, *[math.nan] * 5], Outcome.DIVERGED),
        ([*np.geomspace(5, 1, 20), *[1.0] * 30], Outcome.PLATEAU),
        ([*[1.0] * 30, 0.7, 0.5, 0.3, 0.2], Outcome.LEFT),
    ],
)
def test_what_a_loss_alone_says(tmp_path, capsys, losses, outcome):
    table = pd.DataFrame({"step": np.arange(len(losses)), "loss": losses})
    said = Forecaster().predict(table)
    assert said == from_loss(Curve.of(table.iloc[::-1]))  # in whatever order rows come
    assert (said.outcome, said.signal, said.now, said.interval()) == (outcome, "loss", len(losses) - 1, None)
    assert said.step == (30 if outcome is Outcome.LEFT else None)
    assert (said.notes.loss.plateau_since is not None) == (outcome in (Outcome.PLATEAU, Outcome.DIVERGED))
    table.to_csv(tmp_path / "c.csv", index=False)
    assert main(["forecast", str(tmp_path / "c.csv")]) == 0
    assert capsys.readouterr().out == f"{said}\n"
    for more in (["--signal", "attention"], ["--signal", "bogus"], ["--law", str(tmp_path)]):
        assert main(["forecast", str(tmp_path / "c.csv"), *more]) == 2


def test_old_names_of_signals_warn_and_mean_the_same():
    for old, new in (
        ("links", "attention"),
        ("gain", "attention"),
        ("entropy_drop", "entropy"),
        ("parting", "entropy"),
    ):
        with warned(FutureWarning, new):
            assert Forecaster(old).signal == new
    for module, old, new in ((sources, "astray", diverged), (prior, "opinion", prior.estimate)):
        with warned(FutureWarning, f"{new.__module__}.{new.__name__}"):
            assert getattr(module, old) is new


def runs_by_a_law(**settings):
    sizes = [(d, T) for d in (8, 16, 32) for T in (16, 32, 64)]
    rows = [{"d": d, "T": T, "B": 1, "plateau_steps": 10.0 * d * T**0.5, **settings} for d, T in sizes]
    return pd.DataFrame(rows).assign(status="emerged", threshold=0.1, crossing_0=None, task="single_location")


def test_a_law_is_made_of_runs_that_differ_in_its_sizes_only():
    same, other = runs_by_a_law(p=0.0, lr=1e-4), runs_by_a_law(p=0.5, lr=1e-4)
    other["plateau_steps"] /= 2
    scheduled = runs_by_a_law(p=0.0, lr=1e-4).assign(schedule="adaptive")
    scheduled["plateau_steps"] /= 3
    table = pd.concat([same, other, scheduled], ignore_index=True)
    mine = {"task": "single_location", "d": 16, "T": 32, "B": 1, "p": 0.0, "lr": 1e-4, "thresholds": [0.1]}
    plateau, spread, _, beyond = prior_of(mine, table, None)
    assert plateau == pytest.approx(160 * 32**0.5, rel=0.01)
    assert beyond == ""
    far = prior_of(
        {**mine, "d": 128}, table.assign(plateau_steps=table["plateau_steps"] ** 1.01 + table["d"] ** 2), None
    )
    assert far[3] == "d"
    assert far[1] > 3 * spread  # as far off as it is one doubling beyond
    assert prior_of(mine, table, "task.d + task.T/B")[0] == pytest.approx(plateau)
    lists = table.assign(weights=[[] for _ in range(len(table))])
    assert prior_of({**mine, "weights": []}, lists, None)[0] == pytest.approx(plateau)
    with refused("--law", allowed=[4, "d + T/B", "seed"]) as none_alike:
        prior_of(mine, table.assign(clip=1.0), None)  # this run is older than the setting, and had its default
    assert names(none_alike.value.value, 0)
    for wrong in ({"lr": 3e-4}, {"task": "mine"}, {"task": "recall"}):
        with pytest.raises(BadInput):
            prior_of({**mine, **wrong}, table, None)
    seeded = same.assign(seed=3)
    seeded.loc[(seeded["d"] == 16) & (seeded["T"] == 32), "plateau_steps"] *= 5  # what came of this very run
    assert prior_of({**mine, "seed": 3}, seeded, None)[:2] == pytest.approx((plateau, spread), rel=1e-3, abs=1e-3)
    assert prior_of({**mine, "seed": 4}, seeded, None)[1] > 0.1


def test_runs_under_a_schedule_are_no_part_of_the_protocol(tmp_path):
    quick = ["task.T=2", "task.d=1", "train.thresholds=0.1", "train.max_steps=3000"]
    for more in ([], ["schedule.name=adaptive", "schedule.patience=10"]):
        assert execute(load_spec("regression", [*quick, *more]), Store(tmp_path)).result.status == "emerged"
    assert len(list(finished_runs(Store(tmp_path)))) == 1


def test_bad_input_is_one_sentence(tmp_path, capsys):
    with refused("signal", "atention", nearest="attention"):
        Forecaster("atention")
    with refused("the curve", allowed=["attn_L_H", "induction_L_H", "readout_entropy_L_H"]):
        Forecaster().from_attention(pd.DataFrame({"step": [0, 1], "loss": [1, 1]}))
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.parquet").write_bytes(b"not a table")
    (tmp_path / "loss.csv").write_text("epoch,loss\n1,2\n")
    for source in ("missing", "empty", "bad.parquet", "loss.csv"):
        refused_command(capsys, "forecast", tmp_path / source, says=["SOURCE"])


def test_curves_come_from_csv_tensorboard_and_wandb(tmp_path, offline_wandb):
    from torch.utils.tensorboard import SummaryWriter

    curve = by_the_law(1000, upto=0.5, rows=300).astype({"step": int}).drop_duplicates("step")  # more than one block
    curve.rename(columns={"step": "global_step"}).to_csv(tmp_path / "c.csv", index=False)
    writer = SummaryWriter(str(tmp_path / "tb"))
    for row in curve.to_dict("records"):
        for name, value in row.items():
            if name != "step":
                writer.add_scalar(name, value, int(row["step"]))
    writer.close()
    run = offline_wandb.init(project="test")
    for row in curve.to_dict("records"):
        run.log({k: v for k, v in row.items() if k != "step"}, step=int(row["step"]))
    run.finish()
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert eventually(lambda: file.stat().st_size > 7 and len(read_curve(file)) == len(curve))  # W&B writes it late
    (mine,) = (tmp_path / "tb").iterdir()
    with SummaryWriter(str(tmp_path / "tb"), filename_suffix=".other") as other:
        other.add_scalar("attn_1_1", 0.9, 10**6)  # a neighbour, which is not meant where a file is named
    with SummaryWriter(str(tmp_path / "tensors")) as newer:
        for row in curve.to_dict("records"):
            newer.add_scalar("attn_1_1", row["attn_1_1"], int(row["step"]), new_style=True)
    damaged = tmp_path / "damaged.wandb"
    content = bytearray(file.read_bytes())
    content[14 + 40 : 14 + 80] = b"\xff" * 40
    damaged.write_bytes(bytes(content))
    with refused("SOURCE", str(damaged), allowed=[".wandb"]):
        read_curve(damaged)
    for source in (tmp_path / "c.csv", mine, tmp_path / "tensors", file):
        found = read_curve(source).to_frame()
        assert found["step"].tolist() == curve["step"].tolist()
        assert found["attn_1_1"].to_numpy() == pytest.approx(curve["attn_1_1"].to_numpy(), rel=1e-5)


def test_the_command_forecasts_a_run_directory(tmp_path, capsys):
    spec = load_spec("regression", ["task.T=16", "task.d=4", "train.max_steps=60"])
    execute(spec, Store(tmp_path))
    assert main(["forecast", str(tmp_path / spec.run_id), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["now"] == 60
    assert found["signal"] == "attention"
    assert {"step", "interval", "evidence"} <= set(found)
    if STORE.is_dir():
        assert main(["forecast", str(tmp_path / spec.run_id), "--law", str(STORE)]) == 0
        assert main(["forecast", str(tmp_path / spec.run_id), "--law", str(STORE), "--json"]) == 0
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["outcome"] == "emerges"


@pytest.mark.parametrize(
    ("columns", "chosen"),
    [
        (["loss_scale", "training_loss"], "training_loss"),
        (["loss/auxiliary", "train/total_loss"], "train/total_loss"),
        (["loss/total"], "loss/total"),
        (["loss_scale"], None),
        (["train_loss", "eval_loss"], "eval_loss"),
    ],
)
def test_which_column_is_the_loss(columns, chosen):
    assert Curve.from_frame(pd.DataFrame(columns=columns)).loss_name == chosen


def asked(table, tmp_path, capsys):
    table.to_csv(tmp_path / "curve.csv", index=False)
    assert main(["forecast", str(tmp_path / "curve.csv"), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("growth", [1.2, 1.5, 2.0])
def test_a_divergence_is_not_withdrawn_while_the_loss_is_far_above_its_start(growth):
    """Its first quarter holds the rise itself, once there are enough rows."""
    steps = np.arange(0, 600, 10.0)
    losses = np.minimum(3.0 * growth ** np.arange(60.0), 300.0)
    found = [Forecaster().predict(pd.DataFrame({"step": steps[:n], "loss": losses[:n]})) for n in range(1, 61)]
    diverged_at = [f.outcome is Outcome.DIVERGED for f in found]
    assert any(diverged_at)
    assert all(diverged_at[diverged_at.index(True) :])
    losses[50:] = 3.0
    back = Forecaster().predict(pd.DataFrame({"step": steps, "loss": losses}))
    assert back.outcome is not Outcome.DIVERGED


@pytest.mark.parametrize("last", [5, 15, 30])
def test_a_loss_that_is_nan_from_a_step_on_has_diverged_also_if_the_first_row_has_none(last):
    """A watch measures attention once before training, and attention is as NaN as the loss is."""
    steps = np.arange(0, 61, 5.0)
    losses = np.where((steps > 0) & (steps <= last), 2.8, np.nan)
    attention = np.where(steps <= last, 0.03, np.nan)
    said = Forecaster().predict(pd.DataFrame({"step": steps, "train_loss": losses, "attn_0_0": attention}))
    assert (said.outcome, said.notes.divergence) == (Outcome.DIVERGED, "not finite")
    sparse = np.where(steps == 0, 2.8, np.nan)  # an evaluation before training, and none due yet
    said = Forecaster().predict(pd.DataFrame({"step": steps, "eval_loss": sparse, "attn_0_0": 0.03}))
    assert said.outcome is not Outcome.DIVERGED


def test_a_loss_that_is_logged_now_and_then_has_not_diverged(tmp_path, capsys):
    steps = np.arange(0, 2000, 20)
    table = pd.DataFrame({"step": steps, "train_loss": 1.0 + 0.01 * np.sin(steps)})
    once = table.assign(val_loss=np.where(steps == 980, 1.1, np.nan))
    seldom = table.assign(val_loss=np.where(steps % 400 == 0, 1.1, np.nan))
    for curve in (once, seldom):  # too few values of the held-out loss to tell: the other one does
        found = asked(curve, tmp_path, capsys)
        assert (found["signal"], found["outcome"]) == ("train_loss", "plateau")
        assert found["since"] is not None
    gone = table.assign(train_loss=table["train_loss"].where(steps < 1000))
    assert asked(gone, tmp_path, capsys)["diverged"]


@pytest.mark.parametrize("names", [("Step", "run - loss"), ("Step", "Value"), ("Global_Step", "Train/Loss")])
def test_curves_as_loggers_export_them(names, tmp_path, capsys):
    steps = np.arange(0, 1000, 10)
    table = pd.DataFrame({"Wall time": steps / 7, names[0]: steps, names[1]: 1 + 0.01 * np.cos(steps)})
    table[f"{names[1]}__MIN"] = 0.0
    found = asked(table, tmp_path, capsys)
    assert (found["signal"], found["step"], found["interval"]) == (names[1], None, None)
    assert found["loss"] == pytest.approx(1.0, abs=0.01)
    assert found["outcome"] == "plateau"


def test_the_clock_of_a_trainer_comes_before_that_of_its_logger(tmp_path):
    """W&B counts calls of log in `_step`; Trainer and Lightning log the real step under a name of their own."""
    for name in ("train/global_step", "trainer/global_step"):
        table = pd.DataFrame({"_step": range(5), "train/loss": 1.0, name: np.arange(5) * 500})
        table.to_csv(tmp_path / "curve.csv", index=False)
        assert read_curve(tmp_path / "curve.csv").steps.tolist() == [0, 500, 1000, 1500, 2000]
    table.assign(step=np.arange(5) * 7).to_csv(tmp_path / "curve.csv", index=False)
    assert read_curve(tmp_path / "curve.csv").steps.tolist() == [0, 7, 14, 21, 28]


def test_what_is_logged_apart_from_the_trainer_goes_by_its_last_step(tmp_path):
    table = pd.DataFrame({"_step": range(6), "train/global_step": [0, None, 500, None, 1000, None]})
    table = table.assign(loss=[3.0, None, 2.0, None, 1.0, None], attn_0_0=[None, 0.1, None, 0.2, None, 0.3])
    table.to_csv(tmp_path / "curve.csv", index=False)
    curve = read_curve(tmp_path / "curve.csv")
    assert curve.steps.tolist() == [0, 500, 1000]
    assert curve.head("attention", 0, 0).tolist() == [0.1, 0.2, 0.3]
    table.drop(columns="_step").to_csv(tmp_path / "curve.csv", index=False)
    with warned(UserWarning, 3, 6, "train/global_step"):
        read_curve(tmp_path / "curve.csv")


@pytest.mark.parametrize("separator", [";", "\t"])
def test_other_separators_are_read(tmp_path, separator):
    lines = [f"{step}{separator}{1 / (step + 1)}" for step in range(5)]
    (tmp_path / "curve.csv").write_text("\n".join([f"step{separator}loss", *lines]))
    assert read_curve(tmp_path / "curve.csv").loss.tolist() == [1 / (step + 1) for step in range(5)]


def test_a_step_may_be_missing_in_a_column_of_whole_numbers(tmp_path):
    table = pd.DataFrame({"step": pd.array([0, None, 2], dtype="Int64"), "loss": [1.0, 0.9, 0.8]})
    table.to_parquet(tmp_path / "curve.parquet")
    with warned(UserWarning, 1, 3, "step"):
        assert read_curve(tmp_path / "curve.parquet").steps.tolist() == [0, 2]


def test_what_is_dropped_of_a_curve_is_said(tmp_path):
    """Steps that start again each epoch, and a loss with decimal commas."""
    path = tmp_path / "curve.csv"
    path.write_text("step,loss\n" + "\n".join(f"{k % 20},{1 / (k + 1)}" for k in range(100)))
    with warned(UserWarning, 80, 100):
        assert len(read_curve(path)) == 20
    path.write_text("step,loss\n" + "\n".join(f'{k},"0,5{k}"' for k in range(9)))
    with warned(UserWarning, "loss", "'0,50'"):
        assert read_curve(path).columns == ["step"]


def test_a_decimal_comma_is_no_separator_of_thousands(tmp_path):
    (tmp_path / "curve.csv").write_text('step,loss,other\n0,"0,693",1\n1,"0,691",2\n2,"1,693",3\n', encoding="utf-8")
    assert read_curve(tmp_path / "curve.csv").columns == ["step", "other"]


def test_steps_with_separators_are_numbers_and_rows_without_a_step_are_said(tmp_path):
    table = pd.DataFrame({"step": ["0", "950", "1,000", "12,500", "later"], "loss": [1.0, 0.9, 0.8, 0.7, 0.6]})
    table.to_csv(tmp_path / "curve.csv", index=False)
    with warned(UserWarning, 1, 5, "step", "'later'"):
        curve = read_curve(tmp_path / "curve.csv")
    assert curve.steps.tolist() == [0, 950, 1000, 12500]
    assert curve.loss.tolist() == [1.0, 0.9, 0.8, 0.7]


def test_a_curve_without_anything_to_go_by_hears_what_would_do(tmp_path, capsys):
    pd.DataFrame({"step": [1, 2, 3], "perplexity": [3.0, 2.0, 1.0]}).to_csv(tmp_path / "curve.csv", index=False)
    refused_command(capsys, "forecast", tmp_path / "curve.csv", says=["the curve", "perplexity", "attn_L_H", "loss"])


def test_every_outcome_has_a_sentence():
    notes = Notes(loss=LossNotes(20, 1.0, 100.0, 1.0))
    for outcome in Outcome:
        assert str(Forecast(outcome, 500.0, "gain", step=900.0, notes=notes))


@pytest.mark.parametrize("column", ["loss", "attn_0_0"])
def test_a_cell_with_text_is_left_out_with_a_warning(tmp_path, column):
    rows = [{"step": str(10 * i), "loss": "2.5", "attn_0_0": "0.1"} for i in range(1, 31)]
    rows[12][column] = "abc"
    path = tmp_path / "curve.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    with warned(UserWarning, 1, 30, column, "abc"):
        curve = read_curve(path)
    assert np.isnan(curve.values(column)).sum() == 1


def test_an_archived_run_that_emerged_is_known_by_its_own_record():
    store = Store(Path(__file__).parents[1] / "results" / "store")
    run = next(r for r in store if (found := r.result()) is not None and found.status == "emerged")
    assert not run.path.exists()  # it is in a shard
    forecast = sources.finished(run.path, read_curve(run.path))
    assert forecast.outcome is Outcome.EMERGED
    assert forecast.step == run.result().plateau_steps


def test_a_run_older_than_a_setting_has_its_default():
    mine = {"task": "single_location", "model": "transformer", "T": 16, "d": 4, "B": 1}
    old = {**mine, "embedding": None, "status": "emerged"}
    table = pd.DataFrame([old, {**old, "embedding": "linear"}, {**old, "embedding": "normal"}])
    assert prior.runs_alike(table, {**mine, "embedding": "linear"}, "d + T/B").index.tolist() == [0, 1]
    assert prior.runs_alike(table, {**mine, "embedding": "normal"}, "d + T/B").index.tolist() == [2]
