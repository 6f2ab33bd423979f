"""What docs/own-task.md and examples/ tell a newcomer to do works as written."""

import json
import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from unstuck.cli import main

ROOT = Path(__file__).resolve().parent.parent
SMALL = ["model.width=16", "model.heads=1", "model.qk=8", "train.max_steps=8", "task.T=4", "task.d=1"]


def test_the_ten_minute_task_of_the_docs(tmp_path, monkeypatch, capsys):
    page = (ROOT / "docs" / "own-task.md").read_text()
    section = page[page.index("## A task in ten minutes") :]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL).group(1)
    monkeypatch.chdir(tmp_path)
    Path("my_task.py").write_text(textwrap.dedent(code))
    assert main(["train", "my_task.py", *SMALL, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["status"], result["steps"]) == ("censored", 8)
    easy = [*SMALL[:3], "task.T=2,3,4", "task.d=1,2", "optim.lr=5e-3", "train.thresholds=0.3", "train.max_steps=1500"]
    assert main(["sweep", "my_task.py", *easy, "--out", "more", "--json", "--workers", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["emerged"] == 6
    assert main(["fit", "more", "T + d", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n"] == 6


def test_the_model_of_the_docs(tmp_path, monkeypatch, capsys):
    page = (ROOT / "docs" / "own-task.md").read_text()
    section = page[page.index("## A model or an optimiser") :]
    monkeypatch.chdir(tmp_path)
    Path("flat.py").write_text(re.search(r"```python\n(.*?)```", section, re.DOTALL).group(1))
    words = ["train", "regression", "model.name=flat.py", "model.width=8", "task.T=4", "task.d=1", "train.max_steps=8"]
    found = []
    for store in ("one", "two"):  # it draws its weights from no generator that it was handed, and is the same still
        assert main([*words, "--out", store, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["steps"] == 8
    assert found[0]["final"]["test_loss"] == found[1]["final"]["test_loss"]


def test_the_example_task_sweeps_fits_and_plots(tmp_path):
    words = [sys.executable, str(ROOT / "examples/new_task.py"), "--small", "--out", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "plateau =" in done.stdout
    assert (tmp_path / "flagged_sum.png").read_bytes().startswith(b"\x89PNG")


def test_the_example_of_a_loop_of_ones_own(tmp_path, capsys):
    pytest.importorskip("transformers")
    small = ["--steps", "40", "--width", "8", "--context", "32", "--every", "10", "--schedule"]
    words = [sys.executable, str(ROOT / "examples/watch_gpt2.py"), *small, "--out", str(tmp_path / "mine")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()[:4]] == [f"step {n}" for n in (10, 20, 30, 40)]
    assert main(["forecast", str(tmp_path / "mine"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step"] is None  # nothing can emerge in 40 steps


def test_the_example_task_takes_less_than_forty_lines():
    source = (ROOT / "examples/new_task.py").read_text()
    task = source[source.index("@config") : source.index("def main")]
    assert len([line for line in task.splitlines() if line.strip()]) < 40
    assert "FlaggedSum" in runpy.run_path(str(ROOT / "examples/new_task.py"), run_name="example")
