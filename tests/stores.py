"""Made-up run stores for the tests of report and dashboard."""

import json

import numpy as np
import pandas as pd

from unstuck.config import load_spec
from unstuck.store.store import RunDirectory


def a_store(path, runs, rows=30, name="single_location"):
    """Made-up runs that obey 3 d T^0.5, of which one in ten did not emerge."""
    for i in range(runs):
        d, T = 2 ** (i % 4 + 2), 2 ** (i // 4 % 3 + 3)
        spec = load_spec("regression", [f"task.d={d}", f"task.T={T}", f"seed={i}"])
        directory = RunDirectory(path / f"{i:016x}")
        directory.path.mkdir(parents=True)
        plain = spec.as_dict()
        plain["task"]["name"] = name
        directory._write("spec.yaml", json.dumps(plain).encode())
        plateau = 3.0 * d * T**0.5
        emerged = i % 10 < 9
        result = {
            "status": "emerged" if emerged else "censored",
            "threshold": 0.1,
            "plateau_steps": plateau if emerged else None,
            "crossings": {"0.1": plateau} if emerged else {},
            "steps": int(plateau if emerged else plateau / 2),
            "seconds": 1.0,
            "final": {"test_loss": 0.1},
        }
        directory.write_status({"state": "finished", "step": result["steps"], "result": result})
        step = np.linspace(0, plateau, rows)
        loss = 0.5 / (1 + np.exp((step / plateau - 0.9) * 40)) + 0.01
        attention = np.exp(np.linspace(-3, 0, rows))
        directory.write_curve(pd.DataFrame({"step": step, "test_loss": loss, "attn_0_0": attention}))
    return path


def a_live_store(path, archive, parts):
    """Archived runs as if they were in training, each up to a part of its plateau: {run_id: part}. Hold their locks."""
    running = []
    for run_id, part in parts.items():
        source, run = RunDirectory(archive / run_id), RunDirectory(path / run_id)
        run.path.mkdir(parents=True)
        run._write("spec.yaml", json.dumps(source.spec()).encode())
        result, curve, maps = source.result(), source.curve(), source.maps()
        now = part * result.plateau_steps
        run.write_curve(curve.truncate(now).to_frame())
        if maps is not None:
            run.write_maps(maps[maps["step"] <= now])
        step = int(curve.truncate(now).steps[-1])
        run.write_status({"state": "running", "step": step, "seconds": result.seconds * step / result.steps})
        running.append(run)
    return running


def mixed_store(path):
    """Eight runs with twice the plateau, since they have another learning rate."""
    store = a_store(path, 24)
    for i in range(8):
        run = RunDirectory(store / f"{i:016x}")
        spec, status = run.spec(), run.status()
        spec["optim"]["lr"] = 0.5
        run._write("spec.yaml", json.dumps(spec).encode())
        if status["result"]["plateau_steps"]:
            status["result"]["plateau_steps"] *= 2
        run.write_status(status)
    return store
