"""The runs of a store that forecasts are fitted and evaluated on, and the steps at which each is forecast."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from unstuck.columns import TEST_ACCURACY, TEST_LOSS
from unstuck.curve import Curve
from unstuck.store.store import RunDirectory, Store

#: For each task: the measure that decides, and its threshold at which the plateau ends.
ENDS = {"single_location": (TEST_LOSS, 0.1), "recall": (TEST_ACCURACY, 0.5)}
#: Settings of the runs of Figure 3, beside sizes and seed.
STANDARD = {"layers": 2, "heads": 4, "qk": 64, "layer_norm": False, "batch": 32, "lr": 1e-4, "optim": "adam"}
FIRST_STEP, STEP_RATIO = 100, 1.2  # a run is forecast at steps 100 * 1.2^k, which do not depend on its outcome


@dataclass(frozen=True)
class MeasuredRun:
    """A finished run: its settings, with the step `plateau` and whether it `emerged`, and its curve."""

    settings: dict[str, Any]
    curve: Curve

    def __getitem__(self, setting: str) -> Any:
        return self.settings[setting]

    @property
    def is_regression(self) -> bool:
        return bool(self["name"] == "single_location")

    @property
    def is_standard(self) -> bool:
        return all(self[name] == value for name, value in STANDARD.items())

    def moments(self) -> Iterator[tuple[float, Curve]]:
        """As `moments` of its curve, before its plateau ends."""
        return moments(self.curve, self["plateau"])


def moments(curve: Curve, until: float) -> Iterator[tuple[float, Curve]]:
    """The steps 100 * 1.2^k before `until`, each with the curve up to it. The last row of that may be up to a fifth of
    the steps earlier, and is the present step of a forecast."""
    k = 0
    while (step := FIRST_STEP * STEP_RATIO**k) < until:
        part = curve.truncate(step)
        if len(part) > 1:
            yield step, part
        k += 1


def finished_runs(store: Store) -> Iterator[MeasuredRun]:
    """The finished runs of regression (as in Figure 3: random positions, flagged) and recall, without those under a
    repetition schedule; `plateau` is the last step of a run that did not emerge."""
    return (run for directory in store if (run := _measured(directory)) is not None)


def emerged_runs(store: Store) -> Iterator[MeasuredRun]:
    return (run for run in finished_runs(store) if run["emerged"])


def _measured(directory: RunDirectory) -> MeasuredRun | None:
    result, curve, spec = directory.result(), directory.curve(), directory.spec() or {}
    if result is None or curve is None or result.status not in ("emerged", "censored") or not _is_evaluated(spec):
        return None
    task, model = spec["task"], spec["model"]
    threshold = ENDS[task["name"]][1]
    plateau = result.crossings.get(f"{threshold:g}")
    if plateau is None and threshold not in result.thresholds:
        return None
    settings = {k: model[k] for k in ("layers", "heads", "qk", "layer_norm")}
    settings |= {"optim": spec["optim"]["name"], "lr": spec["optim"]["lr"], "batch": spec["train"]["batch"]}
    settings |= {"run_id": directory.path.name, "seed": spec["seed"]}
    settings |= {"plateau": result.steps if plateau is None else plateau, "emerged": plateau is not None}
    return MeasuredRun({**task, **settings}, curve)


def _is_evaluated(spec: dict[str, Any]) -> bool:
    """Is it a run of the plain task and model, none of the variants of a figure?"""
    task, model = spec.get("task", {}), spec.get("model", {})
    if "schedule" in spec or task.get("name") not in ENDS or "layers" not in model:
        return False
    if task["name"] == "single_location" and (task["position"], task["feature"]) != ("random", True):
        return False
    return not task.get("joined") and model.get("skip", True) and model.get("embedding", "linear") == "linear"
