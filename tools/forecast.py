"""Calibrate the forecaster on some regression runs and test it on others: sizes, copies, seeds it has not seen, recall.

Every run under results/store that emerged is asked for a forecast at the steps 100 * 1.2^k, which know nothing of its
outcome. All are scored, then grouped by the part of the plateau that had elapsed. Writes the calibration that the
package ships, results/forecast.csv with every forecast, and results/forecast.json with the scores.
"""

import itertools
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from unstuck.forecast.calibration import Calibration, calibrate
from unstuck.forecast.forecaster import Forecaster
from unstuck.forecast.signals import SIGNALS
from unstuck.laws import fit_power_law
from unstuck.papers.provenance import provenance
from unstuck.runs.store import Store

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
CALIBRATION = ROOT / "src" / "unstuck" / "forecast" / "calibration.json"
GROUPS = [0.0, 0.15, 0.3, 0.5, 0.7, 1.0]
LEVEL = 0.8
STANDARD = {"layers": 2, "heads": 4, "qk": 64, "layer_norm": False, "batch": 32, "lr": 1e-4, "optim": "adam"}


def runs(store: Store) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Settings and curve of every run that emerged."""
    for directory in store:
        result = (directory.status() or {}).get("result")
        curve = directory.curve()
        if not result or result["status"] != "emerged" or curve is None:
            continue
        spec = directory.spec() or {}
        task, model = spec["task"], spec["model"]
        if task["name"] not in ("single_location", "recall") or "layers" not in model:
            continue
        plateau = result["crossings"].get("0.5") if task["name"] == "recall" else result["crossings"].get("0.1")
        if plateau is None:
            continue
        settings = {k: model[k] for k in ("layers", "heads", "qk", "layer_norm")}
        settings |= {"optim": spec["optim"]["name"], "lr": spec["optim"]["lr"], "batch": spec["train"]["batch"]}
        settings |= {"run_id": directory.path.name, "seed": spec["seed"], "plateau": plateau}
        yield {**task, **settings}, curve


def held_out(run: dict[str, Any]) -> bool:
    """Sizes, copies, repetition and seeds that nothing is tuned on."""
    return run["d"] >= 64 or run["T"] >= 128 or run["B"] in (2, 8) or run["p"] > 0 or run["seed"] >= 2


def moments(curve: pd.DataFrame, plateau: float) -> Iterator[tuple[float, pd.DataFrame]]:
    """The steps 100 * 1.2^k before the plateau's end, and the curve up to each."""
    k = 0
    while (step := 100 * 1.2**k) < plateau:
        part = curve[curve["step"] <= step]
        if len(part) > 1:
            yield step, part
        k += 1


def calibrations(tuning: list[tuple[dict[str, Any], pd.DataFrame]]) -> dict[str, Calibration]:
    out = {}
    middle = float(np.median([run["plateau"] for run, _ in tuning]))
    for name, (_, signal) in SIGNALS.items():
        values, ahead, names = [], [], []
        for run, curve in tuning:
            for step, part in moments(curve, run["plateau"]):
                values.append(signal(part)[-1])
                ahead.append(math.log(run["plateau"] / step))
                names.append(run["plateau"] > middle)  # short plateaus judge the curve of the long ones, and vice versa
        out[name] = calibrate(name, values, ahead, names, len(tuning))
    return out


def by_loss(part: pd.DataFrame, threshold: float, column: str) -> float:
    """Extrapolate the last third of the curve in a straight line to the threshold; never before now."""
    last = part[part["step"] >= part["step"].max() * 2 / 3]
    now = float(part["step"].max())
    if len(last) < 2:
        return 2 * now
    slope, offset = np.polyfit(last["step"], last[column], 1)
    if slope == 0 or (threshold - offset) / slope <= now:
        return 1e3 * now  # flat or going the wrong way: it says never; this stands for it
    return float(min((threshold - offset) / slope, 1e3 * now))


def extrapolation_error(table: pd.DataFrame) -> float:
    """How far off a law is at sizes beyond its own, in logarithms: fitted on the small half of the tuning runs, tested
    on the large half."""
    size = fit_power_law(table, "d + T/B").predict(table)
    small = size <= np.median(size)
    said = fit_power_law(table[small], "d + T/B", offset="fit").predict(table[~small])
    return float(np.sqrt(np.mean(np.log(said / table.loc[~small, "plateau_steps"]) ** 2)))


