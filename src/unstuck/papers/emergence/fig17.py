"""Figure 17: copying and selection rise together, at the jump.

C.2. One recall run without repetition: accuracy, attention from the relevant value to its key (copying), and from the
query to the relevant value (selection), for every layer and head. The circuit is named by ablation (probes/circuit).
"""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.curve import Curve
from unstuck.papers.emergence._recall import SMALL, UNTIL_90, crossed, with_crossings
from unstuck.papers.figure import Claim, Profile, Progress
from unstuck.papers.lab import TieredRun, curves, grid
from unstuck.papers.style import legend_outside, panels, shades
from unstuck.probes.circuit import ROLES, in_words, since
from unstuck.store.store import Store

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


def data(profile: Profile, progress: Progress, store: Path) -> pd.DataFrame:
    (run,) = runs(profile)
    table = curves([run], store)
    if table.empty:
        return table
    heads = Curve.of(table).head_names(*KINDS)
    status = Store(store).run(run.spec.run_id).status() or {}
    circuit = status.get("result", {}).get("circuit")
    says = in_words(circuit, table) if circuit else []
    parts = circuit["parts"] if circuit else []
    named = {part["role"]: part["layer"] for part in parts}
    shared = [part["role"] for part in parts if part.get("together")]
    columns = ["run_id", "tokens", "pairs", "layer_norm", "seed", "step", "evaluated", "clean_accuracy", *heads]
    return with_crossings(table[columns], [run], store).assign(
        circuit="; ".join(says), shared=", ".join(shared), **{role: named.get(role, np.nan) for role in ROLES}
    )


def draw(table: pd.DataFrame) -> Figure:
    picture, axes = panels(3, width=3.9)
    axes[0].plot(table["step"], table["clean_accuracy"], color="#222222")
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


def _elsewhere(curve: Curve, kind: str, layer: int) -> str:
    """The highest attention of a kind outside a layer, at the end, and where."""
    best = np.nanmax(curve.heads(kind)[-1], axis=1)  # of each layer
    best[layer] = -np.inf
    return f"{best.max():.2f} in layer {int(best.argmax()) + 1}"


def compare(table: pd.DataFrame) -> list[Claim]:
    jump = crossed(table, 0.5)
    if np.isinf(jump):
        return [Claim("emergence", f"none by step {table['step'].max():.0f}", "sudden", None)]
    curve = Curve.of(table)
    best = {kind: curve.best_head(kind) for kind in KINDS}
    (copies, _), (selects, _) = best.values()
    layers = curve.heads("attention").shape[1]
    ours = f"copying in layer {copies + 1}, selection in layer {selects + 1} of {layers}"
    paper = "copying in layer 3, selection in layer 4 of 4"
    fits = copies + 2 == layers == selects + 1
    named = [role for role, layer in zip(ROLES, (copies, selects), strict=True) if table[role].iloc[-1] == layer]
    shown = " and ".join(named) or "none"
    note = "" if len(named) == 2 else f"by attention; to agree, ablation is to name both: it names what {shown}"
    if isinstance(shared := table["shared"].iloc[-1], str) and shared:  # an empty cell of a CSV is none
        note += f"; layers together: what {shared}"
    claims = [Claim("where", ours, paper, (True if len(named) == 2 else None) if fits else False, note)]
    others = {kind: _elsewhere(curve, kind, layer) for kind, (layer, _) in best.items()}
    text = f"copying {others['copying']}, selection {others['attention']}"
    claims.append(Claim("most attention of that kind in another layer, at the end", text, None, None))
    risen = {kind: since(curve, kind, layer, head) for kind, (layer, head) in best.items()}
    copying, selection = risen.values()
    if copying is not None and selection is not None:
        text = f"copying {copying}, selection {selection}, accuracy 50% {jump:.0f}"
        near = max(abs(copying - jump), abs(selection - jump)) <= 0.1 * jump
        claims.append(Claim("half-way steps", text, "together, at the jump", bool(near), "together: within 10%"))
    circuit = table["circuit"].iloc[-1]
    claims.append(
        Claim("circuit, by ablation", "not looked for" if pd.isna(circuit) or not circuit else circuit, None, None)
    )
    return claims
