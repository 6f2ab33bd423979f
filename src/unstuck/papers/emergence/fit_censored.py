"""fit-censored: laws from sweeps in which some runs did not emerge.

Not in the paper. Simulated sweeps with a known law, log-normal scatter over sizes and seeds, and a budget that a third
of the runs exceed: exponents and 90% intervals by likelihood, with those runs as censored, and by least squares
without them.
"""

import math
import warnings

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from unstuck.laws import PowerLaw, fit_power_law
from unstuck.papers.figure import Claim, Job, Profile, Progress
from unstuck.papers.style import BLUE, ORANGE, legend_outside, panels

TRUE = {"d": 1.2, "T": 0.8}
RANGES, STEPS = {"d": (8, 128), "T": (16, 256)}, 12  # sizes, and into how many values each range is divided
SWEEPS = [(24, 1, 0.0, 0.25), (120, 1, 0.0, 0.25), (24, 2, 0.12, 0.15), (24, 3, 0.15, 0.05), (120, 3, 0.12, 0.15)]
CENSORED, LEVEL = 0.3, 0.9
NEW_RUN = "a new run"  # its plateau is predicted: `exponent`, `low` and `high` are over what it comes to


def repetitions(profile: Profile) -> int:
    return 10 if profile == "quick" else 200


def plan(profile: Profile) -> list[Job]:
    return [Job("fit", len(SWEEPS) * repetitions(profile), 0.5 * len(SWEEPS) * repetitions(profile))]


def simulated(rng: np.random.Generator, runs: int, seeds: int, size: float, seed: float) -> pd.DataFrame:
    """A sweep: sizes drawn from a grid, no two the same, several seeds each, all stopped at the step that 70% of them
    do not need."""
    sizes = runs // seeds
    grid = np.stack(np.meshgrid(*(np.geomspace(*ends, STEPS).round() for ends in RANGES.values())), -1).reshape(-1, 2)
    d, T = rng.choice(grid, sizes, replace=False).T
    noise = size * rng.standard_normal(sizes)[:, None] + seed * rng.standard_normal((sizes, seeds))
    logs = (1 + TRUE["d"] * np.log(d) + TRUE["T"] * np.log(T))[:, None] + noise
    plateau, budget = np.exp(logs).ravel(), np.exp(np.quantile(logs, 1 - CENSORED))
    late = plateau > budget
    table = {"d": np.repeat(d, seeds), "T": np.repeat(T, seeds), "plateau_steps": np.where(late, np.nan, plateau)}
    return pd.DataFrame(
        {**table, "steps": np.minimum(plateau, budget), "status": np.where(late, "censored", "emerged")}
    )


def _new_run(law: PowerLaw, table: pd.DataFrame, size: float, seed: float, key: list[int]) -> dict[str, float]:
    """Of a run of a size that emerged, with an error of its own: what it comes to over the truth, and its interval."""
    rng = np.random.default_rng(key)
    emerged = table[table["status"] == "emerged"]
    one = emerged.iloc[int(rng.integers(len(emerged)))]
    said = law.predict_interval({term: float(one[term]) for term in TRUE}, LEVEL).iloc[0]
    middle = 1 + sum(x * np.log(one[term]) for term, x in TRUE.items())
    came = math.exp(middle + size * rng.standard_normal() + seed * rng.standard_normal())
    return {"exponent": said["plateau"] / came, "low": said["low"] / came, "high": said["high"] / came}


