"""A sweep with workers and a run are killed at any moment: nothing is lost, and every bit is as if nobody had."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")


@pytest.mark.parametrize(
    ("kills", "spawned", "every"),
    [(3, 0, 50), pytest.param(100, 6, 1, marks=pytest.mark.slow)],
    ids=["some", "a hundred"],
)
def test_kills_cost_nothing_but_time(tmp_path, kills, spawned, every):
    """`make test-all` kills more often, also sweeps with spawned workers."""
    words = ["--kills", kills, "--spawned", spawned, "--every", every, "--out", tmp_path / "kills.csv"]
    words = [str(word) for word in words]
    done = subprocess.run([sys.executable, str(ROOT / "tools/kill_table.py"), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    table = pd.read_csv(tmp_path / "kills.csv")
    sweeps, runs = (table[table["what"] == what] for what in ("sweep", "run"))
    assert sweeps["workers"].tolist() == ["forked"] * kills + ["spawned"] * spawned
    assert len(runs) >= 100 // every
    assert set(sweeps["signal"]) == {"SIGKILL", "SIGTERM", "SIGINT"}
    assert table["identical"].all()
    assert not table["lost"].any()
    assert (sweeps["resumed_from"] > 0).any()


def test_the_committed_table_is_of_a_hundred_kills_without_a_loss():
    table = pd.read_csv(ROOT / "results/kills.csv")
    sweeps, runs = (table[table["what"] == what] for what in ("sweep", "run"))
    assert len(sweeps) >= 100
    assert set(sweeps["signal"]) == {"SIGKILL", "SIGTERM", "SIGINT"}
    assert set(sweeps["workers"]) == {"forked", "spawned"}
    places = runs["moment"].str.extract(r"operation (\d+):")[0].astype(int)
    assert places.tolist() == list(range(1, len(runs) + 1))  # every one of a run
    assert len(runs) >= 100
    assert table["identical"].all()
    assert not table["lost"].any()
