"""When induction heads form in a language model: published laws, and the law of our own runs.

    Aoyama, Wilcox, Schneider 2025    tokens = 10^5.7 sqrt(batch context), whatever the model's size
    Musat et al. 2025                 time ~ context^2
    Zucchet et al. 2025               plateau ~ context^0.8 to context^1; repetition B^-1/2 to B^-1
    ours                              steps = C batch^a context^b burst^g

The second and third give ratios only: their number of steps is that ratio times the steps of a measured run. Ours is
read from `induction_law.json`, which `tools/fit_induction.py` writes; without that file it has not been measured.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unstuck.scalars import real, whole

FILE = Path(__file__).with_name("induction_law.json")
MAX_BATCH, MAX_CONTEXT = 10**6, 10**7
REFERENCE_CONTEXT = 64  # of the preset `text`; ratios start from the measured run nearest to it


@dataclass(frozen=True)
class Setting:
    """A training to predict: sequences a step, tokens a sequence, share of sequences that repeat their first half."""

    batch: int
    context: int
    burst: float = 0.0

    def __post_init__(self) -> None:
        whole("batch", self.batch, 1, MAX_BATCH, f"a whole number from 1 to {MAX_BATCH:,}")
        whole("context", self.context, 2, MAX_CONTEXT, f"a whole number from 2 to {MAX_CONTEXT:,}")
        real("burst", self.burst, 0.0, 1.0, "a number from 0 to 1")

    @property
    def tokens_a_step(self) -> int:
        return self.batch * self.context


@dataclass(frozen=True)
class Cell:
    """Our runs of one size. `steps` is their median; None if no more than half formed induction heads."""

    batch: int
    context: int
    burst: float
    runs: int
    formed: int
    steps: float | None
    last_step: float  # the largest number of steps of a run

    def __str__(self) -> str:
        return f"batch {self.batch}, context {self.context}, burst {self.burst:g}"


@dataclass(frozen=True)
class Prediction:
    """What a law says of a setting. `steps` is None where it gives no number."""

    law: str
    source: str
    formula: str
    steps: float | None = None
    interval: tuple[float, float] | None = None  # in steps
    interval_of: str | None = None  # what the interval covers
    ratio: float | None = None  # to the reference
    reference: str | None = None
    anchored: bool = False  # is `steps` the ratio times a measured number?
    applies: bool = True  # was the law stated for such a setting?
    note: str = ""

    def as_json(self, setting: Setting) -> dict[str, Any]:
        found = asdict(self)
        tokens = None if self.steps is None else self.steps * setting.tokens_a_step
        return {"law": self.law, "source": self.source, "tokens": tokens, **found}


@dataclass(frozen=True)
class FittedLaw:
    """A power law of our runs with what an interval needs, in logarithms from `centre`. The same numbers as
    `PowerLaw.predict_interval`, without pandas."""

    constant: float
    exponents: dict[str, float]
    centre: list[float]  # mean logarithms of the terms
    covariance: list[list[float]]  # of the constant at `centre` and the exponents
    variance: float  # of the log steps of a new run about the law
    quantile: float  # of Student's t, for the interval
    level: float
    ranges: dict[str, tuple[float, float]]  # of the sizes
    runs: int
    censored: int

    def predict(self, setting: Any) -> tuple[float, float, float]:
        """Steps, and the interval of a new run, for sizes that `setting` has by the names of the terms."""
        logs = np.log([getattr(setting, name) for name in self.exponents])
        middle = math.log(self.constant) + float(logs @ list(self.exponents.values()))
        row: NDArray[np.float64] = np.array([1.0, *(logs - self.centre)])
        half = self.quantile * math.sqrt(row @ np.array(self.covariance) @ row + self.variance)
        return math.exp(middle), math.exp(middle - half), math.exp(middle + half)

    def outside(self, setting: Any) -> list[str]:
        """What lies outside the measured range, in words."""
        return [
            f"{name} {getattr(setting, name):g} is outside the measured {low:g} to {high:g}"
            for name, (low, high) in self.ranges.items()
            if not low <= getattr(setting, name) <= high
        ]

    def __str__(self) -> str:
        return " ".join([f"{self.constant:.3g}", *(f"{name}^{x:.2f}" for name, x in self.exponents.items())])


@dataclass(frozen=True)
class OurRuns:
    """What we measured: a law of runs with repetition (burst above 0) and one of natural text, where there are enough
    runs, and all sizes."""

    event: str  # what counts as formed
    setting: str  # of all runs
    date: str
    laws: dict[str, FittedLaw]  # by `kind`
    cells: list[Cell]

    @classmethod
    def read(cls, file: Path | None = None) -> "OurRuns | None":
        """From the file; None if there is none."""
        file = file or FILE
        if not file.is_file():
            return None
        stored = json.loads(file.read_text(encoding="utf-8"))
        laws = {kind: FittedLaw(**law) for kind, law in stored.pop("laws").items()}
        return cls(laws=laws, cells=[Cell(**cell) for cell in stored.pop("cells")], **stored)

    def reference(self, setting: Setting) -> Cell | None:
        """The measured size to start a ratio from: natural text if that is asked, else the nearest batch, then the
        nearest burst, then the context nearest to that of the preset."""
        known = [c for c in self.cells if c.steps is not None and kind(c.burst) == kind(setting.burst)]

        def distance(c: Cell) -> tuple[float, ...]:
            burst = abs(math.log(c.burst / setting.burst)) if setting.burst else 0.0
            context = abs(math.log(c.context / REFERENCE_CONTEXT))
            return round(abs(math.log(c.batch / setting.batch)), 9), round(burst, 9), context

        return min(known, key=distance, default=None)


def kind(burst: float) -> str:
    return "repeated" if burst > 0 else "natural"


def predictions(setting: Setting, ours: OurRuns | None) -> list[Prediction]:
    """What every law says of a setting: the published ones, then ours."""
    return [
        _by_tokens(setting),
        *(law.predict(setting, None if ours is None else ours.reference(setting)) for law in RATIOS),
        _by_our_runs(setting, ours),
    ]


# -- published laws

LOG10_TOKENS = 5.7  # of tokens at formation over sqrt(batch context); read in a summary of Aoyama et al. 2025


def published_steps(batch: int, context: int) -> float:
    """Steps until induction heads form on natural text, by Aoyama et al. 2025."""
    return 10**LOG10_TOKENS / math.sqrt(batch * context)


def _by_tokens(setting: Setting) -> Prediction:
    """Aoyama et al.: a number of tokens, on natural text, without any run of ours."""
    note = "" if setting.burst == 0 else "stated for natural text; repetition is not part of it"
    return Prediction(
        law="Aoyama, Wilcox, Schneider 2025",
        source="arXiv 2511.16893",
        formula="tokens = 10^5.7 sqrt(batch context)",
        steps=published_steps(setting.batch, setting.context),
        applies=setting.burst == 0,
        note=note,
    )


@dataclass(frozen=True)
class RatioLaw:
    """A law that says how steps grow, but not from where. Of several exponents the first gives the number of steps,
    and all of them the interval."""

    law: str
    source: str
    formula: str
    about: str  # the setting in which it was found
    context: Sequence[float]
    burst: Sequence[float] = ()  # none: the law does not say

    def predict(self, setting: Setting, start: Cell | None) -> Prediction:
        known = Prediction(self.law, self.source, self.formula)
        if start is None or start.steps is None:
            ratios = [(setting.context / REFERENCE_CONTEXT) ** x for x in self.context]
            several = f", {min(ratios):.3g} to {max(ratios):.3g} by the published exponents" if len(ratios) > 1 else ""
            note = f"found for {self.about}; a ratio only{several}, since no run on such text is measured to start from"
            return replace(known, ratio=ratios[0], reference=f"context {REFERENCE_CONTEXT}", note=note)
        repetition = setting.burst / start.burst if start.burst and self.burst else 1.0
        ratios = [
            (setting.context / start.context) ** x * repetition**y for x, y in product(self.context, self.burst or (0,))
        ]
        steps = [ratio * start.steps for ratio in ratios]
        several = max(steps) > min(steps)
        return replace(
            known,
            steps=steps[0],
            interval=(min(steps), max(steps)) if several else None,
            interval_of="the published exponents" if several else None,
            ratio=ratios[0],
            reference=f"our runs with {start}: {start.steps:,.0f} steps",
            anchored=True,
            note="; ".join([f"found for {self.about}", *self._unsaid(setting, start)]),
        )

    def _unsaid(self, setting: Setting, start: Cell) -> list[str]:
        """What differs from the reference that the law says nothing about."""
        batch = f"it does not say what batch {setting.batch} instead of {start.batch} changes"
        burst = f"it does not say what burst {setting.burst:g} instead of {start.burst:g} changes"
        return [batch] * (setting.batch != start.batch) + [burst] * (setting.burst != start.burst and not self.burst)


RATIOS = (
    RatioLaw(
        law="Musat et al. 2025",
        source="arXiv 2511.01033",
        formula="time ~ context^2",
        about="a two-layer disentangled Transformer",
        context=(2.0,),
    ),
    RatioLaw(
        law="Zucchet et al. 2025",
        source="The emergence of sparse attention, NeurIPS 2025",
        formula="plateau ~ (context/burst)^0.8",
        about="single-location regression, with T for context and B for burst; in theory T B^-1 or T B^-1/2",
        context=(0.8, 1.0),
        burst=(-0.8, -1.0, -0.5),
    ),
)


# -- what a text lets expect


@dataclass(frozen=True)
class Expected:
    """When heads form on a text, by which law."""

    steps: float
    by: Literal["ours", "published"]
    interval: tuple[float, float] | None = None  # of a new run
    note: str = ""

    @property
    def depends_on_text(self) -> bool:
        return self.by == "ours"


def expected_formation(batch: int, context: int, equivalent_burst: float | None, ours: OurRuns | None) -> Expected:
    """By the law of our runs with repetition, at the burst that offers an induction head as much as the text does.
    Assumes that such text takes as long, which the figure text-corpora tests by ranks alone. Without that law, or
    for a text that offers nothing, the published law, which is the same for every text."""
    law = None if ours is None else ours.laws.get("repeated")
    if law is None or "burst" not in law.exponents:
        note = "no law of burst is fitted yet, so this does not depend on the text"
    elif not equivalent_burst:
        note = "the text offers an induction head nothing, so the law of burst gives no step"
    else:
        setting = Setting(batch, context, equivalent_burst)
        steps, low, high = law.predict(setting)
        return Expected(steps, "ours", (low, high), "; ".join(law.outside(setting)))
    return Expected(published_steps(batch, context), "published", note=note)


# -- ours


def _by_our_runs(setting: Setting, ours: OurRuns | None) -> Prediction:
    usual = "steps = C batch^a context^b burst^g" if setting.burst else "steps = C batch^a context^b"
    known = Prediction("ours", "results/text-law.csv, results/text-repetition.csv", usual)
    if ours is None:
        return replace(known, applies=False, note="not measured yet")
    law = ours.laws.get(kind(setting.burst))
    if law is None:
        return replace(known, applies=False, note=_unfitted(setting, ours))
    steps, low, high = law.predict(setting)
    outside = law.outside(setting)
    runs = f"{law.runs} runs formed, {law.censored} did not; {ours.setting}"
    return replace(
        known,
        formula=f"steps = {law}",
        steps=steps,
        interval=(low, high),
        interval_of=f"{law.level:.0%} of new runs",
        applies=not outside,
        note="; ".join([*outside, runs]),
    )


def _unfitted(setting: Setting, ours: OurRuns) -> str:
    """What was measured where there is no law."""
    of_kind = [c for c in ours.cells if kind(c.burst) == kind(setting.burst)]
    text = "natural text (burst 0)" if setting.burst == 0 else "text with repetition"
    if not of_kind:
        return f"not measured on {text}"
    formed, runs = sum(c.formed for c in of_kind), sum(c.runs for c in of_kind)
    last = max(c.last_step for c in of_kind)
    return f"no law could be fitted: {formed} of {runs} runs formed by step {last:,.0f} on {text}"