def forecasts(
    chosen: list[tuple[dict[str, Any], pd.DataFrame]], known: dict[str, Calibration], law: Any, beyond: float
) -> pd.DataFrame:
    rows = []
    for run, curve in chosen:
        regression = run["name"] == "single_location"
        prior = None
        if regression and law is not None and all(run[k] == v for k, v in STANDARD.items()):
            found = law.predict_interval({"d": run["d"], "T": run["T"], "B": run["B"]}, level=0.6827).iloc[0]
            spread = float(np.log(found["high"] / found["low"]) / 2)
            prior = (float(found["plateau"]), max(spread, beyond) if found["beyond"] else spread)
        threshold, column = (0.1, "test_loss") if regression else (0.5, "test_accuracy")
        for step, part in moments(curve, run["plateau"]):
            base = {k: run.get(k) for k in ("run_id", "name", "d", "T", "B", "p", "tokens", "pairs", "seed", "layers")}
            base |= {"step": step, "plateau": run["plateau"], "elapsed": step / run["plateau"]}
            answers: dict[str, tuple[float, float, float] | None] = {
                "twice elapsed": (2 * step, math.nan, math.nan),
                "loss extrapolated": (by_loss(part, threshold, column), math.nan, math.nan),
            }
            if prior is not None:
                z = prior[1] * 1.2816
                answers["law"] = (prior[0], prior[0] * math.exp(-z), prior[0] * math.exp(z))
            for name in known:
                for label, with_law in ((name, None), (f"{name} and law", prior)):
                    if label.endswith("law") and prior is None:
                        continue
                    said = Forecaster(name, with_law, LEVEL, known).of_curve(part)
                    answers[label] = None if said.plateau is None else (said.plateau, said.low, said.high)  # type: ignore[assignment]
            for method, answer in answers.items():
                given = answer or (math.nan, math.nan, math.nan)
                rows.append({**base, "method": method, "said": given[0], "low": given[1], "high": given[2]})
    return pd.DataFrame(rows)


def scores(table: pd.DataFrame) -> pd.DataFrame:
    """By method and part elapsed: how many answered, median error, bias, pinball loss, coverage."""
    table = table.assign(
        error=np.log(table["said"] / table["plateau"]),
        group=pd.cut(table["elapsed"], GROUPS, labels=[f"{a:.0%}-{b:.0%}" for a, b in itertools.pairwise(GROUPS)]),
    )
    rows = []
    for (method, group), part in table.groupby(["method", "group"], observed=True, sort=False):
        said = part.dropna(subset="said")
        row = {"method": method, "elapsed": group, "forecasts": len(part), "answered": len(said)}
        row |= {"error": float(np.expm1(said["error"].abs().median())), "bias": float(np.expm1(said["error"].median()))}
        within = said.dropna(subset="low")
        row["coverage"] = float(((within["low"] <= within["plateau"]) & (within["plateau"] <= within["high"])).mean())
        row["pinball"] = float(np.mean([_pinball(within, q) for q in (0.1, 0.5, 0.9)])) if len(within) else math.nan
        rows.append(row)
    return pd.DataFrame(rows)


def no_sign(known: dict[str, Calibration]) -> pd.DataFrame | None:
    """What is said, at their end, of runs that cannot emerge (tools/hopeless.py)."""
    file = RESULTS / "hopeless.csv"
    if not file.exists():
        return None
    rows = []
    for (kind, seed), curve in pd.read_csv(file).groupby(["kind", "seed"]):
        signs = {
            name: Forecaster(name, None, LEVEL, known).of_curve(curve.drop(columns=["kind", "seed"])) for name in known
        }
        rows.append({"kind": kind, "seed": seed, **{name: said.sign for name, said in signs.items()}})
    return pd.DataFrame(rows)


def _pinball(part: pd.DataFrame, q: float) -> float:
    column = {0.1: "low", 0.5: "said", 0.9: "high"}[q]
    missed = np.log(part["plateau"]) - np.log(part[column])
    return float(np.maximum(q * missed, (q - 1) * missed).mean())


def main() -> int:
    found = list(runs(Store(RESULTS / "store")))
    regression = [(run, curve) for run, curve in found if run["name"] == "single_location" and run["optim"] == "adam"]
    tuning = [pair for pair in regression if not held_out(pair[0]) and pair[0]["layers"] > 1]
    standard = pd.DataFrame([run for run, _ in tuning if all(run[k] == v for k, v in STANDARD.items())])
    standard = standard.assign(plateau_steps=standard["plateau"], status="emerged")
    law = fit_power_law(standard, "d + T/B", offset="fit")
    beyond = extrapolation_error(standard)
    known = calibrations(tuning)
    text = {"written by": "tools/forecast.py", "calibrations": [c.as_dict() for c in known.values()]}
    CALIBRATION.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")
    sets = {
        "held-out regression": [pair for pair in regression if held_out(pair[0])],
        "recall": [pair for pair in found if pair[0]["name"] == "recall"],
    }
    tables, summaries = [], {}
    for name, chosen in sets.items():
        if chosen:
            table = forecasts(chosen, known, law, beyond)
            tables.append(table.assign(set=name))
            summaries[name] = scores(table)
            print(f"{name}: {len(chosen)} runs (tuned on {len(tuning)}; {law}; {beyond:.0%} off beyond its sizes)")
            print(summaries[name].round(3).to_string(index=False))
    hopeless = no_sign(known)
    if hopeless is not None:
        print(hopeless.to_string(index=False))
    pd.concat(tables).to_csv(RESULTS / "forecast.csv", index=False, float_format="%.6g")
    summary = {name: table.to_dict("records") for name, table in summaries.items()}
    about = {"tuning_runs": len(tuning), "law": str(law), "scores": summary, "provenance": provenance()}
    about["hopeless"] = [] if hopeless is None else hopeless.to_dict("records")
    (RESULTS / "forecast.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
