"""Figure B: each head's attention on each group, and what it says about it.

Small start (queries 1e-9, values 0), Frobenius-orthogonal features: the last query's attention on every group, and the
inner product <V_head, A_k> of a head's value matrix with every feature. The published "position 1" is the oldest group.
Faint, and never judged: each group's own head with two other teachers.
"""

import itertools

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.optimize import linear_sum_assignment

from unstuck.curve import Curve
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.finished import Finished
from unstuck.papers.lab import TieredRun
from unstuck.papers.style import legend_outside, panels, shades
from unstuck.probes.ladder import specialisation

from ._curves import OTHER, curve_table
from ._judge import ABSOLUTE, Array, at, judged_together, judging, listed, numbers, value_claims
from ._published import FIGB, FIGB_ALIGNMENT, FIGB_MASS, updates
from ._runs import SMALL_START, minimal_runs

STYLES = ("-", "--", ":", "-.")
STEPS, LAST = 1950, 1900


def runs(profile: Profile) -> list[TieredRun]:
    changes = {**SMALL_START, "task.features": "frobenius"}
    return minimal_runs(profile, STEPS, changes=changes, quick={**changes, "model.query": 1e-3}, other_teachers=True)


def data(done: Finished) -> pd.DataFrame:
    return curve_table(done)


def _mass(run: pd.DataFrame) -> Array:
    """The last query's attention on each group, (rows, heads, groups), of the one layer."""
    return Curve.of(run).groups(readout=True)[:, 0]


def _alignment(run: pd.DataFrame) -> Array:
    """<V, A_k> / |A_k|², (rows, heads, groups)."""
    found = Curve.of(run).alignment
    assert found is not None
    return found


def draw(table: pd.DataFrame) -> Figure:
    picture, (left, right) = panels(2, width=4.6)
    first = table[table["run_id"] == table["run_id"].iloc[0]]
    mass, inner = _mass(first), _inner(first)
    colours = shades(list(range(mass.shape[2])))
    for group, colour in colours.items():
        for head, style in zip(range(mass.shape[1]), STYLES, strict=False):
            label = f"group {group + 1}" if head == 0 else None
            left.plot(first["step"], mass[:, head, group], style, color=colour, lw=1.4, label=label)
            right.plot(first["step"], inner[:, head, group], style, color=colour, lw=1.4)
    for other in _other_teachers(table):
        attention, owner = _mass(other), _owner(_mass(other)[-1])
        for (ax, values), group in itertools.product(((left, attention), (right, _inner(other))), colours):
            ax.plot(other["step"], values[:, owner[group], group], color=colours[group], **OTHER)
    for ax, ylabel, title in (
        (left, "last query's attention on the group", "heads: solid, dashed, dotted; faint: other teachers"),
        (right, r"$\langle V, A_k \rangle$", "alignment of values"),
    ):
        ax.set(xlabel="step", ylabel=ylabel, title=title, xscale="log")
    left.set_yscale("log")
    right.set_yscale("symlog", linthresh=10)
    legend_outside(picture, left)
    return picture


def _inner(run: pd.DataFrame) -> Array:
    """<V, A_k> from <V, A_k> / |A_k|²: the features have the norm of m^(groups - k) times an orthogonal matrix."""
    alignment = _alignment(run)
    m, d = (run[name].to_numpy()[:, None, None] for name in ("m", "d"))
    return np.asarray(alignment * m ** (2 * np.arange(alignment.shape[2])[::-1]) * d)


def _other_teachers(table: pd.DataFrame) -> list[pd.DataFrame]:
    """The runs with teachers of our own, a curve each; none where no run has the published one."""
    if not judging(table):
        return []
    others = table[table["teacher"] != "published"]
    return [run.reset_index(drop=True) for _, run in others.groupby("run_id", sort=False)]


def _owner(mass: Array) -> dict[int, int]:
    """The head of each group, one each, by attention (heads, groups)."""
    heads, groups = linear_sum_assignment(-mass)
    return {int(group): int(head) for head, group in zip(heads, groups, strict=True)}


def _specialisation(run: pd.DataFrame) -> list[float]:
    """The index of the last query's attention, row by row."""
    return [specialisation(row) for row in _mass(run)]


def _own(run: pd.DataFrame) -> tuple[list[float], list[float]]:
    """Attention and alignment of each group's own head at step 1,900, the strongest group first."""
    mass, inner = (_at(run["step"].to_numpy(dtype=float), values) for values in (_mass(run), _inner(run)))
    groups = range(mass.shape[1])
    if np.isnan(mass).any():
        return [np.nan for _ in groups], [np.nan for _ in groups]
    owner = _owner(mass)
    return [mass[owner[g], g] for g in groups], [inner[owner[g], g] for g in groups]


def _at(steps: Array, values: Array) -> Array:
    """(rows, heads, groups) after the updates at which values are published, interpolated; NaN beyond the run."""
    return np.apply_along_axis(lambda y: np.interp(updates(LAST), steps, y, right=np.nan), 0, values)


def compare(table: pd.DataFrame) -> list[Claim]:
    found = judging(table)
    if not found:
        return [Claim("head with the largest <V, A_k> at the end", _owners(table), note="a quick run, not judged")]
    others = _other_teachers(table)
    index, name = "readout_specialisation", "specialisation of the last query"
    mine, theirs = ([run.assign(**{index: _specialisation(run)}) for run in runs] for runs in (found, others))
    claims = value_claims(mine, index, name, FIGB.specialisation, FIGB.decides)
    if others:
        text = listed([numbers([at(run, [index], updates(step))[0] for step in FIGB.specialisation]) for run in theirs])
        claims.append(Claim(f"{name} at steps {'/'.join(map(str, FIGB.specialisation))}, two other teachers", text))
    dips = [float(_inner(run).min()) for run in found]
    claims.append(Claim("lowest <V, A_k> of a head", numbers(dips, 0), "-500", None, "published: about"))
    own, beside = [_own(run) for run in found], [_own(run) for run in others]
    for what, published, i, digits, absolute in (
        ("last query's attention on its own group", FIGB_MASS, 0, 2, ABSOLUTE),
        ("<V, A_k> of a group's own head", FIGB_ALIGNMENT, 1, 0, 0.0),
    ):
        name, ours = f"{what} at step {LAST}, strongest group first", np.array([pair[i] for pair in own])
        claims.append(judged_together(name, ours, published, FIGB.decides, digits, absolute))
        if beside:
            claims.append(Claim(f"{name}, two other teachers", listed([numbers(pair[i], digits) for pair in beside])))
    return claims


def _owners(table: pd.DataFrame) -> str:
    owner = _alignment(table)[-1].argmax(0)  # of each group
    return ", ".join(f"group {g + 1}: head {head + 1}" for g, head in enumerate(owner))
