"""Metrics of a watch in TensorBoard and W&B; a tracker that fails; the dashboard."""

import logging
import time

import numpy as np
import pytest
import torch
from torch import nn

import unstuck
from refusals import refused
from unstuck.attach.line import Line
from unstuck.attach.live import AT_STEP, LAYOUT, PREFIX, Trackers, moved_most, row_metrics
from unstuck.curve import Curve
from unstuck.forecast import Forecaster
from unstuck.forecast.sources import read_curve

STEPS = np.arange(0, 901, 10.0)


def a_curve():
    """A plateau, on which one head of two moves."""
    gain = 0.2 * (STEPS / 1500) ** 3
    return Curve.from_rows(
        {"step": s, "train_loss": 1.0 + 0.002 * (-1) ** i, "attn_2_3": 0.02 + g, "attn_0_1": 0.02}
        for i, (s, g) in enumerate(zip(STEPS, gain, strict=True))
    )


def test_metrics_are_those_of_the_curve():
    curve = a_curve()
    assert moved_most(curve)[0] == (2, 3)
    found = row_metrics(curve, len(curve) - 1, moved_most(curve))
    gain = curve.head("attention", 2, 3)[-1] - curve.head("attention", 2, 3)[0]
    assert found[f"{PREFIX}gain/2.3"] == pytest.approx(gain)
    assert found[f"{PREFIX}gain/0.1"] == 0
    assert found[f"{PREFIX}attention"] == pytest.approx(curve.best("attention")[-1])


def test_tensorboard_has_all_rows_the_forecast_and_a_layout(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter  # the process uses it

    curve = a_curve()
    said = Forecaster().predict(curve)
    trackers = Trackers()
    half = curve.truncate(450)
    trackers.write(half, Line.of(half, Forecaster().predict(half)), tmp_path)
    trackers.write(curve, Line.of(curve, said), tmp_path)
    trackers.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    tags = events.Tags()
    attention = events.Scalars(f"{PREFIX}attention")
    assert [e.step for e in attention] == STEPS.tolist()  # each row once
    assert [e.value for e in attention] == pytest.approx(curve.best("attention"), rel=1e-5)
    low, high = said.interval()
    last = {name: events.Scalars(f"{PREFIX}{name}")[-1] for name in ("exit", "exit_low", "exit_high", "probability")}
    assert {name: e.value for name, e in last.items()} == pytest.approx(
        {"exit": said.step, "exit_low": low, "exit_high": high, "probability": said.probability}, rel=1e-5
    )
    assert {e.step for e in last.values()} == {900}
    assert "custom_scalars__config__" in tags["tensors"]
    assert list(LAYOUT) == ["unstuck"]
    given = SummaryWriter(str(tmp_path / "given"))
    Trackers([given]).write(curve, Line.of(curve, said), None)
    given.close()
    assert f"{PREFIX}exit" in EventAccumulator(str(tmp_path / "given")).Reload().Tags()["scalars"]


def test_wandb_gets_metrics_beside_the_steps_of_the_training(tmp_path, offline_wandb):
    curve = a_curve()
    line = Line.of(curve, Forecaster().predict(curve))
    with offline_wandb.init(project="test", mode="offline", dir=str(tmp_path)) as run:
        trackers = Trackers()
        run.log({"loss": 2.0}, step=7)
        trackers.write(curve, line, None)
        assert run.step <= 8  # the training may go on with its own next step
        run.log({"loss": 1.0}, step=9)
    offline_wandb.teardown()
    (file,) = tmp_path.rglob("*.wandb")
    logged = read_curve(file)
    assert logged.steps.tolist() == [7, 9]
    assert logged.values("loss")[np.isfinite(logged.values("loss"))].tolist() == [2.0, 1.0]
    values = logged.values(f"{PREFIX}exit")
    assert values[np.isfinite(values)].tolist() == [pytest.approx(line.forecast.step)]
    assert 900 in logged.values(AT_STEP)


class Failing:
    def add_scalar(self, *args):
        raise OSError("the network is gone")

    add_custom_scalars = flush = add_scalar


def test_a_tracker_that_fails_ends_nothing(tmp_path, caplog):
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    probe = torch.randn(2, 5, 8)
    watch = unstuck.watch(model, optimizer, probe=probe, out=tmp_path / "run", every=1, trackers=[Failing()])
    for _ in range(3):
        loss = model(probe).square().mean()
        loss.backward()
        optimizer.step()
        watch.loss(loss)
        watch.report()
    assert watch.step == 3
    assert [r.levelno for r in caplog.records if r.levelno >= logging.WARNING] == [logging.WARNING]
    with refused("trackers"):
        unstuck.watch(model, trackers=["tensorboard"])


def test_the_dashboard_shows_a_watched_training_while_it_goes_on(tmp_path):
    from starlette.testclient import TestClient

    from unstuck.view.dashboard.app import make_app

    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.Sequential(nn.Embedding(12, 8), layer, nn.Linear(8, 12))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = unstuck.watch(model, optimizer, vocabulary=12, out=tmp_path / "mine", every=2, trackers=())
    client = TestClient(make_app(tmp_path), base_url="http://127.0.0.1")
    seen = []
    for _ in range(2):
        for _ in range(4):
            loss = model(torch.randint(12, (2, 6))).square().mean()
            optimizer.zero_grad()
            loss.backward()
            watch.loss(loss)
            optimizer.step()
        watch.save()
        for _ in range(100):  # on a busy machine the dashboard rests between two looks
            (running,) = client.get("/api/live").json()["running"]
            if running["step"] == watch.step:
                break
            time.sleep(0.1)
        seen.append((running["run_id"], running["step"], running["of"]))
    assert seen == [("mine", 4, None), ("mine", 8, None)]
    curve = client.get("/api/curve", params={"run": "mine"}).json()["curve"]
    assert curve["step"] == [0, 2, 4, 6, 8]
    assert len([x for x in curve["train_loss"] if x is not None]) == 4
