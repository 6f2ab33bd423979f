"""forecast: when the plateau will end, said while the loss is flat, on runs that the forecaster was not tuned on.

Not in the paper. Above: a run, its loss and what was forecast at each step, with the band that holds the end with 80%;
and one of recall, by attention and copying, that was not finished when that signal was chosen. Both are those with the
longest plateau, without layer norm (recall: and without repetition). Below: how far forecasts are off, by the part of
the plateau that had elapsed, and how often the band holds the end.
Tuned on every second cell of the grid of (d, T, B); `beyond` is tuned on small sizes only and tested on larger ones. A
median of answers to less than a third of the questions is not drawn, and one of fewer than ten not told.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unstuck.papers.emergence import _protocol as protocol
from unstuck.papers.figure import Claim, Job, Profile, Progress, load
from unstuck.papers.lab import TieredRun
from unstuck.papers.style import BLACK, BLUE, GREEN, ORANGE, PAPER_GREY, PURPLE, legend_outside, panels
from unstuck.store.store import Store

METHODS = {
    "gain and law": (BLUE, "attention and law"),
    "gain": (GREEN, "attention alone"),
    "sharpening": (PURPLE, "entropy alone (blind)"),
    "law": (ORANGE, "law alone"),
    "twice elapsed": (PAPER_GREY, "twice the elapsed time"),
}
WORDS = {method: label for method, (_, label) in METHODS.items()}
WORDS |= {"links": "attention and copying", protocol.CORRECTED: "the same, corrected as for regression"}
SETS = {  # of runs, in words, and how their ends are forecast
    "between": (
        "other sizes",
        ["gain and law", "gain", "progress law", "sharpening", "parting", "law", "loss extrapolated", "twice elapsed"],
    ),
    "other seeds": ("other seeds", ["gain and law", "gain", "sharpening", "law"]),
    "beyond": ("larger sizes", ["gain and law", "gain", "sharpening", "law"]),
    "cross-sample repetition": ("with p > 0", ["gain", "sharpening"]),
    "other layers and heads": ("other layers and heads", ["gain", "sharpening"]),
    "other rates and batches": ("other rates and batches", ["gain", "sharpening"]),
    "one layer": ("one layer", ["gain", "sharpening"]),
    "recall": ("recall", ["links", protocol.CORRECTED, "gain", "progress law", "sharpening", "twice elapsed"]),
    "recall since": ("recall, made since", ["links", "gain", "sharpening", "twice elapsed"]),
}
#: Of those, what someone with a stuck run wants to know first.
BRIEF = {
    "between": ("like ours, other sizes", ["gain and law", "gain", "sharpening", "loss extrapolated", "twice elapsed"]),
    "beyond": ("larger than those of the law", ["gain and law"]),
    "cross-sample repetition": SETS["cross-sample repetition"],
    "recall": ("recall: learnt in two steps", ["links", "gain"]),
}
#: Sets of which a run is drawn: by what its end is forecast, and what is drawn under that.
EXAMPLES = {"between": ("gain and law", "test_loss"), "recall since": ("links", "test_accuracy")}
TESTED = 10  # seeds of runs that cannot emerge from which on nothing was chosen with them in view
#: What was aimed at on held-out runs: errors, and how often 80% bands hold the end.
AIM, BANDS = {"15-30%": 0.2, "30-50%": 0.08}, (0.7, 0.9)
JUDGED = ("gain and law", "gain", "links", "sharpening", "parting")
NINE = 0.9  # of runs that cannot emerge, in which there should be no sign of it
FEW = 10  # answers below which a median is not shown
LOSS, HOPELESS, UNFINISHED, GRADIENT = "loss", "no sign asked", "not emerged", "gradient norm"
NOISE = "made-up noise"


def plan(profile: Profile) -> list[Job]:
    return [Job("forecasts of all finished runs", 1, 60.0)]


def overlaid(profile: Profile) -> list[TieredRun]:
    """The runs it is about; all of regression and recall that the store has are taken."""
    names = ("fig3-left", "fig3-middle", "fig3-right", "fig13", "fig4-law")
    return [run for name in names for run in load(name).runs(profile)]  # type: ignore[attr-defined]


def data(profile: Profile, progress: Progress, store: Path | None = None) -> pd.DataFrame:
    """Every forecast, with what came; the loss of the run that is drawn; what was said of runs that cannot emerge."""
    every = [] if store is None else list(protocol.finished_runs(Store(store)))
    found = [pair for pair in every if pair[0]["emerged"]]
    late = [pair for pair in every if not pair[0]["emerged"]]
    hopeless = None if store is None else _hopeless(store.parent / "hopeless.csv")
    parts = []
    for name, chosen, tuned in protocol.held_out_sets(found):
        if not chosen:
            continue
        parts.append(protocol.forecasts(chosen, *tuned).assign(set=name))
        if name in EXAMPLES:
            parts.append(_example(chosen, EXAMPLES[name][1]).assign(set=name))
        if name == "between":
            parts.append(protocol.signs_in_noise(tuned[0]).assign(set=NOISE))
            if hopeless is not None:
                parts.append(protocol.false_signs(hopeless, *tuned).assign(set=HOPELESS))
                parts.append(_gradients(found, hopeless).assign(set=GRADIENT))
            parts.append(protocol.ended_too_soon(late, tuned[0]).assign(set=UNFINISHED))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _example(chosen: list[protocol.Measured], measure: str) -> pd.DataFrame:
    """What is measured of the run with the longest plateau, of those without layer norm, and of recall without
    repetition."""
    plain = [
        pair for pair in chosen if not pair[0]["layer_norm"] and (pair[0]["name"] != "recall" or pair[0]["B"] == 1)
    ]
    run, curve = max(plain or chosen, key=lambda pair: pair[0]["plateau"])
    said = curve.to_frame()[["step", measure]].rename(columns={measure: "said"})
    return said.assign(run_id=run["run_id"], method=LOSS, plateau=run["plateau"])


def _hopeless(file: Path) -> pd.DataFrame | None:
    """Curves of runs that cannot emerge, those that nothing was chosen with in view."""
    if not file.is_file():
        return None
    curves = pd.read_csv(file)
    return curves[curves["seed"] >= TESTED]


def _gradients(found: list[protocol.Measured], hopeless: pd.DataFrame) -> pd.DataFrame:
    """Norms of the gradient, in runs of Figure 3 and in those that learn but cannot emerge."""
    plain = [pair for pair in found if pair[0]["name"] == "single_location" and not pair[0]["p"]]
    standard = [pair for pair in plain if protocol.is_standard(pair[0])]
    return protocol.gradient_norms(standard, hopeless[hopeless["kind"] != "learning rate 0"])


def draw(table: pd.DataFrame) -> Figure:
    drawn = set(zip(table["set"], table["method"], strict=True))
    examples = [name for name, (method, _) in EXAMPLES.items() if {(name, LOSS), (name, method)} <= drawn]
    rows, columns = (2, 2) if len(examples) == 2 else (1, len(examples) + 2)
    picture, (*left, middle, right) = panels(columns, rows, width=4.8, height=3.6)
    for ax, name in zip(left, examples, strict=True):
        _draw_example(ax, table[table["set"] == name], *EXAMPLES[name])
    scored = protocol.scores(table[(table["set"] == "between") & table["method"].isin(METHODS)])
    for method, (colour, label) in METHODS.items():
        rows = scored[(scored["method"] == method) & (scored["answered"] >= scored["forecasts"] / 3)]
        rows = rows[rows["answered"] >= FEW]
        middle.plot(_places(rows), rows["error"], "o-", ms=4, color=colour, label=label)
        if rows["coverage"].notna().any():
            right.plot(_places(rows), rows["coverage"], "o-", ms=4, color=colour)
    wider = protocol.scores(table[(table["set"] == "beyond") & (table["method"] == "gain and law")])
    for ax, column in ((middle, "error"), (right, "coverage")):
        label = "attention and law, larger sizes"
        ax.plot(_places(wider), wider[column], "s:", ms=4, color=BLUE, mfc="white", label=label)
        ax.set_xticks(range(len(protocol.NAMES)), protocol.NAMES)
        ax.set(xlabel="part of the plateau that had elapsed", xlim=(-0.4, len(protocol.NAMES) - 0.6))
    middle.set(yscale="log", ylabel="median error of the forecast", ylim=(0.03, 6))
    middle.set_yticks([0.05, 0.1, 0.2, 0.5, 1, 2, 5], ["5%", "10%", "20%", "50%", "100%", "200%", "500%"])
    middle.minorticks_off()
    legend_outside(picture, middle, loc="outside lower center", ncols=3)
    right.axhspan(0.7, 0.9, color="#EEEEEE", zorder=0)
    right.set(ylabel="the 80% band holds the end", ylim=(0, 1.03))
    return picture


def _places(rows: pd.DataFrame) -> list[int]:
    return [protocol.NAMES.index(str(name)) for name in rows["elapsed"]]


def _draw_example(ax: Axes, table: pd.DataFrame, method: str, measure: str) -> None:
    measured = table[table["method"] == LOSS].sort_values("step")
    plateau = measured["plateau"].iloc[0]
    said = table[(table["run_id"] == measured["run_id"].iloc[0]) & (table["method"] == method)].sort_values("step")
    ax.fill_between(said["step"], said["low"], said["high"], color=BLUE, alpha=0.2, lw=0, label="80% band")
    ax.plot(said["step"], said["said"], "o-", ms=3, color=BLUE, lw=1.2, label="forecast of the plateau's end")
    ax.axhline(plateau, color=BLACK, ls="--", lw=1, label="where it ended")
    ax.set(xlabel="step", ylabel="step at which the plateau ends", ylim=(0, 2 * plateau), xlim=(0, 1.02 * plateau))
    sizes = [k for k in ("T", "d", "B", "tokens", "pairs") if pd.notna(said.iloc[0][k])]
    if "pairs" in sizes:
        sizes = ["tokens", "pairs", *(["B"] if said.iloc[0]["B"] > 1 else [])]
    ax.set_title(f"held-out run: {', '.join(f'{k} = {said.iloc[0][k]:g}' for k in sizes)}")
    other = ax.twinx()
    other.plot(
        measured["step"], measured["said"], color=PAPER_GREY, lw=1.2, label=measure.replace("_", " ") + " (right)"
    )
    top = 0.5 if measure == "test_loss" else 1.0
    other.set(ylim=(0, 4.4 * top), yticks=[0, top / 2, top])
    other.spines["right"].set_visible(True)
    handles = [*ax.get_legend_handles_labels()[0], *other.get_legend_handles_labels()[0]]
    ax.legend(handles, [str(h.get_label()) for h in handles], loc="upper left" if "pairs" in sizes else "upper right")


def compare(table: pd.DataFrame) -> list[Claim]:
    claims = []
    for name, (_, methods) in SETS.items():
        part = table[table["set"] == name]
        for method in _given(methods, part):
            about = f"{name}, {part['run_id'].nunique()} runs"
            claims.append(_claim(about, method, protocol.scores(part[part["method"] == method])))
    since = table[(table["set"] == "recall since") & (table["method"] == "links")]
    for norm, which in ((False, ""), (True, " with layer norm")):
        mine = since[since["layer_norm"].astype(str) == str(norm)] if "layer_norm" in since else since[:0]
        claims += [_together(mine, f"recall since{which}")] if len(mine) else []
    claims += [claim for name, (_, methods) in SETS.items() for claim in _aimed(table, name, methods)]
    for name in ("between", "beyond"):
        part = table[table["set"] == name]
        claims += [_against_law(part, name)] if len(part) else []
    late = table[(table["set"] == UNFINISHED) & table["method"].isin(["links", "gain", "sharpening"])]
    for (task, method), rows in late.groupby(["name", "method"], sort=False):
        what = {"single_location": "regression"}.get(str(task), str(task))
        text = f"{rows['ended'].sum():.0f} of {rows['answered'].sum():.0f}"
        repeated = sorted(set(rows["p"].dropna()) - {0.0}) if "p" in rows else []
        which = f", p = {', '.join(f'{p:g}' for p in repeated)}" if repeated else ""
        note = f"{len(rows)} runs{which}, asked {rows['asked'].sum():.0f} times"
        by = WORDS["links"] if method == "links" else method
        about = f"{what}, runs that had not emerged by their last step, by {by}: bands that ended before it"
        claims.append(Claim(about, text, None, None, note))
    asked = table[table["set"] == HOPELESS]
    for method, rows in asked[asked["method"] != protocol.WITH_LAW].groupby("method", sort=False):
        quiet = int((rows["said"].astype(float) == 0).sum())
        never = int(((rows["said"].astype(float) == 0) & (rows["signs"] == 0)).sum())
        note = f"at their end; at no time in {never} of {len(rows)}, with signs in {rows['signs'].sum():.0f} of the "
        note += f"{rows['asked'].sum():.0f} answers before the end; the aim, nine, is "
        nine = NINE * len(rows)
        note += "met" if never >= nine else "met at the end only" if quiet >= nine else "not met"
        claims.append(
            Claim(f"runs that cannot emerge: no sign in {method}", f"{quiet} of {len(rows)}", None, None, note)
        )
    both = asked[asked["method"] == protocol.WITH_LAW]
    if len(both):
        quiet = int((both["said"].astype(float) == 0).sum())
        note = "at their end, where the law is refuted and left out; before it is, its word is passed on: "
        note += f"{both['signs'].sum():.0f} of {both['asked'].sum():.0f} answers"
        about = "runs that cannot emerge: no end named by attention gain and law"
        claims.append(Claim(about, f"{quiet} of {len(both)}", None, None, note))
    for kind, rows in table[table["set"] == NOISE].groupby("kind", sort=False):
        text = f"a sign in {rows['signs'].sum():.0f} of {rows['asked'].sum():.0f} answers, "
        text += f"at some time in {(rows['signs'] > 0).sum()} of {len(rows)} curves"
        about = f"made-up curves of eight heads that only drift ({kind}), by attention gain"
        claims.append(Claim(about, text, None, None, "the runs that cannot emerge drift by some 2%"))
    return [*claims, *_of_gradients(table[table["set"] == GRADIENT])]


def _aimed(table: pd.DataFrame, name: str, methods: list[str]) -> list[Claim]:
    """Did forecasts of a set of runs come to what was aimed at?"""
    part, said = table[table["set"] == name], []
    for method in (m for m in _given(methods, part) if m in JUDGED):
        scored = protocol.scores(part[part["method"] == method]).set_index("elapsed")
        scored = scored[scored["answered"] >= FEW]
        near = [scored["error"].get(group, np.inf) <= most for group, most in AIM.items()]
        held = scored["coverage"].round(2).between(*BANDS)  # as it is shown
        outside = ", ".join(f"{x:.0%} at {group}" for group, x in scored.loc[~held, "coverage"].items())
        words = "errors met" if all(near) else f"errors met at {_where(near)} only" if any(near) else "errors not met"
        words += ", bands met" if held.all() and len(held) else f", bands not ({outside or 'too few answers'})"
        said.append(f"{WORDS.get(method, method)}: {words}")
    about = f"{name}: the aim, errors of at most 20% at 15-30% and 8% at 30-50%, bands that hold 70 to 90%"
    return [Claim(about, "; ".join(said), None, None)] if said else []


def _where(near: list[bool]) -> str:
    return ", ".join(group for group, there in zip(AIM, near, strict=True) if there)


def _of_gradients(part: pd.DataFrame) -> list[Claim]:
    shown = {
        which: f"{x.median():.2f} ({x.min():.2f} to {x.max():.2f}, {len(x)} runs)"
        for which, x in part.groupby("method")["said"]
    }
    if len(shown) < 2:
        return []
    text = f"{shown['emerge']} in runs that emerge, {shown['cannot']} in runs that learn but cannot"
    size = ", ".join(f"{k} = {v}" for k, v in protocol.HOPELESS.items())
    about = f"{size}: norm of the gradient at 60 to 90% of the plateau over that at 20 to 50%, or at the same steps"
    return [Claim(about, text, None, None, "medians and extremes")]


def overview(table: pd.DataFrame) -> pd.DataFrame:
    """For a page: a row for each set of runs and method, median errors with the coverage of the 80% band."""
    return _rows(table, SETS)


def brief(table: pd.DataFrame) -> pd.DataFrame:
    """The same, of what one wants to know first."""
    return _rows(table, BRIEF)


def _rows(table: pd.DataFrame, sets: dict[str, tuple[str, list[str]]]) -> pd.DataFrame:
    rows = []
    for name, (words, methods) in sets.items():
        part = table[table["set"] == name]
        found: list[dict[str, str]] = []
        for method in _given(methods, part):
            scored = protocol.scores(part[part["method"] == method]).set_index("elapsed")
            row = {"runs": "" if found else f"{words} ({part['run_id'].nunique()})"}
            row["forecast by"] = WORDS.get(method, method)
            found.append(row | {group: _cell(scored.loc[group]) for group in protocol.NAMES if group in scored.index})
        if found and any(found[0].get(group, "–") != "–" for group in protocol.NAMES):
            rows += found  # not of a set so small that its best method has too few answers to tell
    return pd.DataFrame(rows).fillna("–")


def _given(methods: list[str], part: pd.DataFrame) -> list[str]:
    """Those by which runs were forecast."""
    return [method for method in methods if (part["method"] == method).any()]


def _cell(score: pd.Series) -> str:
    if score["answered"] < FEW:
        return "–"
    band = f" ({score['coverage']:.0%})" if pd.notna(score["coverage"]) else ""
    silent = "*" if score["answered"] < score["forecasts"] / 2 else ""
    return f"{score['error']:.0%}{band}{silent}"


def _together(part: pd.DataFrame, name: str) -> Claim:
    """All answers of one method, whatever had elapsed: of a set that is too small to be told apart."""
    what = f"{name}, {part['run_id'].nunique()} runs, by {WORDS['links']}: all answers together"
    said = part.dropna(subset="said")
    if said.empty:
        return Claim(what, f"none, asked {len(part)} times", None, None)
    off = np.log(said["said"] / said["plateau"])
    held = said["plateau"].between(said["low"], said["high"]).sum()
    text = f"median error {np.expm1(off.abs().median()):.0%} (bias {np.expm1(off.median()):+.0%}), the 80% band holds "
    text += f"{held} of {len(said)}, the first at {said['elapsed'].min():.0%} of the plateau"
    return Claim(what, text, None, None, f"asked {len(part)} times")


def _against_law(part: pd.DataFrame, name: str) -> Claim:
    """Does attention beside the law not lose to the law alone early, and beat it from half of the plateau on? By the
    pinball loss, which counts the middle and both ends of the band."""
    scored = {m: protocol.scores(part[part["method"] == m]).set_index("elapsed") for m in ("gain and law", "law")}
    ratio = (scored["gain and law"]["pinball"] / scored["law"]["pinball"]).dropna()
    text = ", ".join(f"{x:.2f} ({group})" for group, x in ratio.items())
    half = protocol.NAMES.index("50-70%")
    met = all(x < (1.05 if protocol.NAMES.index(str(group)) < half else 1.0) for group, x in ratio.items())
    note = f"the aim, at most 1.05 before 50% and below 1 from there on, is {'met' if met else 'not met'}"
    return Claim(f"{name}: pinball loss of attention gain and law over that of the law alone", text, None, None, note)


def _claim(name: str, method: str, scored: pd.DataFrame) -> Claim:
    rows = scored[scored["answered"] >= FEW].sort_values("elapsed")
    errors = ", ".join(f"{e:.0%} ({g})" for e, g in zip(rows["error"], rows["elapsed"], strict=True))
    bias = f"bias {', '.join(f'{b:+.0%}' for b in rows['bias'])}; " if len(rows) else ""
    cover = ", ".join(f"{c:.0%}" for c in rows["coverage"])
    pinball = ", ".join(f"{x:.3f}" for x in rows["pinball"])
    band = (
        f"the 80% band holds {cover}; pinball loss {pinball}"
        if len(rows) and rows["coverage"].notna().all()
        else "no band"
    )
    answered = ", ".join(f"{row.answered} of {row.forecasts} ({row.elapsed})" for row in scored.itertuples())
    silent = bool((scored["answered"] < scored["forecasts"]).any())
    silence = f"; it answered {answered}" if silent else ""
    shown = method.replace("links", WORDS["links"]).replace("gain", "attention gain")
    return Claim(f"{name}, by {shown}: median error", errors or "too few answers", None, None, f"{bias}{band}{silence}")
