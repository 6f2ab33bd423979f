"""How good are the forecasts? Tuned on some regression runs, tested on others: sizes, copies, seeds it has not seen.

Every run that emerged is asked for a forecast at the steps 100 * 1.2^k, which know nothing of its outcome. All are
scored, then grouped by the part of the plateau that had elapsed.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from unstuck.curve import Curve, head_columns
from unstuck.forecast.calibration import Calibration, by_theory, calibrate
from unstuck.forecast.forecaster import Forecast, Forecaster, weighed
from unstuck.forecast.prior import FORMULAS, extrapolation_error, opinion
from unstuck.forecast.signals import SIGNALS, available, chance
from unstuck.laws import PowerLaw, fit_power_law
from unstuck.papers.emergence import _seen
from unstuck.store.store import Store

Measured = tuple[dict[str, Any], Curve]  # settings with `plateau`, and curve
Tuned = tuple[dict[str, Calibration], PowerLaw, float]  # the last: how far off the law is beyond its sizes
GROUPS = [0.0, 0.15, 0.3, 0.5, 0.7, 1.0]
NAMES = [f"{100 * a:.0f}-{b:.0%}" for a, b in itertools.pairwise(GROUPS)]
LEVEL, LAW = 0.8, FORMULAS["single_location"]
HOPELESS = {"T": 32, "d": 16, "B": 1}  # the size of the runs of tools/hopeless.py
WITH_LAW, CORRECTED = "gain and law", "links, corrected"
TOLD = ("run_id", "name", "d", "T", "B", "p", "tokens", "pairs", "seed", "layers", "layer_norm")  # of a run
STANDARD = {"layers": 2, "heads": 4, "qk": 64, "layer_norm": False, "batch": 32, "lr": 1e-4, "optim": "adam"}


def emerged_runs(store: Store) -> Iterator[Measured]:
    """Every run of regression and recall in a store that emerged, but those under a diversity schedule."""
    return (pair for pair in finished_runs(store) if pair[0]["emerged"])


def finished_runs(store: Store) -> Iterator[Measured]:
    """Every finished run of regression (as in Figure 3: random positions, flagged) and recall in a store, but those
    under a diversity schedule; `plateau` is the last step of one that did not emerge."""
    for directory in store:
        result = directory.result()
        curve = directory.curve()
        spec = directory.spec() or {}
        if result is None or result.status not in ("emerged", "censored") or curve is None or "schedule" in spec:
            continue
        task, model = spec["task"], spec["model"]
        if task["name"] not in ("single_location", "recall") or "layers" not in model:
            continue
        if task["name"] == "single_location" and (task["position"], task["feature"]) != ("random", True):
            continue
        if task.get("joined") or not model.get("skip", True) or model.get("embedding", "linear") != "linear":
            continue  # a figure's variants of the task or the model, which forecasts are not about
        wanted = 0.5 if task["name"] == "recall" else 0.1
        plateau = result.crossings.get(f"{wanted:g}")
        if plateau is None and wanted not in result.thresholds:
            continue
        settings = {k: model[k] for k in ("layers", "heads", "qk", "layer_norm")}
        settings |= {"optim": spec["optim"]["name"], "lr": spec["optim"]["lr"], "batch": spec["train"]["batch"]}
        settings |= {"run_id": directory.path.name, "seed": spec["seed"]}
        settings |= {"plateau": result.steps if plateau is None else plateau, "emerged": plateau is not None}
        yield {**task, **settings}, curve


def is_standard(run: dict[str, Any]) -> bool:
    return all(run[k] == v for k, v in STANDARD.items())


def between(run: dict[str, Any]) -> bool:
    """Held out: cells of the grid of (d, T, B) like the fields of one colour of a chessboard; runs with p; seeds from
    2 on."""
    return _unseen_size(run) or run["p"] > 0 or run["seed"] >= 2


def _unseen_size(run: dict[str, Any]) -> bool:
    return round(math.log2(run["d"]) + math.log2(run["T"]) + math.log2(run["B"])) % 2 == 1


def beyond(run: dict[str, Any]) -> bool:
    """Held out: everything larger than what the forecaster was tuned on, by a factor of two in d, T or B; runs with
    p."""
    return run["d"] >= 64 or run["T"] >= 128 or run["B"] >= 8 or run["p"] > 0


SPLITS: dict[str, Callable[[dict[str, Any]], bool]] = {"between": between, "beyond": beyond}


def moments(curve: Curve, plateau: float) -> Iterator[tuple[float, Curve]]:
    """The steps 100 * 1.2^k before the plateau's end, and the curve up to each. Its last row is what is known then, and
    the clock that forecasts go by: it is up to a fifth of the steps ago."""
    k = 0
    while (step := 100 * 1.2**k) < plateau:
        part = curve.truncate(step)
        if len(part) > 1:
            yield step, part
        k += 1


def calibrations(tuning: list[Measured]) -> dict[str, Calibration]:
    out = {}
    middle = float(np.median([run["plateau"] for run, _ in tuning]))
    for name, (_, signal) in SIGNALS.items():
        if name in ("induction", "links"):  # regression has neither: they are read as `gain` is, or by theory
            continue
        values, ahead, names, starts = [], [], [], []
        for run, curve in tuning:
            seen, start = signal(curve), chance(curve)  # a row's value does not depend on later ones
            for _, part in moments(curve, run["plateau"]):
                values.append(seen[len(part) - 1])
                ahead.append(math.log(run["plateau"] / part.steps[-1]))
                starts.append(start)
                names.append(run["plateau"] > middle)  # short plateaus judge the curve of the long ones, and vice versa
        out[name] = calibrate(name, values, ahead, names, len(tuning), starts if name == "gain" else None)
        if name == "gain":
            out["links"] = by_theory("links", values, ahead, len(tuning))
    return out


def by_loss(part: Curve, threshold: float, column: str) -> float:
    """Extrapolate the last third of the curve in a straight line to the threshold; now, if the line has passed it."""
    now = float(part.steps.max())
    last = part.rows(part.steps >= now * 2 / 3)
    if len(last) < 2:
        return 2 * now
    slope, offset = np.polyfit(last.steps, last.values(column), 1)
    if slope == 0 or (slope > 0) != (column == "test_accuracy"):
        return 1e3 * now  # flat or going the wrong way: it says never; this stands for it
    return float(np.clip((threshold - offset) / slope, now, 1e3 * now))


def by_progress(part: Curve) -> float:
    """By the theory's law without a parameter: the part that has elapsed is erf(√Δa)."""
    elapsed = math.erf(math.sqrt(SIGNALS["gain"][1](part)[-1]))
    return float(part.steps.max()) / max(elapsed, 1e-3)


