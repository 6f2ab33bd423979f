"""Figure 17: copying and selection rise together, at the jump.

C.2. One recall run without repetition: accuracy, attention from the relevant value to its key (copying), and from the
query to the relevant value (selection), for every layer and head. The circuit is named by ablation (probes/circuit).
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.columns import CLEAN_ACCURACY, EVALUATED, STEP
from unstuck.curve import Curve
from unstuck.papers.figure import Claim, Profile
from unstuck.papers.finished import Finished
from unstuck.papers.lab import TieredRun, grid
from unstuck.papers.style import legend_outside, panels, shades
from unstuck.probes.circuit import ROLES, in_words, since
from unstuck.store.store import Store

from ._recall import SMALL, UNTIL_90, crossed

KINDS = {"copying": "copying: value to key", "attention": "selection: query to value"}


def runs(profile: Profile) -> list[TieredRun]:
    fixed = {
        "quick": {**SMALL, "task.tokens": 16, "task.pairs": 4, "train.after": 100, "train.maps": [0, 200, 400, 500]},
        "cpu": {"task.tokens": 64, "task.pairs": 8, "train.max_steps": 30_000, "train.maps": [*range(0, 12_001, 1000)]},
        "paper": {
            "task.tokens": 256,
            "task.pairs": 32,
            "train.max_steps": 200_000,
            "train.maps": [*range(0, 200_001, 10_000)],
        },
    }[profile]
    return grid("recall", 1, [0], {**fixed, "train.thresholds": UNTIL_90})


def data(done: Finished) -> pd.DataFrame:
    (run,), table = done.runs, done.curves
    if table.empty:
        return table
    status = Store(done.store).run(run.spec.run_id).status() or {}
    circuit = status.get("result", {}).get("circuit")
    parts = circuit["parts"] if circuit else []
    named = {part["role"]: part["layer"] for part in parts}
    shared = [part["role"] for part in parts if part.get("together")]
    sizes, heads = ["tokens", "pairs", "layer_norm", "seed"], Curve.of(table).head_names(*KINDS)
    return done.with_crossings(*sizes, STEP, EVALUATED, CLEAN_ACCURACY, *heads).assign(
        circuit="; ".join(in_words(circuit, table) if circuit else []),
        shared=", ".join(shared),
        **{role: named.get(role, np.nan) for role in ROLES},
    )


def draw(table: pd.DataFrame) -> Figure:
    picture, axes = panels(3, width=3.9)
    axes[0].plot(table["step"], table[CLEAN_ACCURACY], color="#222222")
    axes[0].set(xlabel="step", ylabel="test accuracy", ylim=(0, 1.02))
    axes[0].set_title(f"recall, {table['tokens'].iloc[0]} tokens, {table['pairs'].iloc[0]} pairs")
    for ax, (kind, title) in zip(axes[1:], KINDS.items(), strict=True):
        heads = Curve.of(table).heads(kind)  # (rows, layers, heads)
        for layer, colour in shades(list(range(heads.shape[1]))).items():
            for i, head in enumerate(heads[:, layer].T):
                label = f"layer {layer + 1}" if i == 0 else None
                ax.plot(table["step"], head, color=colour, lw=1.2, alpha=0.8, label=label)
        ax.set(xlabel="step", ylabel="attention", ylim=(0, 1.02), title=title)
    legend_outside(picture, axes[1])
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    jump = crossed(table, 0.5)
    if np.isinf(jump):
        return [Claim("emergence", f"none by step {table['step'].max():.0f}", "sudden", None)]
    curve = Curve.of(table)
    best = {kind: curve.best_head(kind) for kind in KINDS}
    others = ", ".join(f"{_named(kind)} {_elsewhere(curve, kind, layer)}" for kind, (layer, _) in best.items())
    circuit = table["circuit"].iloc[-1]
    found = circuit if isinstance(circuit, str) and circuit else "not looked for"
    return [
        _where(table, curve.heads("attention").shape[1], *(layer for layer, _ in best.values())),
        Claim("most attention of that kind in another layer, at the end", others),
        *_when(jump, {kind: since(curve, kind, *head) for kind, head in best.items()}),
        Claim("circuit, by ablation", found),
    ]


def _named(kind: str) -> str:
    return KINDS[kind].partition(":")[0]


def _where(table: pd.DataFrame, layers: int, copies: int, selects: int) -> Claim:
    """In which layers copying and selection are strongest. To agree with the paper, ablation is to name both."""
    ours = f"copying in layer {copies + 1}, selection in layer {selects + 1} of {layers}"
    paper = "copying in layer 3, selection in layer 4 of 4"
    named = [role for role, layer in zip(ROLES, (copies, selects), strict=True) if table[role].iloc[-1] == layer]
    both = len(named) == len(ROLES)
    note = (
        ""
        if both
        else f"by attention; to agree, ablation is to name both: it names what {' and '.join(named) or 'none'}"
    )
    if isinstance(shared := table["shared"].iloc[-1], str) and shared:  # an empty cell of a CSV is none
        note += f"; layers together: what {shared}"
    fits = copies + 2 == layers == selects + 1
    return Claim("where", ours, paper, (both or None) if fits else False, note)


def _elsewhere(curve: Curve, kind: str, layer: int) -> str:
    """The highest attention of a kind outside a layer, at the end, and where."""
    best = np.nanmax(curve.heads(kind)[-1], axis=1)  # of each layer
    best[layer] = -np.inf
    return f"{best.max():.2f} in layer {int(best.argmax()) + 1}"


def _when(jump: float, risen: dict[str, int | None]) -> list[Claim]:
    """Half-way steps of copying and selection beside the jump in accuracy, where both have risen."""
    steps = [step for step in risen.values() if step is not None]
    if len(steps) < len(risen):
        return []
    text = ", ".join(f"{_named(kind)} {step}" for kind, step in risen.items()) + f", accuracy 50% {jump:.0f}"
    near = max(abs(step - jump) for step in steps) <= 0.1 * jump
    return [Claim("half-way steps", text, "together, at the jump", bool(near), "together: within 10%")]
