"""What the figures of paper 2 claim: rungs in order, heads that first compete and then part, what their maps show.

A run that has learnt nothing is nearest to some rung, its heads are alike, and its minima may fall in order by chance.
So nothing is claimed of a run that has not got to the last rung, nor of heads that have not moved.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

from unstuck.laws.stages import Rung, Stages
from unstuck.observe.ladder import by_layer, head_mass
from unstuck.papers.figure import Claim
from unstuck.papers.incremental._ladder import stages_of, whole_maps

WORDS = {
    "passed": "passed: the run came near while another rung was nearer",
    "not reached": "not reached: the run ended below",
}
MOVED = 1.2  # times its start: from there on attention to a group has moved


def ladder_claims(table: pd.DataFrame, *, apart: bool = True) -> list[Claim]:
    """Order of stages, and specialisation early and late, run by run. Groups that are not `apart` cannot be told from
    each other by where a head looks, so that the index cannot come near 1."""
    found = [Climb.of(curve) for _, curve in table.groupby("run_id", sort=False)]
    where = found[-1].where
    early, late = [f.early for f in found], [f.late for f in found]
    done = all(f.stages.rungs[-1].reached is not None for f in found)
    ends = min(late) > 0.9 if done and apart else None
    why = "; ".join(f.still for f in found) if ends is False else "" if done else "not on the last rung yet"
    rungs = "; ".join(f.rungs for f in found)
    compete = together(f.compete for f in found)
    return [
        Claim(
            "nearest to rungs 1, 2, ... at step",
            "; ".join(f.minima for f in found),
            "in order of importance",
            together(f.in_order for f in found),
            "" if done else "not on the last rung yet",
        ),
        Claim(
            "on rungs 1, 2, ... from step",
            rungs,
            None,
            None,
            "; ".join(w for w in WORDS.values() if w.split(":")[0] in rungs),
        ),
        Claim(
            f"specialisation{where} at 7.5% of the run",
            span(early),
            "near 0: heads compete",
            compete,
            "heads had not moved by then, so they were alike anyway" if compete is None else "",
        ),
        Claim(
            f"attention{where} on the most important group at 7.5% of the run",
            span([x for f in found for x in f.first]),
            "all heads first attend it",
            together(f.attend for f in found),
            "a third at the start",
        ),
        Claim(
            f"specialisation{where} at the end",
            span(late),
            "one head a group: near 1",
            ends,
            why if apart else "groups overlap: 1 is out of reach",
        ),
        Claim("competition turns into cooperation at step", "; ".join(f.turn for f in found), None, None),
    ]


def together(verdicts: Iterable[bool | None]) -> bool | None:
    """One verdict for several runs: false if one is, true if all are, else unknown."""
    known = list(verdicts)
    return False if False in known else None if None in known else True


@dataclass(frozen=True)
class Climb:
    """What is claimed of one run."""

    stages: Stages
    where: str  # which layer, if there are several: the one that is most specialised at the end
    early: float  # specialisation at 7.5% of the run
    late: float  # at its end
    first: list[float]  # each head's share of attention on the most important group, at 7.5% of the run
    compete: bool | None
    attend: bool | None
    still: str  # why it is not 1 at the end

    @classmethod
    def of(cls, run: pd.DataFrame) -> "Climb":
        layers = by_layer(run)
        layer = max(layers, key=lambda at: layers[at][-1])
        curve = run.assign(specialisation=layers[layer])
        soon = curve.iloc[int((curve["step"] - 0.075 * curve["step"].max()).abs().to_numpy().argmin())]
        start, shares = (_shares(row, layer) for row in (curve.iloc[0], soon))
        main = shares.shape[1] - 1 if (run.get("importance", pd.Series(["near"])) == "far").all() else 0
        moved = shares >= MOVED * start  # (heads, groups)
        attend = True if moved[:, main].all() and (shares.argmax(1) == main).all() else None
        attend = False if np.delete(moved, main, axis=1).any() and not attend else attend
        early = _at(curve, 0.075)
        return cls(
            stages=stages_of(curve),
            where=f" of layer {layer + 1}" if len(layers) > 1 else "",
            early=early,
            late=float(curve["specialisation"].iloc[-1]),
            first=[float(x) for x in shares[:, main]],
            compete=False if early >= 0.2 else True if moved.any() else None,  # untrained heads are alike as well
            attend=attend,
            still=_still(curve, layer),
        )

    @property
    def in_order(self) -> bool | None:
        """Is every rung approached, one after the other? Unknown of a run that has not got to the last."""
        rungs = self.stages.rungs
        if rungs[-1].reached is None:
            return None
        return all(r.approached for r in rungs) and all(a.nearest < b.nearest for a, b in itertools.pairwise(rungs))

    @property
    def minima(self) -> str:
        return ", ".join(f"{rung.nearest:.0f}" for rung in self.stages.rungs)

    @property
    def rungs(self) -> str:
        return ", ".join(when(rung, self.stages) for rung in self.stages.rungs)

    @property
    def turn(self) -> str:
        return "never" if self.stages.cooperation is None else f"{self.stages.cooperation:.0f}"


def when(rung: Rung, stages: Stages) -> str:
    """The step from which on a run was on a rung, or that it passed it, or did not get there."""
    if rung.reached is not None:
        return f"{rung.reached:.0f}"
    return "passed" if rung.number < stages.highest and rung.approached else "not reached"


def _shares(row: pd.Series, layer: int) -> Any:
    """Each head's attention on each group, of that on all groups."""
    mass = head_mass(row, layer)
    return mass / mass.sum(1, keepdims=True)


