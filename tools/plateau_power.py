"""How often the plateau test is right, on simulated losses: writes results/plateau-power.csv; with --sensitivity how
that depends on the arguments of the test: writes results/plateau-sensitivity.csv.

Losses with independent normal noise: two power laws of healthy training, a plateau after a short first fall, the same
plateau after it was left, and straight lines that fall. `--trial` has other laws, levels, noises and seeds: the rule
was chosen on those. The table has none of them; it was made after the rule was fixed.
"""

import argparse
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unstuck.curve import Curve
from unstuck.forecast.loss import from_loss
from unstuck.forecast.notes import Outcome
from unstuck.forecast.plateau import PlateauTest

Values = NDArray[np.float64]
TABLE = Path(__file__).parents[1] / "results" / "plateau-power.csv"
SENSITIVITY = TABLE.with_name("plateau-sensitivity.csv")
GRIDS = ((1000, 1), (3000, 1), (10_000, 1), (1000, 10), (10_000, 10), (3000, 100), (10_000, 100))  # steps, a row every
OUTCOMES = (Outcome.PLATEAU, Outcome.FALLING, Outcome.RISING, Outcome.UNCLEAR, Outcome.LEFT, Outcome.DIVERGED)
FIRST_FALL = 0.03  # fraction of the steps in which a loss falls to its plateau
LEAVES = 0.8  # fraction of the steps after which it leaves it


class Kind(NamedTuple):
    """Losses of one kind: their mean over steps, and the noises that are added, absolute or relative to the loss."""

    name: str
    mean: Callable[[Values], Values]
    noises: tuple[float, ...]
    relative: bool = False


def power_law(floor: float, scale: float, exponent: float, noises: tuple[float, ...]) -> Kind:
    name = f"{floor} + {scale} s^-{exponent}"
    return Kind(name, lambda s: floor + scale * s**-exponent, noises)


def plateau(level: float, noises: tuple[float, ...]) -> Kind:
    def mean(s: Values) -> Values:
        return np.asarray(level * (1 + np.maximum(0, 1 - s / (FIRST_FALL * s[-1]))))

    return Kind(f"plateau at {level}", mean, noises)


def left(level: float, to: float, noises: tuple[float, ...]) -> Kind:
    def mean(s: Values) -> Values:
        part = np.clip((s / s[-1] - LEAVES) / (1 - LEAVES), 0, 1)
        return np.asarray(level * (1 - (1 - to) * part) * (1 + np.maximum(0, 1 - s / (FIRST_FALL * s[-1]))))

    return Kind(f"plateau at {level}, left for {level * to:g}", mean, noises)


def line(fall: float, noise: float) -> Kind:
    return Kind(f"line that falls by {fall:.0%}", lambda s: 2 * (1 - fall * s / s[-1]), (noise,), relative=True)


NOISES = (0.02, 0.05, 0.1)
KINDS = (
    *(power_law(1.8, 6, 0.3, NOISES), power_law(3.2, 4, 0.25, NOISES), plateau(2.0, NOISES), left(2.0, 0.5, NOISES)),
    *(line(0.3, 0.05), line(0.5, 0.02)),
)
TRIAL_NOISES = (0.03, 0.08)
TRIAL_KINDS = (
    *(power_law(2.5, 5, 0.35, TRIAL_NOISES), power_law(2.2, 3, 0.2, TRIAL_NOISES), plateau(1.5, TRIAL_NOISES)),
    *(left(1.5, 0.6, TRIAL_NOISES), line(0.2, 0.03), line(0.6, 0.06)),
)


def draws(kind: Kind, noise: float, steps: int, every: int, seeds: int, seed: int) -> Iterator[Curve]:
    """Curves that differ in their noise alone."""
    rng = np.random.default_rng([seed, zlib.crc32(kind.name.encode()), round(1000 * noise), steps, every])
    at = np.arange(every, steps + 1, every, dtype=float)
    mean = kind.mean(at)
    for _ in range(seeds):
        loss = mean + noise * (mean if kind.relative else 1) * rng.standard_normal(len(at))
        yield Curve(pd.DataFrame({"step": at, "loss": loss}))


def outcomes(curves: Iterator[Curve], test: PlateauTest) -> Counter[Outcome]:
    return Counter(from_loss(curve, test).outcome for curve in curves)


def table(
    kinds: tuple[Kind, ...], seeds: int, seed: int, test: PlateauTest, grids: tuple[tuple[int, int], ...] = GRIDS
) -> pd.DataFrame:
    """A row for each kind, noise and grid: how many of the draws have each outcome."""
    rows = []
    for kind in kinds:
        for noise in kind.noises:
            for steps, every in grids:
                found = outcomes(draws(kind, noise, steps, every, seeds, seed), test)
                row = {"kind": kind.name, "noise": noise, "steps": steps, "every": every, "rows": steps // every}
                rows.append(row | {"curves": seeds} | {o.value: found[o] for o in OUTCOMES})
    return pd.DataFrame(rows)


#: One argument of the test at a time, at half and twice its value; the confidence at twice and a fifth of its error.
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"bound": 0.01},
    {"bound": 0.04},
    {"confidence": 0.9},
    {"confidence": 0.99},
    {"points": 12},
    {"points": 48},
)


def _of(found: pd.DataFrame, *kinds: Kind) -> pd.DataFrame:
    return found[found["kind"].isin([kind.name for kind in kinds])]


def _share(found: pd.DataFrame, outcome: Outcome) -> float:
    return float(found[outcome.value].sum() / found["curves"].sum())


def sensitivity(seeds: int) -> pd.DataFrame:
    """A row for each variant: fractions of the trial losses with some outcomes, over noises and two grids."""
    rows = []
    for variant in VARIANTS:
        found = table(TRIAL_KINDS[:4], seeds, 2, PlateauTest(**variant), ((1000, 10), (10_000, 10)))
        laws, stands, ended = (_of(found, *kinds) for kinds in (TRIAL_KINDS[:2], TRIAL_KINDS[2:3], TRIAL_KINDS[3:4]))
        rows.append(
            {
                **{"argument": next(iter(variant), "default"), "value": next(iter(variant.values()), "")},
                "power laws called a plateau": _share(laws, Outcome.PLATEAU),
                "power laws unclear": _share(laws, Outcome.UNCLEAR),
                "plateaus found": _share(stands, Outcome.PLATEAU),
                "ends found": _share(ended, Outcome.LEFT),
            }
        )
    return pd.DataFrame(rows).round(3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trial", action="store_true", help="the losses that the rule was chosen on; writes nothing")
    parser.add_argument("--seeds", type=int, default=200, help="curves of each kind, noise and grid")
    parser.add_argument("--sensitivity", action="store_true", help="vary the arguments of the test, on those losses")
    for name, kind in (("bound", float), ("confidence", float), ("points", int)):
        parser.add_argument(f"--{name}", type=kind, default=getattr(PlateauTest(), name))
    asked = parser.parse_args()
    if asked.sensitivity:
        sensitivity(asked.seeds).to_csv(SENSITIVITY, index=False)
        return
    test = PlateauTest(asked.bound, asked.confidence, asked.points)
    found = table(TRIAL_KINDS if asked.trial else KINDS, asked.seeds, int(asked.trial), test)
    print(found.to_string(index=False))
    if not asked.trial:
        found.to_csv(TABLE, index=False)


if __name__ == "__main__":
    main()