def forecasts(chosen: list[Measured], known: dict[str, Calibration], law: PowerLaw, off: float) -> pd.DataFrame:
    rows = []
    for run, curve in chosen:
        regression = run["name"] == "single_location"
        prior = None
        if regression and is_standard(run) and not run["p"]:  # the law is one of d and T/B
            prior = opinion(law, off, {"d": run["d"], "T": run["T"], "B": run["B"]})[:2]
        threshold, column = (0.1, "test_loss") if regression else (0.5, "test_accuracy")
        methods = _readable(curve, known)
        for step, part in moments(curve, run["plateau"]):
            base = {k: run.get(k) for k in TOLD}
            base |= {"step": step, "plateau": run["plateau"], "elapsed": round(step / run["plateau"], 4)}
            answers: dict[str, tuple[float, float, float] | None] = {
                "twice elapsed": (2 * step, math.nan, math.nan),
                "loss extrapolated": (by_loss(part, threshold, column), math.nan, math.nan),
                "progress law": (by_progress(part), math.nan, math.nan),
            }
            if prior is not None:
                # What has not happened by now happens later, for the law alone as for the forecaster.
                now = math.log(part.steps[-1])
                answers["law"] = weighed([(math.log(prior[0]), prior[1])], now, LEVEL)
            for name in methods:
                for label, with_law in ((name, None), (f"{name} and law", prior)):
                    if label.endswith("law") and prior is None:
                        continue
                    said = Forecaster(name, with_law, LEVEL, known).from_attention(part)
                    answers[label] = _answer(said)
            if "links" in methods:  # by the curve that regression corrects the law to
                said = Forecaster("links", None, LEVEL, {"links": known["gain"]}).from_attention(part)
                answers[CORRECTED] = _answer(said)
            for method, answer in answers.items():
                given = answer or (math.nan, math.nan, math.nan)
                rows.append({**base, "method": method, "said": given[0], "low": given[1], "high": given[2]})
    return pd.DataFrame(rows)