def _still(curve: pd.DataFrame, layer: int) -> str:
    """Why the index is not 1 at the end: who looks elsewhere, and whether it still rises."""
    last = curve.iloc[-1]
    P = _shares(last, layer)
    heads, groups = linear_sum_assignment(-P)
    own = P[heads, groups]
    worst = int(own.argmin())
    rise = float(last["specialisation"]) - _at(curve, 0.75)
    has = f"a head has only {own[worst]:.0%} on its group {groups[worst] + 1}"
    return f"{has}; the index changed by {rise:+.2f} in the last quarter"


def _at(curve: pd.DataFrame, fraction: float) -> float:
    return float(np.interp(fraction * curve["step"].max(), curve["step"], curve["specialisation"]))


def span(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.2f}" if high - low < 0.005 else f"{low:.2f} to {high:.2f}"


def passing_claims(table: pd.DataFrame) -> list[Claim]:
    """When the run came nearest to each restricted model, and whether each was, for three rows or more, the nearest."""
    names = [c for c in table if c.startswith("context_")]
    smooth = table[names].rolling(3, min_periods=1, center=True).median()
    steps = [float(table["step"].iloc[int(smooth[name].to_numpy().argmin())]) for name in names]
    rows = smooth.idxmin(axis=1).value_counts()
    contexts = [name.removeprefix("context_") for name in names]
    text = ", ".join(f"{context}: step {step:.0f}" for context, step in zip(contexts, steps, strict=True))
    never = [c for c, name in zip(contexts, names, strict=True) if rows.get(name, 0) < 3]
    in_order = all(a < b for a, b in itertools.pairwise(steps))
    agrees = None if in_order and never else in_order
    note = f"never the nearest: context {', '.join(never)}" if never else ""
    return [Claim("nearest to the model of context", text, "the shorter first", agrees, note)]


def mass_claims(table: pd.DataFrame) -> list[Claim]:
    """What the maps show, as numbers: where the heads look and how alike they are, at the second and the last step."""
    whole = whole_maps(table)
    layer = whole[whole["layer"] == whole["layer"].max()]
    claims = []
    steps = sorted(layer["step"].unique())
    for step in (steps[min(1, len(steps) - 1)], steps[-1]):
        now = layer[layer["step"] == step]
        maps = now.pivot_table("weight", "head", ["row", "column"]).to_numpy()
        unit = maps / np.linalg.norm(maps, axis=1, keepdims=True)
        alike = (unit @ unit.T)[np.triu_indices(len(unit), 1)]
        text = f"{alike.min():.2f} to {alike.max():.2f}" if len(alike) else "one head"
        claims.append(Claim(f"cosine between two heads' maps at step {step}", text, None, None))
        last = now[now["row"] == now["row"].max()]
        lags = last.assign(lag=last["row"].max() + 1 - last["column"]).pivot_table("weight", "head", "lag")
        looks = "; ".join(_most(row) for _, row in lags.iterrows())
        claims.append(Claim(f"lags that the heads look at most at step {step}, last position", looks, None, None))
    return claims


def _most(row: pd.Series) -> str:
    """The three lags with most of a head's attention."""
    top = row.sort_values(ascending=False).head(3)
    return ", ".join(f"{lag} ({weight:.0%})" for lag, weight in top.items())
