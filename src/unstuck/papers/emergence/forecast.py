"""forecast: when the plateau will end, predicted while the loss is flat, on runs that the forecaster was not fitted on.

Not in the paper. Above: the loss of a regression run and the end forecast at each step, with its 80% interval; and a
recall run, by attention and copying, that was not finished when that signal was chosen. Each is the run with the
longest plateau, without layer norm (recall: and without repetition). Below: the error of forecasts, by the fraction of
the plateau that had elapsed, and how often the interval holds the end. Fitted on every second cell of the grid of
(d, T, B); `beyond` is fitted on small sizes only and tested on larger ones. A median is not drawn if less than a third
of the questions were answered, and not reported for fewer than ten answers.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unstuck.columns import TEST_ACCURACY, TEST_LOSS
from unstuck.forecast import evaluation
from unstuck.forecast.evaluation import scores
from unstuck.forecast.fitting import held_out_sets
from unstuck.forecast.runs import MeasuredRun, finished_runs
from unstuck.papers.figure import Claim, Job, Profile, Progress, load
from unstuck.papers.lab import TieredRun
from unstuck.papers.style import BLACK, BLUE, GREEN, ORANGE, PAPER_GREY, PURPLE, legend_outside, panels
from unstuck.store.store import Store

METHODS = {
    "gain and law": (BLUE, "attention and law"),
    "gain": (GREEN, "attention alone"),
    "entropy_drop": (PURPLE, "entropy alone (blind)"),
    "law": (ORANGE, "law alone"),
    "twice elapsed": (PAPER_GREY, "twice the elapsed time"),
}
WORDS = {method: label for method, (_, label) in METHODS.items()}
WORDS |= {"two_step_gain": "attention and copying", evaluation.CORRECTED: "the same, corrected as for regression"}
#: Sets of runs: in words, and the methods that forecast them.
SETS = {
    "between": (
        "other sizes",
        [
            *("gain and law", "gain", "progress law", "entropy_drop", "head_divergence", "law", "loss extrapolated"),
            "twice elapsed",
        ],
    ),
    "other seeds": ("other seeds", ["gain and law", "gain", "entropy_drop", "law"]),
    "beyond": ("larger sizes", ["gain and law", "gain", "entropy_drop", "law"]),
    "cross-sample repetition": ("with p > 0", ["gain", "entropy_drop"]),
    "other layers and heads": ("other layers and heads", ["gain", "entropy_drop"]),
    "other rates and batches": ("other rates and batches", ["gain", "entropy_drop"]),
    "one layer": ("one layer", ["gain", "entropy_drop"]),
    "recall": (
        "recall",
        ["two_step_gain", evaluation.CORRECTED, "gain", "progress law", "entropy_drop", "twice elapsed"],
    ),
    "recall since": ("recall, made since", ["two_step_gain", "gain", "entropy_drop", "twice elapsed"]),
}
#: The rows that someone with a stuck run needs first.
BRIEF = {
    "between": (
        "like ours, other sizes",
        ["gain and law", "gain", "entropy_drop", "loss extrapolated", "twice elapsed"],
    ),
    "beyond": ("larger than those of the law", ["gain and law"]),
    "cross-sample repetition": SETS["cross-sample repetition"],
    "recall": ("recall: learnt in two steps", ["two_step_gain", "gain"]),
}
#: Sets of which one run is drawn: the method of its forecast, and the measure drawn under that.
EXAMPLES = {"between": ("gain and law", TEST_LOSS), "recall since": ("two_step_gain", TEST_ACCURACY)}
FIRST_TEST_SEED = 10  # of runs that cannot emerge: earlier ones were seen when the rule was chosen
#: What was aimed at on held-out runs: errors by fraction elapsed, and how often 80% intervals hold the end.
AIM, COVERAGE_AIM = {"15-30%": 0.2, "30-50%": 0.08}, (0.7, 0.9)
JUDGED = ("gain and law", "gain", "two_step_gain", "entropy_drop", "head_divergence")
QUIET_AIM = 0.9  # of runs that cannot emerge, in which no signal should be present
FEW = 10  # answers below which a median is not shown
LOSS, NEGATIVE, UNFINISHED = "loss", "negative controls", "not emerged"  # values in the table
GRADIENT, NOISE = "gradient norm", "made-up noise"


def plan(profile: Profile) -> list[Job]:
    return [Job("forecasts of all finished runs", 1, 60.0)]


def overlaid(profile: Profile) -> list[TieredRun]:
    """The runs it is about; all of regression and recall that the store has are taken."""
    names = ("fig3-left", "fig3-middle", "fig3-right", "fig13", "fig4-law")
    return [run for name in names for run in load(name).runs(profile)]  # type: ignore[attr-defined]


def data(profile: Profile, progress: Progress, store: Path | None = None) -> pd.DataFrame:
    """Every forecast, with the true end; a measure of the runs that are drawn; forecasts of runs that cannot emerge."""
    every = [] if store is None else list(finished_runs(Store(store)))
    emerged = [run for run in every if run["emerged"]]
    parts = []
    for name, chosen, fitted in held_out_sets(emerged):
        if not chosen:
            continue
        parts.append(evaluation.forecasts(chosen, fitted).assign(set=name))
        if name in EXAMPLES:
            parts.append(_example(chosen, EXAMPLES[name][1]).assign(set=name))
        if name == "between" and store is not None:
            parts.append(evaluation.signs_in_noise(fitted.calibrations).assign(set=NOISE))
            if (file := store.parent / "negative_controls.csv").is_file():
                controls = pd.read_csv(file)
                controls = controls[controls["seed"] >= FIRST_TEST_SEED]
                parts.append(evaluation.false_signs(controls, fitted).assign(set=NEGATIVE))
                parts.append(evaluation.gradient_norms(emerged, controls).assign(set=GRADIENT))
            late = [run for run in every if not run["emerged"]]
            parts.append(evaluation.ended_too_soon(late, fitted.calibrations).assign(set=UNFINISHED))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _example(chosen: list[MeasuredRun], measure: str) -> pd.DataFrame:
    """A measure of the run with the longest plateau, without layer norm, and for recall without repetition."""
    plain = [run for run in chosen if not run["layer_norm"] and (run["name"] != "recall" or run["B"] == 1)]
    run = max(plain or chosen, key=lambda run: run["plateau"])
    said = run.curve.to_frame()[["step", measure]].rename(columns={measure: "said"})
    return said.assign(run_id=run["run_id"], method=LOSS, plateau=run["plateau"])


def draw(table: pd.DataFrame) -> Figure:
    drawn = set(zip(table["set"], table["method"], strict=True))
    examples = [name for name, (method, _) in EXAMPLES.items() if {(name, LOSS), (name, method)} <= drawn]
    rows, columns = (2, 2) if len(examples) == 2 else (1, len(examples) + 2)
    picture, (*left, middle, right) = panels(columns, rows, width=4.8, height=3.6)
    for ax, name in zip(left, examples, strict=True):
        _draw_example(ax, table[table["set"] == name], *EXAMPLES[name])
    scored = scores(table[(table["set"] == "between") & table["method"].isin(METHODS)])
    for method, (colour, label) in METHODS.items():
        rows = scored[(scored["method"] == method) & (scored["answered"] >= scored["forecasts"] / 3)]
        rows = rows[rows["answered"] >= FEW]
        middle.plot(_places(rows), rows["error"], "o-", ms=4, color=colour, label=label)
        if rows["coverage"].notna().any():
            right.plot(_places(rows), rows["coverage"], "o-", ms=4, color=colour)
    wider = scores(table[(table["set"] == "beyond") & (table["method"] == "gain and law")])
    for ax, column in ((middle, "error"), (right, "coverage")):
        label = "attention and law, larger sizes"
        ax.plot(_places(wider), wider[column], "s:", ms=4, color=BLUE, mfc="white", label=label)
        ax.set_xticks(range(len(evaluation.GROUPS)), evaluation.GROUPS)
        ax.set(xlabel="fraction of the plateau elapsed", xlim=(-0.4, len(evaluation.GROUPS) - 0.6))
    middle.set(yscale="log", ylabel="median error of the forecast", ylim=(0.03, 6))
    middle.set_yticks([0.05, 0.1, 0.2, 0.5, 1, 2, 5], ["5%", "10%", "20%", "50%", "100%", "200%", "500%"])
    middle.minorticks_off()
    legend_outside(picture, middle, loc="outside lower center", ncols=3)
    right.axhspan(0.7, 0.9, color="#EEEEEE", zorder=0)
    right.set(ylabel="the 80% interval holds the end", ylim=(0, 1.03))
    return picture


def _places(rows: pd.DataFrame) -> list[int]:
    return [evaluation.GROUPS.index(str(name)) for name in rows["elapsed"]]


def _draw_example(ax: Axes, table: pd.DataFrame, method: str, measure: str) -> None:
    measured = table[table["method"] == LOSS].sort_values("step")
    plateau = measured["plateau"].iloc[0]
    said = table[(table["run_id"] == measured["run_id"].iloc[0]) & (table["method"] == method)].sort_values("step")
    ax.fill_between(said["step"], said["low"], said["high"], color=BLUE, alpha=0.2, lw=0, label="80% interval")
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
    top = 0.5 if measure == TEST_LOSS else 1.0
    other.set(ylim=(0, 4.4 * top), yticks=[0, top / 2, top])
    other.spines["right"].set_visible(True)
    handles = [*ax.get_legend_handles_labels()[0], *other.get_legend_handles_labels()[0]]
    ax.legend(handles, [str(h.get_label()) for h in handles], loc="upper left" if "pairs" in sizes else "upper right")


def compare(table: pd.DataFrame) -> list[Claim]:
    sets = {name: (table[table["set"] == name], methods) for name, (_, methods) in SETS.items()}
    claims = [_error(part, name, m) for name, (part, methods) in sets.items() for m in _given(methods, part)]
    claims += _together(sets["recall since"][0])
    claims += [claim for name, (part, methods) in sets.items() for claim in _aimed(part, name, methods)]
    claims += [_against_law(sets[name][0], name) for name in ("between", "beyond") if len(sets[name][0])]
    claims += _of_unfinished(table[table["set"] == UNFINISHED])
    claims += _of_negative_controls(table[table["set"] == NEGATIVE])
    claims += _of_noise(table[table["set"] == NOISE])
    return [*claims, *_of_gradients(table[table["set"] == GRADIENT])]


def _of_unfinished(table: pd.DataFrame) -> Iterator[Claim]:
    late = table[table["method"].isin(["two_step_gain", "gain", "entropy_drop"])]
    for (task, method), rows in late.groupby(["name", "method"], sort=False):
        what = {"single_location": "regression"}.get(str(task), str(task))
        repeated = sorted(set(rows["p"].dropna()) - {0.0}) if "p" in rows else []
        which = f", p = {', '.join(f'{p:g}' for p in repeated)}" if repeated else ""
        by = WORDS["two_step_gain"] if method == "two_step_gain" else method
        about = f"{what}, runs that had not emerged by their last step, by {by}: intervals that ended before it"
        text = f"{rows['ended'].sum():.0f} of {rows['answered'].sum():.0f}"
        yield Claim(about, text, note=f"{len(rows)} runs{which}, asked {rows['asked'].sum():.0f} times")


def _of_negative_controls(table: pd.DataFrame) -> Iterator[Claim]:
    quiet = table["said"].astype(float) == 0
    for method, rows in table[table["method"] != evaluation.WITH_LAW].groupby("method", sort=False):
        at_end, always = int(quiet[rows.index].sum()), int((quiet[rows.index] & (rows["signs"] == 0)).sum())
        aim = QUIET_AIM * len(rows)
        met = "met" if always >= aim else "met at the end only" if at_end >= aim else "not met"
        note = f"at their end; at no time in {always} of {len(rows)}, with signs in {rows['signs'].sum():.0f} of the "
        note += f"{rows['asked'].sum():.0f} answers before the end; the aim, nine, is {met}"
        yield Claim(f"runs that cannot emerge: no sign in {method}", f"{at_end} of {len(rows)}", note=note)
    both = table[table["method"] == evaluation.WITH_LAW]
    if len(both):
        note = "at their end, where the law is refuted and left out; before that its prediction is given: "
        note += f"{both['signs'].sum():.0f} of {both['asked'].sum():.0f} answers"
        about = "runs that cannot emerge: no end predicted by attention gain and law"
        yield Claim(about, f"{quiet[both.index].sum()} of {len(both)}", note=note)


def _of_noise(table: pd.DataFrame) -> Iterator[Claim]:
    for kind, rows in table.groupby("kind", sort=False):
        text = f"a sign in {rows['signs'].sum():.0f} of {rows['asked'].sum():.0f} answers, "
        text += f"at some time in {(rows['signs'] > 0).sum()} of {len(rows)} curves"
        about = f"made-up curves of eight heads that only drift ({kind}), by attention gain"
        yield Claim(about, text, note="the runs that cannot emerge drift by some 2%")


def _aimed(part: pd.DataFrame, name: str, methods: list[str]) -> Iterator[Claim]:
    """Did forecasts of a set of runs reach the aim?"""
    said = []
    for method in (m for m in _given(methods, part) if m in JUDGED):
        scored = scores(part[part["method"] == method]).set_index("elapsed")
        scored = scored[scored["answered"] >= FEW]
        near = [group for group, most in AIM.items() if scored["error"].get(group, np.inf) <= most]
        held = scored["coverage"].round(2).between(*COVERAGE_AIM)  # as it is shown
        outside = ", ".join(f"{x:.0%} at {group}" for group, x in scored.loc[~held, "coverage"].items())
        words = "errors met" if len(near) == len(AIM) else f"errors met at {near[0]} only" if near else "errors not met"
        words += ", intervals met" if held.all() and len(held) else f", intervals not ({outside or 'too few answers'})"
        said.append(f"{WORDS.get(method, method)}: {words}")
    if said:
        about = f"{name}: the aim, errors of at most 20% at 15-30% and 8% at 30-50%, intervals that hold 70 to 90%"
        yield Claim(about, "; ".join(said))


def _of_gradients(part: pd.DataFrame) -> list[Claim]:
    shown = {
        which: f"{x.median():.2f} ({x.min():.2f} to {x.max():.2f}, {len(x)} runs)"
        for which, x in part.groupby("method")["said"]
    }
    if len(shown) < 2:
        return []
    text = f"{shown['emerge']} in runs that emerge, {shown['cannot']} in runs that learn but cannot"
    size = ", ".join(f"{k} = {v}" for k, v in evaluation.NEGATIVE_CONTROL.items())
    about = f"{size}: norm of the gradient at 60 to 90% of the plateau over that at 20 to 50%, or at the same steps"
    return [Claim(about, text, note="medians and extremes")]


def overview(table: pd.DataFrame) -> pd.DataFrame:
    """For a page: a row for each set of runs and method, median errors with the coverage of the 80% interval."""
    return _rows(table, SETS)


def brief(table: pd.DataFrame) -> pd.DataFrame:
    """The same, for the rows that someone with a stuck run needs first."""
    return _rows(table, BRIEF)


def _rows(table: pd.DataFrame, sets: dict[str, tuple[str, list[str]]]) -> pd.DataFrame:
    rows = []
    for name, (words, methods) in sets.items():
        part = table[table["set"] == name]
        found: list[dict[str, str]] = []
        for method in _given(methods, part):
            scored = scores(part[part["method"] == method]).set_index("elapsed")
            row = {"runs": "" if found else f"{words} ({part['run_id'].nunique()})"}
            row["forecast by"] = WORDS.get(method, method)
            found.append(
                row | {group: _cell(scored.loc[group]) for group in evaluation.GROUPS if group in scored.index}
            )
        if found and any(found[0].get(group, "–") != "–" for group in evaluation.GROUPS):
            rows += found  # unless even the best method has too few answers
    return pd.DataFrame(rows).fillna("–")


def _given(methods: list[str], part: pd.DataFrame) -> list[str]:
    """Those by which runs of the table were forecast."""
    return [method for method in methods if (part["method"] == method).any()]


def _cell(score: pd.Series) -> str:
    if score["answered"] < FEW:
        return "–"
    coverage = f" ({score['coverage']:.0%})" if pd.notna(score["coverage"]) else ""
    silent = "*" if score["answered"] < score["forecasts"] / 2 else ""
    return f"{score['error']:.0%}{coverage}{silent}"


def _together(since: pd.DataFrame) -> Iterator[Claim]:
    """All answers of one method, whatever had elapsed: for sets that are too small to be grouped by that."""
    since = since[since["method"] == "two_step_gain"]
    for norm, which in ((False, ""), (True, " with layer norm")):
        part = since[since["layer_norm"].astype(str) == str(norm)] if "layer_norm" in since else since[:0]
        if not len(part):
            continue
        runs = f"recall since{which}, {part['run_id'].nunique()} runs, by {WORDS['two_step_gain']}"
        text = _summary(part.dropna(subset="said"))
        yield Claim(f"{runs}: all answers together", text, note=f"asked {len(part)} times")


def _summary(said: pd.DataFrame) -> str:
    if said.empty:
        return "none"
    off = np.log(said["said"] / said["plateau"])
    held = said["plateau"].between(said["low"], said["high"]).sum()
    error = f"median error {np.expm1(off.abs().median()):.0%} (bias {np.expm1(off.median()):+.0%})"
    first = f"the first at {said['elapsed'].min():.0%} of the plateau"
    return f"{error}, the 80% interval holds {held} of {len(said)}, {first}"


def _against_law(part: pd.DataFrame, name: str) -> Claim:
    """Are attention and law together no worse than the law alone early, and better from half of the plateau on? By the
    pinball loss, which counts the median and both ends of the interval."""
    scored = {m: scores(part[part["method"] == m]).set_index("elapsed") for m in ("gain and law", "law")}
    ratio = (scored["gain and law"]["pinball"] / scored["law"]["pinball"]).dropna()
    text = ", ".join(f"{x:.2f} ({group})" for group, x in ratio.items())
    half = evaluation.GROUPS.index("50-70%")
    met = all(x < (1.05 if evaluation.GROUPS.index(str(group)) < half else 1.0) for group, x in ratio.items())
    note = f"the aim, at most 1.05 before 50% and below 1 from there on, is {'met' if met else 'not met'}"
    return Claim(f"{name}: pinball loss of attention gain and law over that of the law alone", text, note=note)


def _error(part: pd.DataFrame, name: str, method: str) -> Claim:
    scored = scores(part[part["method"] == method])
    rows = scored[scored["answered"] >= FEW].sort_values("elapsed")
    errors = ", ".join(f"{e:.0%} ({g})" for e, g in zip(rows["error"], rows["elapsed"], strict=True))
    bias = f"bias {', '.join(f'{b:+.0%}' for b in rows['bias'])}; " if len(rows) else ""
    interval = "no interval"
    if len(rows) and rows["coverage"].notna().all():
        interval = f"the 80% interval holds {', '.join(f'{c:.0%}' for c in rows['coverage'])}; "
        interval += f"pinball loss {', '.join(f'{x:.3f}' for x in rows['pinball'])}"
    silence = ""
    if (scored["answered"] < scored["forecasts"]).any():
        answers = (f"{row.answered} of {row.forecasts} ({row.elapsed})" for row in scored.itertuples())
        silence = f"; it answered {', '.join(answers)}"
    shown = method.replace("two_step_gain", WORDS["two_step_gain"]).replace("gain", "attention gain")
    about = f"{name}, {part['run_id'].nunique()} runs, by {shown}: median error"
    return Claim(about, errors or "too few answers", note=f"{bias}{interval}{silence}")
