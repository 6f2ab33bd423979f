"""Use an installed unstuck as a stranger would: `python smoke.py`, or `python smoke.py papers` with that extra.

Without extras: watch a small torch model, forecast a CSV, fit a law, predict, train; reports and figures end with one
sentence. With `papers`: a figure, and a report of figures and runs. Works in the current directory.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

import unstuck

STEPS = 40


def command(*words: str, code: int = 0) -> str:
    done = subprocess.run([sys.executable, "-m", "unstuck", *words], capture_output=True, text=True)
    if done.returncode != code or "Traceback" in done.stderr:
        raise SystemExit(f"unstuck {' '.join(words)}: exit {done.returncode}, not {code}\n{done.stdout}{done.stderr}")
    return done.stdout


def answer(*words: str) -> dict[str, Any]:
    return json.loads(command(*words, "--json"))


def watch_a_model() -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(8, 5, 16)
    watch = unstuck.Watch(model, inputs, every=10)
    for step in range(STEPS + 1):
        loss = model(inputs).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        watch(step, loss=loss)
    assert watch.curve.steps.tolist() == [0, 10, 20, 30, 40], watch.curve
    assert watch.curve.heads("row_entropy").shape == (5, 1, 2), watch.curve
    watch.save("watched")


def forecast_a_curve() -> None:
    rows = [f"{step},{0.5 + 0.001 * (step % 300) / 300}" for step in range(0, 10_000, 100)]
    Path("curve.csv").write_text("\n".join(["step,loss", *rows]))
    assert "step" in answer("forecast", "curve.csv")


def fit_a_law() -> None:
    rows = [f"{T},{d},{2 * T * d**0.5}" for T in (16, 32, 64) for d in (4, 8)]
    Path("runs.csv").write_text("\n".join(["T,d,plateau_steps", *rows]))
    law = answer("fit", "runs.csv", "T + d", "--predict", "T=128", "d=8")
    assert abs(law["exponents"]["T"] - 1) < 1e-9, law
    assert law["predictions"][0]["plateau"] > 500, law


def core() -> None:
    for words in ([], ["predict"], ["fit"], ["train"], ["sweep"], ["runs"], ["forecast"]):
        assert "Usage" in command(*words, "--help"), words
    watch_a_model()
    forecast_a_curve()
    fit_a_law()
    assert 14_000 < answer("predict", "--T", "4096", "--d", "64", "--B", "8")["plateau"] < 15_000
    run = answer("train", "regression", "task.T=4", "task.d=2", "train.max_steps=600", "--out", "runs")
    assert run["status"] == "emerged", run
    assert len(answer("runs", "runs")["runs"]) == 1


def papers() -> None:
    command("reproduce", "fig1c", "--out", "figures")
    for name in ("fig1c.png", "fig1c.pdf", "fig1c.csv"):
        assert (Path("figures") / name).stat().st_size, name
    command("report", "figures")
    command("report", "runs")
    assert "Learning curves" in Path("runs/report.html").read_text(encoding="utf-8")


def without_papers() -> None:
    command("report", "runs", code=2)
    command("reproduce", "fig1c", code=2)


if __name__ == "__main__":
    core()
    papers() if sys.argv[1:] == ["papers"] else without_papers()
    print("works")