def data(profile: Profile, progress: Progress) -> pd.DataFrame:
    rows, of = [], len(SWEEPS) * repetitions(profile)
    for sweep, (runs, seeds, size, seed) in enumerate(SWEEPS):
        for i in range(repetitions(profile)):
            table = simulated(np.random.default_rng([sweep, i]), runs, seeds, size, seed)
            for used, part in (("all runs", table), ("emerged runs only", table[table["status"] == "emerged"])):
                with warnings.catch_warnings():  # that few sizes are left is what some of these sweeps are about
                    warnings.simplefilter("ignore", UserWarning)
                    law = fit_power_law(part, "d + T", level=LEVEL)
                for term in TRUE:
                    low, high = law.intervals[term]
                    row = {"runs": runs, "seeds": seeds, "size_spread": size, "seed_spread": seed, "fit": used}
                    rows.append({**row, "term": term, "exponent": law.exponents[term], "low": low, "high": high})
                if used == "all runs":
                    rows.append({**row, "term": NEW_RUN, **_new_run(law, table, size, seed, [sweep, i, 1])})
            progress(sweep * repetitions(profile) + i + 1, of)
    return pd.DataFrame(rows)


BIAS, AIM = 0.02, (0.85, 0.95)  # of exponents, and of how often their 90% intervals hold the truth


def _summary(table: pd.DataFrame) -> pd.DataFrame:
    true = table["term"].map({**TRUE, NEW_RUN: 1.0})
    inside = (table["low"] <= true) & (true <= table["high"])
    bias = (table["exponent"] / true - 1).groupby([table[c] for c in ("runs", "seeds", "fit", "term")]).mean()
    cover = inside.groupby([table[c] for c in ("runs", "seeds", "fit", "term")]).mean()
    return pd.DataFrame({"bias": bias, "cover": cover}).reset_index()


AT = {"d": -0.12, "T": 0.12, NEW_RUN: 0.0}  # beside its place


def _named(term: str) -> str:
    return "plateau of a new run" if term == NEW_RUN else f"exponent of {term}"


def draw(table: pd.DataFrame) -> Figure:
    found = _summary(table)
    names = {(r.runs, r.seeds): f"{r.runs} runs,\n{r.seeds} a size" for r in found.itertuples()}
    picture, axes = panels(2, width=4.6)
    for ax, column, label in (
        (axes[0], "bias", "bias of the exponent"),
        (axes[1], "cover", "coverage of 90% intervals"),
    ):
        for used, colour in (("all runs", BLUE), ("emerged runs only", ORANGE)):
            part = found[found["fit"] == used]
            for term, marker in (("d", "o"), ("T", "s"), (NEW_RUN, "D")):
                if term == NEW_RUN and (column == "bias" or used != "all runs"):
                    continue
                values = part[part["term"] == term]
                x = [list(names).index((r.runs, r.seeds)) + AT[term] for r in values.itertuples()]
                ax.plot(x, values[column], marker, color=colour, label=f"{used}, {_named(term)}")
        ax.set_xticks(range(len(names)), list(names.values()))
        ax.set_ylabel(label)
    axes[0].axhline(0, color="#999999", lw=0.8)
    axes[1].axhspan(*AIM, color="#EEEEEE")
    axes[0].yaxis.set_major_formatter(PercentFormatter(1, decimals=1))
    axes[1].yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    legend_outside(picture, axes[1], loc="outside lower center", ncols=3)
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    found, claims = _summary(table), []
    for (runs, seeds, used), part in found.groupby(["runs", "seeds", "fit"], sort=False):
        parts = part[part["term"] != NEW_RUN]
        text = ", ".join(f"{r.term}: bias {r.bias:+.1%}, coverage {r.cover:.0%}" for r in parts.itertuples())
        for r in part[part["term"] == NEW_RUN].itertuples():
            text += f"; {r.term} of a size that emerged: coverage {r.cover:.0%}"
        note = ""
        if used == "all runs":
            met = parts["cover"].between(*AIM).all() and parts["bias"].abs().max() < BIAS
            aim = f"bias below {BIAS:.0%}, coverage from {AIM[0]:.0%} to {AIM[1]:.0%}"
            note = f"the aim for exponents, {aim}, is {'met' if met else 'not met'}"
        claims.append(Claim(f"{runs} runs, {seeds} a size, {used}", text, note=note))
    return claims
