"""Attention between all positions of a sequence at chosen steps: as a table, and as a picture."""

from collections.abc import Mapping, Sequence
from colorsys import hsv_to_rgb
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from unstuck.errors import BadInput
from unstuck.extras import require
from unstuck.tasks.task import Batch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FULL = 0.6  # attention from which on a head's colour is full


@torch.no_grad()
def attention_table(model: Any, batch: Batch, step: int = 0, *, sequences: int = 1) -> pd.DataFrame:
    """The attention of every layer and head on the first sequence of `batch`, a row for each pair of positions; or its
    mean over the first `sequences`.

    `token` is the token at the attended position: its index in a discrete vocabulary; its position otherwise, and for a
    mean. `relevant` says whether the target depends on it.
    """
    inputs = batch.inputs[:sequences]
    maps = torch.stack([m.mean(0) for m in model.attention(inputs)]).cpu().numpy()  # (layers, heads, T, T)
    layers, heads, T, _ = maps.shape
    indices = inputs.dtype == torch.long and inputs.dim() == 2  # one a position
    tokens = inputs[0].cpu().numpy() if indices and sequences == 1 else np.arange(T)
    layer, head, row, column = (x.ravel() for x in np.indices((layers, heads, T, T)))
    return pd.DataFrame(
        {
            "step": step,
            "layer": layer,
            "head": head,
            "row": row,
            "column": column,
            "token": tokens[column],
            "relevant": batch.relevant[0].cpu().numpy()[column],
            "weight": maps.ravel(),
        }
    )


def _picture(width: float, height: float) -> "Figure":
    require("papers", "drawing attention", "matplotlib")
    from matplotlib.figure import Figure  # optional

    return Figure(figsize=(width, height), layout="constrained")


def draw_attention(table: pd.DataFrame, heads: Sequence[tuple[int, int]], steps: Sequence[int]) -> "Figure":
    """A row of maps for each (layer, head), a column for each step; the relevant tokens are in bold."""
    picture = _picture(2.9 * len(steps) + 0.6, 2.9 * len(heads) + 0.4)
    axes = picture.subplots(len(heads), len(steps), squeeze=False)
    places = table.drop_duplicates("column").sort_values("column")
    image: Any = None
    for i, (layer, head) in enumerate(heads):
        for j, step in enumerate(steps):
            part = table[(table["layer"] == layer) & (table["head"] == head) & (table["step"] == step)]
            if part.empty:
                steps_there = ", ".join(map(str, table["step"].unique()))
                allowed = f"in the table: {len(table.groupby(['layer', 'head']))} heads, at steps {steps_there}"
                raise BadInput("map", f"layer {layer}, head {head}, step {step}", allowed)
            ax = axes[i, j]
            image = ax.imshow(part.pivot_table("weight", "row", "column").to_numpy(), vmin=0, vmax=1, cmap="Greys")
            for set_ticks in (ax.set_xticks, ax.set_yticks):
                set_ticks(places["column"], [str(t) for t in places["token"]], fontsize=6.5)
            for labels in (ax.get_xticklabels(), ax.get_yticklabels()):
                for label, relevant in zip(labels, places["relevant"], strict=True):
                    label.set_fontweight("bold" if relevant else "normal")
                    label.set_color("#D55E00" if relevant else "#222222")
            ax.set_title(f"layer {layer + 1}, head {head + 1}, step {step:,}", fontsize=9)
            if j == 0:
                ax.set_ylabel("from")
            if i == len(heads) - 1:
                ax.set_xlabel("to")
    picture.colorbar(image, ax=axes, shrink=0.6, label="attention")
    return picture


def head_inks(heads: int) -> list[tuple[float, float, float]]:
    """The colour that each head subtracts from white: hues around the circle, so that equal parts of all give grey."""
    if heads == 1:
        return [(1.0, 1.0, 1.0)]
    colours = [hsv_to_rgb((0.5 + i / heads) % 1, 1.0, 1.0) for i in range(heads)]
    return [(1 - r, 1 - g, 1 - b) for r, g, b in colours]


def draw_heads(
    table: pd.DataFrame, steps: Sequence[int], layer: int = 0, titles: Mapping[int, str] | None = None
) -> "Figure":
    """A map for each step with all heads of a layer, one colour per head; where all attend alike it is grey."""
    part = table[table["layer"] == layer]
    heads = sorted(part["head"].unique())
    inks = {head: np.array(ink) for head, ink in zip(heads, head_inks(len(heads)), strict=True)}
    picture = _picture(2.7 * len(steps) + 1.1, 3.1)
    from matplotlib.patches import Patch  # optional

    axes = picture.subplots(1, len(steps), squeeze=False)[0]
    for ax, step in zip(axes, steps, strict=True):
        image: Any = 1.0
        for head, ink in inks.items():
            rows = part[(part["head"] == head) & (part["step"] == step)]
            weight = rows.pivot_table("weight", "row", "column").to_numpy()
            image = image - np.clip(weight / FULL, 0, 1)[:, :, None] * ink
        ax.imshow(np.clip(image, 0, 1))
        ax.set(title=(titles or {}).get(step, f"step {step:,}"), xlabel="to position")
    axes[0].set_ylabel("from position")
    keys = [Patch(color=tuple(1 - ink), label=f"head {head + 1}") for head, ink in inks.items()]
    if len(heads) > 1:
        keys.append(Patch(color="#777777", label="all heads"))
    picture.legend(handles=keys, loc="outside right center")
    return picture