def _answer(said: Forecast) -> tuple[float, float, float] | None:
    """Middle and band of a forecast, where it names an end."""
    if said.plateau is None or said.low is None or said.high is None:
        return None
    return said.plateau, said.low, said.high


def _readable(curve: Curve, known: dict[str, Calibration]) -> list[str]:
    """The signals that a curve has the columns for."""
    there = available(curve)
    return [name for name in known if name in there]


def scores(table: pd.DataFrame) -> pd.DataFrame:
    """By method and part elapsed: how many answered, median error, bias, pinball loss, coverage."""
    table = table.assign(
        error=np.log(table["said"] / table["plateau"]),
        group=pd.cut(table["elapsed"], GROUPS, labels=NAMES),
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
    return pd.DataFrame(sorted(rows, key=lambda row: NAMES.index(row["elapsed"])))


def false_signs(curves: pd.DataFrame, known: dict[str, Calibration], law: PowerLaw, off: float) -> pd.DataFrame:
    """In runs that cannot emerge (tools/hopeless.py): is a sign of emergence seen at their end (`said`), and how often
    before (`signs` of `asked`)? With a law beside it: is an end named?"""
    rows = []
    prior = opinion(law, off, HOPELESS)[:2]
    for (kind, seed), rows_of_run in curves.groupby(["kind", "seed"]):
        curve = Curve.from_frame(rows_of_run, "run")
        parts = [part for _, part in moments(curve, curve.steps.max())]
        for name in _readable(curve, known):
            forecaster = Forecaster(name, None, LEVEL, known)
            before = [forecaster.from_attention(part).sign for part in parts]
            row = {"kind": kind, "seed": seed, "method": name, "said": float(forecaster.from_attention(curve).sign)}
            rows.append({**row, "signs": sum(before), "asked": len(before)})
        both = Forecaster("gain", prior, LEVEL, known)
        named = [both.from_attention(part).plateau is not None for part in [*parts, curve]]
        row = {"kind": kind, "seed": seed, "method": WITH_LAW, "said": float(named[-1])}
        rows.append({**row, "signs": sum(named[:-1]), "asked": len(parts)})
    return pd.DataFrame(rows)


#: Attention that only drifts: how much of it each look adds by chance, in the logarithm, and what a walk comes to.
NOISE = {"3% a look": (0.03, 0.0), "a walk of 10%": (0.0, 0.1), "a walk of 30%": (0.0, 0.3)}


def signs_in_noise(known: dict[str, Calibration], curves: int = 30, heads: int = 8, rows: int = 60) -> pd.DataFrame:
    """Curves of heads whose attention to the relevant token means nothing, made up, over 1,200 steps: how often is a
    sign seen (`signs` of `asked`)?"""
    found = []
    forecaster = Forecaster("gain", None, LEVEL, known)
    for kind, (alone, walk) in NOISE.items():
        for seed in range(curves):
            rng = np.random.default_rng([seed, *map(ord, kind)])
            drift = rng.standard_normal((rows, heads)).cumsum(0) * walk / math.sqrt(rows)
            logs = drift - drift[0] + alone * rng.standard_normal((rows, heads))
            attention = np.exp(logs) / HOPELESS["T"]
            looks = zip(20.0 * np.arange(rows), attention.reshape(rows, -1, 4), strict=True)
            curve = Curve.from_rows({"step": step, **_layers(look)} for step, look in looks)
            said = [forecaster.from_attention(part).sign for _, part in moments(curve, curve.steps.max())]
            found.append({"kind": kind, "seed": seed, "method": "gain", "signs": sum(said), "asked": len(said)})
    return pd.DataFrame(found)


def _layers(attention: np.ndarray) -> dict[str, float]:
    """Columns of attention in (layers, heads)."""
    return {k: v for layer, values in enumerate(attention) for k, v in head_columns("attention", layer, values).items()}


def gradient_norms(emerging: list[Measured], hopeless: pd.DataFrame) -> pd.DataFrame:
    """Norm of the gradient late in the plateau over early (`said`), in runs that emerge, and over the same steps in
    those of that size that cannot."""
    alike = [(run, curve) for run, curve in emerging if all(run[k] == size for k, size in HOPELESS.items())]
    ends = [run["plateau"] for run, _ in alike]
    curves = [("emerge", end, curve) for end, (_, curve) in zip(ends, alike, strict=True)]
    if ends:
        never = (Curve.from_frame(rows, "run") for _, rows in hopeless.groupby(["kind", "seed"]))
        curves += [("cannot", float(np.mean(ends)), curve) for curve in never]
    rows = []
    for which, end, curve in curves:
        norm = pd.Series(curve.values("grad_norm"), index=curve.steps / end)
        early, late = (norm[(norm.index >= a) & (norm.index <= b)].median() for a, b in ((0.2, 0.5), (0.6, 0.9)))
        rows.append({"method": which, "said": late / early})
    return pd.DataFrame(rows, columns=["method", "said"]).dropna()


def _pinball(part: pd.DataFrame, q: float) -> float:
    column = {0.1: "low", 0.5: "said", 0.9: "high"}[q]
    missed = np.log(part["plateau"]) - np.log(part[column])
    return float(np.maximum(q * missed, (q - 1) * missed).mean())


def tuned(tuning: list[Measured]) -> Tuned:
    """Calibrations, and a law with its error beyond its sizes, from these runs."""
    standard = pd.DataFrame([run for run, _ in tuning if is_standard(run)])
    standard = standard.assign(plateau_steps=standard["plateau"], status="emerged")
    return calibrations(tuning), fit_power_law(standard, LAW, offset="fit"), extrapolation_error(standard, LAW)


def _tuned_at_other_sizes(run: dict[str, Any]) -> bool:
    """Does it differ in layers, heads and their width alone? Such runs of other sizes are among those tuned on."""
    return all(run[k] == STANDARD[k] for k in ("batch", "lr", "optim"))


def ended_too_soon(unfinished: list[Measured], known: dict[str, Calibration]) -> pd.DataFrame:
    """Of runs that had not emerged by their last step: for each signal, how often it was `asked`, how often it
    `answered`, and how many bands had `ended` before that step; which is all one knows of them."""
    rows = []
    for run, curve in unfinished:
        for name in _readable(curve, known):
            forecaster = Forecaster(name, None, LEVEL, known)
            said = [forecaster.from_attention(part) for _, part in moments(curve, run["plateau"])]
            ends = [f.high for f in said if f.high is not None]
            counts = {"asked": len(said), "answered": len(ends), "ended": sum(end < run["plateau"] for end in ends)}
            rows.append({**{k: run[k] for k in ("run_id", "name", "p")}, "method": name, **counts})
    return pd.DataFrame(rows)


def held_out_sets(found: list[Measured]) -> Iterator[tuple[str, list[Measured], Tuned]]:
    """Name of a set of held-out runs, the runs, and what they are forecast with."""
    regression = [pair for pair in found if pair[0]["name"] == "single_location" and pair[0]["optim"] == "adam"]
    deep = [pair for pair in regression if pair[0]["layers"] > 1]
    for split, held_out in SPLITS.items():
        tuning = [pair for pair in deep if not held_out(pair[0])]
        if not tuning:
            continue
        what = tuned(tuning)
        standard = [pair for pair in deep if held_out(pair[0]) and is_standard(pair[0])]
        plain = [pair for pair in standard if not pair[0]["p"]]
        yield split, [pair for pair in plain if split != "between" or _unseen_size(pair[0])], what
        if split == "between":
            yield "other seeds", [pair for pair in plain if not _unseen_size(pair[0])], what
            yield "cross-sample repetition", [pair for pair in standard if pair[0]["p"]], what
            others = [p for p in deep if held_out(p[0]) and not is_standard(p[0])]
            yield "other layers and heads", [p for p in others if _tuned_at_other_sizes(p[0])], what
            yield "other rates and batches", [p for p in others if not _tuned_at_other_sizes(p[0])], what
            yield "one layer", [pair for pair in regression if pair[0]["layers"] == 1], what
            recall = [pair for pair in found if pair[0]["name"] == "recall"]
            yield "recall", [pair for pair in recall if pair[0]["run_id"] in _seen.RECALL], what
            yield "recall since", [pair for pair in recall if pair[0]["run_id"] not in _seen.RECALL], what
