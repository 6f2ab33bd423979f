"""The runs that forecasts are fitted and judged on, and the moments at which each is forecast."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from unstuck.columns import STEP, TEST_LOSS, head_columns, place
from unstuck.curve import Curve
from unstuck.store.store import RunDirectory, Store

from .events import CircuitRule, Event, ExitRule, finite_loss
from .features import KINDS, NAMES, Evidence, Kind

FIRST_STEP, STEP_RATIO = 60, 1.15  # a run is forecast at rows past the steps 60 * 1.15^k, which no outcome decides
#: Settings of the runs of Figure 3, beside sizes and seed.
STANDARD = {"layers": 2, "heads": 4, "qk": 64, "layer_norm": False, "batch": 32, "lr": 1e-4, "optim": "adam"}
SIZES = ("T", "d", "B", "p", "tokens", "pairs", "context", "burst", "vocabulary")
#: Families of runs that cannot emerge, of heads that only drift, and of runs that emerge once and cannot again.
CONTROL, DRIFT, FLOOR = "negative control", "drift", "floor"
NEVER = (CONTROL, DRIFT, FLOOR)
STRANGER = "encoder"  # begins the families of runs of Transformers that are not ours
STANDARD_RULE = ExitRule()


@dataclass(frozen=True)
class MeasuredRun:
    """A finished run: its settings, a `family` of runs alike, and its curve."""

    run_id: str
    family: str
    settings: dict[str, Any]
    curve: Curve

    @property
    def task(self) -> str:
        return self.family.partition(", ")[0]

    @property
    def size(self) -> str:
        """Runs of one size differ in seed, rate and model alone; they are left out together."""
        if self.family == FLOOR:
            return str(self.settings["kind"])
        sizes = [f"{name}={self.settings[name]:g}" for name in SIZES if self.settings.get(name) is not None]
        return " ".join([self.family, *(sizes or [self.run_id])])

    @property
    def is_standard(self) -> bool:
        return all(self.settings.get(name) == value for name, value in STANDARD.items())


class Moment(NamedTuple):
    """A run at a step before an event: what was known then, since the loss came to its level; and the step of the
    event, None if it never came."""

    step: float
    evidence: Evidence
    event: float | None


def finished_runs(store: Store) -> Iterator[MeasuredRun]:
    """The finished runs of a store that measured heads, without those under a repetition schedule."""
    return (run for directory in store if (run := _measured(directory)) is not None)


def _measured(directory: RunDirectory) -> MeasuredRun | None:
    result, curve, spec = directory.result(), directory.curve(), directory.spec()
    if result is None or curve is None or spec is None or "schedule" in spec or not curve.measures:
        return None
    task, model = spec["task"], spec["model"]
    name = str(task["name"])
    parts = [name, *(["layer norm"] if model.get("layer_norm") else []), *(["repeated"] if task.get("p") else [])]
    settings = {**task, **{k: model.get(k) for k in ("layers", "heads", "qk", "layer_norm")}}
    settings |= {"optim": spec["optim"]["name"], "lr": spec["optim"]["lr"], "batch": spec["train"]["batch"]}
    settings |= {"seed": spec["seed"], "status": result.status}
    return MeasuredRun(directory.path.name, ", ".join(parts), settings, curve)


def is_fitted_on(run: MeasuredRun) -> bool:
    """Are models fitted on it? Runs with SGD have few rows, and in Markov chains the relevant tokens change. Runs at a
    floor are a test: with them in the fit a model learns that a run with one plateau behind it has no other, which
    stage-wise learning contradicts."""
    return run.settings.get("optim") != "sgd" and run.family != FLOOR and not run.family.startswith("markov")


def controls(table: pd.DataFrame) -> Iterator[MeasuredRun]:
    """Runs that cannot emerge, or not again, of the table that tools/negative_controls.py writes."""
    for (kind, seed), rows in table.groupby(["kind", "seed"]):
        curve = Curve.from_frame(rows.drop(columns=["kind", "seed"]).dropna(axis=1, how="all"), "run")
        family = FLOOR if str(kind).startswith(FLOOR) else CONTROL
        yield MeasuredRun(f"{kind} {seed}", family, {"seed": seed, "kind": kind}, curve)


def strangers(table: pd.DataFrame) -> Iterator[MeasuredRun]:
    """Runs of encoders that are not ours, of the table that tools/strangers.py writes."""
    of_curve = [c for c in table if c in (STEP, TEST_LOSS) or place(c)]
    for seed, rows in table.groupby("seed"):
        curve = Curve.from_frame(rows[of_curve].dropna(axis=1, how="all"), "watch")
        settings = rows.drop(columns=of_curve).iloc[0].to_dict() | {"layer_norm": True}
        family = CONTROL if settings["shuffled"] else f"{STRANGER} {settings.pop('task')}"
        yield MeasuredRun(f"{STRANGER} {seed}", family, settings, curve)


def drifting(many: int, seed: int) -> Iterator[MeasuredRun]:
    """Simulated curves that only drift: a flat, noisy loss; heads whose attention has measurement noise, walks at
    random, and shifts once as training begins. Sizes of all three, of heads, rows and contexts are drawn at random."""
    rng = np.random.default_rng(seed)
    for i in range(many):
        rows, heads = int(rng.integers(40, 120)), int(rng.integers(2, 17))
        steps = np.arange(rows) * float(rng.choice([10, 20, 50]))
        walk = rng.standard_normal((rows, heads)).cumsum(0) * rng.choice([0, 0.05, 0.1, 0.3, 0.6]) / np.sqrt(rows)
        settles = 1 - np.exp(-steps / steps[-1] * rng.choice([3, 10, 30]))
        shift = rng.choice([0, 0.1, 0.3, 0.8]) * rng.standard_normal(heads) * settles[:, None]
        noise = rng.choice([0.005, 0.02, 0.05]) * rng.standard_normal((rows, heads))
        attention = np.minimum(np.exp(walk - walk[0] + shift + noise) / rng.choice([16, 64, 256]), 1.0)
        losses = 1 + 0.02 * rng.standard_normal(rows)
        columns = (
            {"step": s, "loss": x} | head_columns("attention", 0, a)
            for s, x, a in zip(steps, losses, attention, strict=True)
        )
        yield MeasuredRun(f"{DRIFT} {seed}.{i}", DRIFT, {"seed": i}, Curve.from_rows(columns))


def moments(run: MeasuredRun, kind: Kind, rule: ExitRule = STANDARD_RULE) -> Iterator[Moment]:
    """The moments at which a run is forecast: rows of this kind past the steps 60 * 1.15^k at which the event lies
    ahead, with measurements from a third of the step on. At a new level of the loss steps are counted anew."""
    evidence, waiting = Evidence.of(run.curve, kind), _waiting(run.curve, kind.event, rule)
    for since, group in groupby(waiting, key=lambda wait: wait.since):
        here, next_step = evidence.from_step(since), float(FIRST_STEP)
        ahead, usable_from = {wait.step: wait.event for wait in group}, here.usable_from
        for step, counted in zip(here.steps.tolist(), here.counted.tolist(), strict=True):
            if step >= usable_from and counted >= next_step and step in ahead:
                yield Moment(step, here.until(step), ahead[step])
                next_step = FIRST_STEP * STEP_RATIO ** (1 + math.floor(math.log(counted / FIRST_STEP, STEP_RATIO)))


class Waiting(NamedTuple):
    """A step at which an event lies ahead."""

    step: float
    event: float | None  # its step; None if it never comes
    since: float  # the step at which the loss came to its level; 0 before the first exit


def _waiting(curve: Curve, event: Event, rule: ExitRule) -> list[Waiting]:
    if event is Event.CIRCUIT:
        formed = CircuitRule().formed(curve)
        return [Waiting(float(s), formed, 0.0) for s in np.sort(curve.steps) if formed is None or s < formed]
    steps, losses = finite_loss(curve)
    return [Waiting(float(steps[at.row]), at.left, at.since) for at in rule.standing(steps, losses)]


def moments_table(runs: Iterable[MeasuredRun], kind: str = "attention", rule: ExitRule = STANDARD_RULE) -> pd.DataFrame:
    """A row for each run and moment: the step, the one that it is counted from, that of the event (NaN if it never
    came), the last one of the run (infinite if it cannot emerge, or not again), and the features."""
    rows = []
    for run in runs:
        if KINDS[kind].measures[0] not in run.curve.measures:
            continue
        known: dict[str, Any] = {"run_id": run.run_id, "family": run.family, "size": run.size}
        known["last"] = math.inf if run.family in NEVER else float(run.curve.steps.max())
        for step, evidence, event in moments(run, KINDS[kind], rule):
            found = dict(zip(NAMES, evidence.features, strict=True))
            when = {"since": evidence.since, "step": step, "event": math.nan if event is None else event}
            rows.append({**known, **when, **found})
    return pd.DataFrame(rows)
