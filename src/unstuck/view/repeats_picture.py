"""The picture of `unstuck data --plot`: frequency and reliability of repeated tokens by distance in the context."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from unstuck.papers.style import BLUE, ORANGE, PAPER_GREY, panels


def draw_repeats(answer: dict[str, Any]) -> Figure:
    """Left, the share of tokens that stand earlier in the context, by distance; right, how often what followed them
    last time follows again, beside what a bigram model gives."""
    rows = answer["distances"]
    labels = [f"{r['from']}" if r["from"] == r["to"] else f"{r['from']}–{r['to']}" for r in rows]
    picture, (left, right) = panels(2, width=max(4.4, 0.62 * len(rows)))
    left.bar(labels, [100 * r["frequency"] for r in rows], color=BLUE)
    left.set(ylabel="frequency (% of tokens)", title=f"{100 * answer['repeat_rate']:.3g}% of tokens repeat")
    for key, colour, marker, name in (
        ("reliability", ORANGE, "o-", "the text"),
        ("bigram_reliability", PAPER_GREY, "s--", "its bigram model"),
    ):
        known = [(label, 100 * r[key]) for label, r in zip(labels, rows, strict=True) if r[key] is not None]
        right.plot([x for x, _ in known], [y for _, y in known], marker, color=colour, label=name)
    right.set(
        ylabel="reliability (% of repeats)",
        title=f"an induction head could predict {100 * answer['predictable']:.3g}% of tokens",
        ylim=(0, None),
    )
    right.legend()
    for axes in (left, right):
        axes.set_xlabel("distance to the most recent occurrence (tokens)")
        axes.tick_params(axis="x", labelrotation=30 if len(rows) > 7 else 0)
    picture.suptitle(
        f"{Path(answer['file']).name}, vocabulary {answer['vocabulary']:,}, context {answer['context']:,}",
        fontsize=10.5,
    )
    return picture
