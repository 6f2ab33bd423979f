"""A forecast of the step at which a run will leave its plateau, with an interval, while the loss is still flat.

The signal says which part of the plateau has elapsed; the step is known; so is the plateau, within the spread of the
runs that the signal was calibrated on. A law, where there is one, is a second opinion: both are normal in the logarithm
of the step, and are weighed by how sure they are. What has not happened by now happens later, so the forecast is cut at
the present step.

There is a sign of emergence if the forecast holds still while the run goes on. A signal that only drifts gives one that
recedes as fast as the steps pass.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from unstuck.curve import STEP, Curve, pattern
from unstuck.errors import BadInput
from unstuck.scalars import number, real

from .calibration import Calibration, shipped
from .plateau import LATELY, MASTERED, plateau_left, plateau_since
from .signals import SIGNALS, UNCALIBRATED, chance, fall, recorded
from .sources import astray

#: Of each signal: below the first it is what chance does to a few heads; from the second on it is more than that.
QUIET = {"gain": (0.05, 0.1), "induction": (0.3, 0.3), "sharpening": (0.002, 0.02), "parting": (0.001, 0.01)}
QUIET["links"] = QUIET["gain"]
QUIET[UNCALIBRATED] = (math.inf, math.inf)  # nothing is a sign in what was not calibrated
#: Growth of the forecast over growth of the step, both in logarithms, above which there is no sign: for signals between
#: the two, and for those beyond.
RECEDES = (0.3, 0.7)
#: A gain below the first is taken for noise, which falls as often as it rises, unless it is so many times what any head
#: has lost.
DRIFT, RISES = 0.7, 2.0
LOOK_BACK = 2.2  # by which factor of steps
BLIND = ("sharpening", "parting")
ROUNDED = 0.01  # by which a part may be more than 1
FORMED = 0.5  # induction score of a head that looks where an induction head does
REFUTED = 0.99  # chance that a law gave to what has not happened: from there on it is not listened to
STOPPED = (2.0, 0.2)  # looks at attention: so many times their widest gap ago, and this part of the steps
TOGETHER = 0.3  # correlation of the errors of law and signal: both rest on smaller runs


@dataclass(frozen=True)
class Forecast:
    """The step at which the run will leave its plateau: median, and an interval of `level`. `plateau` is None where
    there is neither a sign of emergence nor a law, and where nothing is left to wait for: `over`, since the loss has
    fallen or induction heads have formed (`left` is the step, where it has one; of a loss that only begins to fall,
    too), or `diverged`.
    `seen` is the last step at which attention was looked at, if that is long ago; `refuted` what a law said that has
    not come true; `moved` the signal, where it is more than chance does but names no end that stays where it is."""

    step: int
    plateau: float | None
    low: float | None
    high: float | None
    elapsed: float | None  # part of the plateau
    sign: bool  # of emergence, in the signal
    signal: str
    level: float
    left: float | None = None
    over: bool = False
    tells_from: float | None = None  # the step from which on its rows could tell, where they do not go back far enough
    formed: bool = False  # induction heads
    diverged: str | None = None  # in what way
    seen: int | None = None
    refuted: float | None = None
    moved: float | None = None

    def __str__(self) -> str:
        if self.diverged:
            return f"the run has diverged: its loss is {self.diverged} at step {self.step:,}"
        if self.formed:
            return f"formed induction heads at about step {self.left:,.0f}"
        if self.over and self.left is None:
            return f"the loss has fallen nearly to nothing by step {self.step:,}, and no plateau is seen on its way"
        if self.over:
            none = "; no induction head has formed" if self.signal == "induction" else ""
            return f"left its plateau at about step {self.left:,.0f}, as the loss shows{none}"
        falls = "" if self.left is None else f"; the loss falls since about step {self.left:,.0f}"
        if self.refuted is not None:
            falls += f"; the law said {self.refuted:,.0f}, which has not come true, and is left out"
        if self.seen is not None:
            falls += f"; attention was last looked at at step {self.seen:,}"
        if self.plateau is None and self.signal == UNCALIBRATED:
            what = "without targets or a vocabulary a watch has only the entropy of all rows, which names no end"
            return f"no calibrated signal at step {self.step:,}: {what}{falls}"
        if self.plateau is None and self.tells_from is not None:
            back = f"rows go back to step {self.tells_from / LOOK_BACK:,.0f} only"
            later = math.ceil(self.tells_from)
            return f"too early to tell at step {self.step:,}: {back}, so from step {later:,} on{falls}"
        if self.plateau is None and self.moved is not None:
            far = "" if self.signal in BLIND else f", to {math.exp(self.moved):.1f} times where it began"
            why = "but names no end that stays where it is"
            return f"attention has moved{far}, {why}, by step {self.step:,} (signal: {self.signal}){falls}"
        if self.plateau is None or self.low is None or self.high is None or self.elapsed is None:
            return f"no sign of emergence by step {self.step:,} (signal: {self.signal}){falls}"
        seen = ("" if self.sign else "; no sign of it yet, this is the law's word") + falls
        what = "forms induction heads" if self.signal == "induction" else "leaves the plateau"
        return (
            f"{what} at about step {self.plateau:,.0f} ({self.low:,.0f} to {self.high:,.0f} with "
            f"{100 * self.level:g}%), {self.elapsed:.0%} of it done{seen}"
        )


class Forecaster:
    """Give it the rows of a curve as they come; ask it for a forecast at any time.

    `prior` is a law's word on this run: median of the plateau and standard deviation of its logarithm, as
    `PowerLaw.predict_interval` or experience has it.
    """

    def __init__(
        self,
        signal: str = "auto",
        prior: tuple[float, float] | None = None,
        level: float = 0.8,
        calibrations: Mapping[str, Calibration] | None = None,
    ) -> None:
        if signal not in ("auto", *SIGNALS):
            raise BadInput("signal", signal, f"one of auto, {', '.join(SIGNALS)}")
        self.signal, self.prior = signal, None if prior is None else _pair(prior)
        self.level = real("level", level, 0.01, 0.9999, "a number from 0.01 to 0.9999")
        self.calibrations = dict(shipped() if calibrations is None else calibrations)
        if "gain" in self.calibrations:  # the same quantity, of other tokens
            self.calibrations.setdefault("induction", self.calibrations["gain"])
        self.rows: list[dict[str, float]] = []

    def update(self, row: Mapping[str, Any]) -> "Forecaster":
        """Take a row: `step`, and for every layer and head a measure of `unstuck.curve.MEASURES` (of a task in which
        copying comes first, that beside attention), numbers or tensors of one."""
        try:
            taken = {k: number(v) for k, v in row.items() if not isinstance(v, str)}
        except (TypeError, ValueError, RuntimeError) as e:
            raise BadInput("the row", f"one with {e}", "made of numbers") from e
        if not math.isfinite(taken.get("step", math.nan)):
            raise BadInput("the row", ", ".join(row), "one with a step, a number")
        self.rows.append(taken)
        return self

    def forecast(self) -> Forecast:
        """From the rows so far."""
        return self.predict(Curve.of(pd.DataFrame(self.rows)))

    def predict(self, curve: Curve | pd.DataFrame) -> Forecast:
        """From a curve up to its last row, with what is over by now: the loss, where there is one, tells whether the
        plateau is, and whether the run has diverged; heads that look where induction heads do have formed."""
        curve = Curve.of(curve)
        said = self.from_attention(curve)
        over = replace(said, plateau=None, low=None, high=None, elapsed=None, over=True)
        name = curve.loss_name
        rows = curve.sorted()
        if name is not None and (why := astray(rows, name)):
            return replace(over, step=int(rows.steps[-1]), over=False, sign=False, diverged=why)
        if said.signal == "induction":
            scores = recorded(curve, "induction").sorted()
            formed = scores.best("induction") >= FORMED
            if formed.any():
                return replace(over, left=float(scores.steps[formed][0]), formed=True)
        if name is None:
            return said
        losses = rows.loss
        there = np.isfinite(losses)
        finite = losses[there].tolist()
        gone = plateau_left(finite)
        if gone is None:
            nothing = len(finite) > LATELY and 0 <= median(finite[-LATELY:]) <= MASTERED**2 * median(finite[:LATELY])
            arrived = nothing and not said.sign and plateau_since(finite) is None
            return over if arrived else said
        left = float(rows.steps[there][gone[1]])
        level, now = median(finite[gone[0] : gone[1]]), median(finite[-LATELY:])
        return replace(over if now <= MASTERED * level else said, left=left)

    def told(self, curve: Curve | pd.DataFrame) -> Forecast:
        """The old name of `predict`."""
        warnings.warn("Forecaster.told is now Forecaster.predict", FutureWarning, stacklevel=2)
        return self.predict(curve)

    def of_curve(self, curve: Curve | pd.DataFrame) -> Forecast:
        """The old name of `from_attention`."""
        warnings.warn("Forecaster.of_curve is now Forecaster.from_attention", FutureWarning, stacklevel=2)
        return self.from_attention(curve)

    def from_attention(self, curve: Curve | pd.DataFrame) -> Forecast:
        """From the attention of a curve up to its last row."""
        curve = Curve.of(curve)
        if not len(curve):
            raise BadInput("the curve", "empty", "one with step and a row")
        now = float(curve.steps.max())
        name, curve = self._chosen(curve)
        steps = curve.steps
        # Zero where nothing is known of how a measure is to be read: no sign, whatever it does.
        values = SIGNALS[name][1](curve) if name in SIGNALS else np.zeros(len(steps))
        step, value = steps[-1], values[-1]
        stopped = now - step > max(STOPPED[0] * np.diff(steps).max(initial=1.0), STOPPED[1] * now)
        seen, now = (int(step), now) if stopped else (None, step)  # between two looks the last one is the clock
        start = chance(curve, *SIGNALS[name][0]) if name in ("gain", "induction") else None
        sign = self._sign(name, steps, values, start) and not (name == "gain" and _drifts(value, curve))
        moved = float(value) if not sign and value >= QUIET[name][1] else None
        first = steps[steps > 0].min(initial=math.inf)
        tells_from = LOOK_BACK * float(first) if step < LOOK_BACK * first < math.inf else None
        clock, refuted = math.log(max(now, 1.0)), None
        opinions = []
        if sign:
            ahead, spread = self.calibrations[name].read(value, start)
            mine = (math.log(step) + ahead, spread)
            sign = not _overdue(*mine, clock)  # as what was seen long ago may be
            opinions += [mine] if sign else []
        if self.prior is not None:
            law = (math.log(self.prior[0]), self.prior[1])
            refuted = self.prior[0] if _overdue(*law, clock) else None
            opinions += [law] if refuted is None else []
        known = Forecast(
            int(now), None, None, None, None, sign, name, self.level, seen=seen, refuted=refuted, moved=moved
        )
        if not opinions:
            return replace(known, tells_from=tells_from if name in SIGNALS else None)
        plateau, low, high = weighed(opinions, clock, self.level)
        return replace(known, plateau=plateau, low=low, high=high, elapsed=now / plateau)

    def _chosen(self, curve: Curve) -> tuple[str, Curve]:
        """The signal to go by, and its rows in the order of steps; where there is none, but a measure that no signal
        was calibrated on, that one."""
        for name in SIGNALS if self.signal == "auto" else (self.signal,):
            if name in self.calibrations and len(rows := recorded(curve, name)):
                _check_parts(rows, "of uniform attention: 1 where uniform" if name in BLIND else "of all attention")
                return name, rows.sorted()
        if self.signal == "auto" and len(rows := curve.complete(UNCALIBRATED)):
            _check_parts(rows, "of uniform attention: 1 where uniform")
            return UNCALIBRATED, rows.sorted()
        needs = " and ".join(map(pattern, SIGNALS.get(self.signal, [()])[0]))
        auto = [pattern(measure) for measure in ("attention", "induction", "readout_entropy")]
        wanted = f"{', '.join(auto[:-1])} or {auto[-1]}" if self.signal == "auto" else f"{needs} of {self.signal}"
        wanted += ", for layers and heads, with numbers in them"
        if self.signal == "auto" and curve.loss_name is None:
            wanted += "; or one with loss in its name, of which `unstuck forecast` says whether it is on a plateau"
        raise BadInput("the curve's columns", ", ".join(curve.columns), f"with {wanted}")

    def _sign(self, name: str, steps: np.ndarray, values: np.ndarray, start: float | None) -> bool:
        step, value = steps[-1], values[-1]
        quiet, loud = QUIET[name]
        if step <= 0 or value < quiet:
            return False
        before = np.flatnonzero(steps <= step / LOOK_BACK)
        if len(before) == 0 or steps[before[-1]] <= 0:
            return False
        i = before[-1]
        read = self.calibrations[name].read
        grown = math.log(step / steps[i])
        receded = grown + read(value, start)[0] - read(max(values[i], 0.0), start)[0]
        return bool(receded < RECEDES[int(value >= loud)] * grown)


def _check_parts(curve: Curve, what: str) -> None:
    """Measures of heads must be parts of something, from 0 to 1."""
    parts = curve.to_frame().drop(columns=STEP)
    for extreme, wrong in ((parts.max(), parts.max() > 1 + ROUNDED), (parts.min(), parts.min() < -ROUNDED)):
        if wrong.any():
            column = str(wrong.idxmax())
            raise BadInput(column, f"{extreme[column]:.4g}", f"from 0 to 1, as a part of that {what}")


def _drifts(value: float, curve: Curve) -> bool:
    """Is a gain no more than what heads do that drift up and down?"""
    return value < DRIFT and value < RISES * fall(curve)


def _overdue(middle: float, spread: float, now: float) -> bool:
    """Has what an opinion says not come true, by all that it allowed for?"""
    return bool(ndtr((now - middle) / spread) > REFUTED)


def _pair(prior: Any) -> tuple[float, float]:
    """A law's word: a plateau, and the standard deviation of its logarithm."""
    try:
        plateau, spread = (float(x) for x in prior)
    except (TypeError, ValueError) as e:
        raise BadInput("prior", prior, "a pair: a plateau, and the standard deviation of its logarithm") from e
    if not (0 < plateau < math.inf and 0 < spread < math.inf):
        raise BadInput("prior", prior, "a plateau above 0 and a standard deviation above 0, both finite")
    return plateau, spread


def weighed(opinions: list[tuple[float, float]], now: float, level: float) -> tuple[float, float, float]:
    """Median and interval of a step from normal opinions on its logarithm, cut off below `now`."""
    spreads = np.array([spread for _, spread in opinions])
    weights = spreads**-2 / np.sum(spreads**-2)
    mean = float(np.dot(weights, [m for m, _ in opinions]))
    parts = weights * spreads
    spread = math.sqrt((1 - TOGETHER) * np.sum(parts**2) + TOGETHER * np.sum(parts) ** 2)
    past = float(ndtr((now - mean) / spread))
    if past > 1 - 1e-9:  # overdue by all opinions
        mean, past = now, 0.5
    quantiles = [past + (1 - past) * q for q in (0.5, 0.5 - level / 2, 0.5 + level / 2)]
    middle, low, high = (math.exp(float(x)) for x in mean + spread * ndtri(quantiles))
    return middle, low, high
