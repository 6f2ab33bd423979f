"""attention-maps: attention of the copying and the selecting head, before and after the jump.

Not in the paper. One sequence of the recall run of Figure 17 at three steps, its tokens on the axes, the value that is
asked for in colour.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unstuck.columns import CLEAN_ACCURACY
from unstuck.curve import Curve
from unstuck.papers.figure import Claim
from unstuck.papers.finished import Finished
from unstuck.probes.circuit import ROLES
from unstuck.probes.maps import draw_attention
from unstuck.store.store import Store

from . import fig17
from ._recall import first_step

runs = fig17.runs


def data(done: Finished) -> pd.DataFrame:
    """The maps of the strongest copying and the strongest selecting head: at the start, before 50%, and at the end."""
    (run,) = done.runs
    curve, maps = done.curves, Store(done.store).run(run.spec.run_id).maps()
    if curve.empty or maps is None:
        return pd.DataFrame()
    heads = {role: Curve.of(curve).best_head(measure) for role, measure in ROLES.items()}
    kept = np.sort(maps["step"].unique())
    before = kept[kept < first_step(curve, CLEAN_ACCURACY, 0.5)]
    steps = sorted({int(kept[0]), int(before[-1]), int(kept[-1])})
    parts = []
    for role, (layer, head) in heads.items():
        part = maps[(maps["layer"] == layer) & (maps["head"] == head) & maps["step"].isin(steps)]
        parts.append(part.assign(role=role))
    return pd.concat(parts, ignore_index=True)


def draw(table: pd.DataFrame) -> Figure:
    heads = list(dict.fromkeys(zip(table["layer"], table["head"], strict=True)))
    return draw_attention(table, heads, sorted(table["step"].unique()))


def compare(table: pd.DataFrame) -> list[Claim]:
    last = table[(table["step"] == table["step"].max())]
    selects = last[(last["role"] == "selects") & (last["row"] == last["row"].max()) & last["relevant"]]
    share = float(selects["weight"].sum())
    return [Claim("attention from the query to the value that is asked for, at the end", share)]
