"""What the command says to a person: the same answers as its JSON, in words and tables."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from unstuck.curve import Curve
    from unstuck.laws import PowerLaw
    from unstuck.runner.execute import Executed
    from unstuck.store.result import Result
    from unstuck.theory import Flow

_COLOURS = {"agrees": "green", "differs": "red", "new": "cyan", "beside": "cyan"}


def _console() -> Console:
    return Console(highlight=False, soft_wrap=True)


def _table(*columns: str, whole: int = 1) -> Table:
    """A table whose first columns, as many as are to stay `whole`, are never folded: names and ids are typed again."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for place, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=place < whole)
    return table


def explain_prediction(setting: "Flow", answer: dict[str, Any], *, never: bool, finish: float) -> None:
    out = _console()
    s = setting
    out.print(
        f"[bold]T = {s.T}, d = {s.d}, B = {s.B}, p = {s.p!r}[/bold], {s.kind} flow, threshold {answer['threshold']:g}\n"
    )
    if answer["plateau"] is None:
        what = "The plateau never ends" if never else "No answer"
        out.print(f"[bold]{what}[/bold]: {answer['reason']}.\n")
    else:
        number = f"{answer['plateau']:,.6g}"
        out.print(f"[bold]Plateau: {number}[/bold]   time (steps × learning rate) for the test loss to fall")
        out.print(f"         {'':{len(number)}}   from 0.5 to {answer['threshold']:g}, by integrating the flow\n")
    rate = "√B" if s.kind == "exact" else "B"
    factor = " √(1 + p²(d-1))" if s.p > 0 else ""
    rows = [
        ("rate μ", answer["rate"], f"{rate}{factor} / (√d T), how fast the start is left"),
        ("√(π/2) / μ", answer["blow_up_time"], "blow-up time: the plateau for large T"),
        ("closed form", answer["estimate"], "the same with drag, finish and catching up"),
        (
            "escape time",
            answer["escape_time"],
            "arcsinh(ε d T² μ / B²) / 2μ, linearised (Eq. 6): not the plateau's length",
        ),
    ]
    table = _table("", "", "")
    table.show_header = False
    for name, value, meaning in rows:
        table.add_row(name, "–" if value is None else f"{value:,.6g}", f"[dim]{meaning}[/dim]")
    out.print(table)
    out.print(
        "\n[dim]Assumes gradient flow on the expected loss, uniform attention and W = 0 at the start, unit-norm columns"
        " of W*; the closed forms also T ≫ B. For SGD or gradient descent, divide by the learning rate.[/dim]"
    )
    if s.B > 1:
        other = "reduced" if s.kind == "exact" else "exact"
        out.print(f"[dim]With B > 1 the two flows differ (B⁻¹ or B⁻¹ᐟ²): compare --flow {other}.[/dim]")
    if s.B > 0.1 * s.T or finish > 0.1 * answer["blow_up_time"]:
        out.print("[dim]T/B is not large beside √d here, so trust the integrated plateau, not the closed forms.[/dim]")


def explain_law(law: "PowerLaw", predictions: list[dict[str, Any]], ranking: Any) -> None:
    out = _console()
    out.print(f"[bold]{escape(str(law))}[/bold]\n")
    percent = f"{law.level:.0%}"
    table = _table("term", "estimate", f"{percent} interval")
    for name, row in law.summary().iterrows():
        what = "constant" if name == "constant" else f"exponent of {name}"
        table.add_row(escape(what), f"{row['estimate']:.4g}", f"{row['low']:.4g} to {row['high']:.4g}")
    out.print(table)
    worst = math.exp(abs(law.residuals).max())
    late = f"{law.censored} censored" + (f", {law.used} of them used as such" if law.censored else "")
    out.print(f"\nR² = {law.r2:.4f} over {law.n} emerged runs, {late}; largest residual a factor of {worst:.2f}")
    different, numbers = len(set(law.data.size.tolist())), 1 + len(law.exponents)
    if different - numbers < 3 and (law.used or different > numbers):
        out.print(
            f"[dim]{different} different sizes for {numbers} numbers: the intervals are wide, and further sizes narrow "
            "them, not further seeds.[/dim]"
        )
    for found in predictions:
        answer = ("plateau", "low", "high", "beyond", "level")
        sizes = ", ".join(f"{k} = {v:g}" for k, v in found.items() if k not in answer)
        out.print(
            f"[bold]{escape(sizes)}: {found['plateau']:,.0f} steps[/bold], {100 * found['level']:g}% interval "
            f"{found['low']:,.0f} to {found['high']:,.0f}"
        )
    if ranking is not None:
        out.print()
        table = _table("law", "AIC, above the best", "log likelihood of a run of an unseen size", "R²")
        for row in ranking.itertuples(index=False):
            table.add_row(escape(row[0]), f"{row[1]:.1f}", f"{row[2]:.3f}", f"{row[3]:.4f}")
        out.print(table)


def explain_figures(results: list[dict[str, Any]], out: Path) -> None:
    console = _console()
    table = _table("figure", "quantity", "paper", "ours", "verdict")
    for result in results:
        for i, claim in enumerate(result["claims"]):
            colour = _COLOURS[claim["verdict"]]
            table.add_row(
                result["figure"] if i == 0 else "",
                escape(claim["quantity"]),
                escape(_show(claim["paper"])),
                escape(_show(claim["ours"])),
                f"[{colour}]{claim['verdict']}[/{colour}]",
            )
    console.print(table)
    names = results[0]["figure"] if len(results) == 1 else "{" + ",".join(r["figure"] for r in results) + "}"
    console.print(f"\nwritten: {out}/{names}.{{png,pdf,csv,json}}")


def _show(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def explain_plan(rows: list[dict[str, Any]], hours: float) -> None:
    table = _table("figure", "work", "steps", "time on one core")
    for row in rows:
        steps = f"{row['steps']:,}" if row["steps"] else "–"
        table.add_row(
            row["figure"],
            f"{row['count']} × {row['what']}",
            steps,
            _duration(row["hours"]),
        )
    console = _console()
    console.print(table)
    shared = ", where runs that figures share count in each" if len({row["figure"] for row in rows}) > 1 else ""
    console.print(f"\nin all about {_duration(hours)}{shared}; nothing was run.")


def _duration(hours: float) -> str:
    seconds = hours * 3600
    if seconds < 1:
        return "under 1 s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if hours < 2 else f"{hours:.1f} h"


def explain_catalogue(rows: list[dict[str, Any]]) -> None:
    table = _table("figure", "setting", "state", "verdict", "cpu profile", "shows")
    for row in rows:
        cost = "[dim]not yet[/dim]" if row["hours"] is None else _duration(row["hours"]["cpu"])
        table.add_row(
            row["figure"], row["setting"], row["state"], escape(row["verdict"] or "–"), cost, escape(row["shows"])
        )
    console = _console()
    console.print(table)
    published = [row for row in rows if row["paper"] is not None]
    done = sum(row["state"] == "complete" for row in published)
    counts = Counter(row["setting"] for row in published)
    settings = ", ".join(f"{n} {setting}" for setting, n in counts.items())
    console.print(
        f"\n{len(published)} figures and panels of the papers ({settings}), {done} complete; "
        f"{len(rows) - len(published)} of our own. What other profiles take: unstuck figures --cost. "
        "Draw one: unstuck reproduce fig1c"
    )


def explain_costs(rows: list[dict[str, Any]], profile: str, assumed: str) -> None:
    table = _table("figure", "runs", "steps", "operations", "on a core", "on a GPU")
    for row in rows:
        trained = row["flops"] > 0
        table.add_row(
            row["figure"],
            f"{row['runs']:,}",
            f"{row['steps']:,}" if row["steps"] else "–",
            f"{row['flops']:.1e}" if trained else "–",
            _duration(row["cpu_hours"]),
            _duration(row["gpu_hours"]) if trained else "–",
        )
    console = _console()
    console.print(table)
    console.print(f"\nProfile {profile}. {assumed}")


@contextmanager
def live(spec: Any) -> Iterator[Callable[[Any], None]]:
    """A line on stderr that follows a run: step, loss, the best head's attention to the relevant tokens."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda run: None
        return
    from rich.status import Status

    with Status("starting", console=console) as status:

        def show(run: Any) -> None:
            status.update(escape(_line(run)))

        yield show


def _line(run: Any) -> str:
    from unstuck.curve import TEST_LOSS, Curve  # pandas takes a second that `predict` need not wait

    curve = Curve.from_rows([run.rows[0], run.rows[-1]])
    where = f"step {run.step:,} of at most {run.spec.train.max_steps:,}"
    if curve.rung_names:
        return f"{where}   {_ladder(curve)}"
    measure = f"   test loss {curve.values(TEST_LOSS)[-1]:.3f}"
    if curve.accuracy is not None:
        measure += f"   test accuracy {curve.accuracy[-1]:.1%}"
    attention = ""
    if "attention" in curve.measures:
        start, now = curve.flat("attention")
        gains = (now / start)[start > 0]
        attention = f"   attention to the relevant token {gains.max():.2f} x its start" if len(gains) else ""
    if "copying" in curve.measures:
        attention += f"   from value to key {curve.best('copying')[-1]:.2f}"
    rate = run.step / run.seconds if run.seconds else 0.0
    return f"{where}{measure}{attention}   {rate:.1f} steps/s{_expected(run)}"


def _expected(run: Any) -> str:
    """What the forecaster says, in a second line, of a run that is still on its plateau."""
    from unstuck.curve import Curve
    from unstuck.forecast import Forecaster
    from unstuck.forecast.signals import available

    curve = Curve.from_rows(run.rows)
    if len(curve) < 3 or run.tracker.crossings or not run.tracker.thresholds or not available(curve):
        return ""
    return f"\n{Forecaster().predict(curve)}"


def _ladder(curve: "Curve") -> str:
    """Excess loss, KL to each rung, specialisation; each head's attention to the groups, and what it says of them; of
    the last row of a curve."""
    rungs = curve.rungs[-1].tolist()
    lowest = rungs.index(min(rungs))
    shown = " ".join(f"[{kl:.2f}]" if i == lowest else f"{kl:.2f}" for i, kl in enumerate(rungs))
    mass = curve.groups()[-1]  # (layers, heads, groups)
    layer = len(mass) - 1
    last = f" of layer {layer + 1}" if layer else ""
    index = curve.last.get("specialisation", math.nan)  # there is none with fewer heads than groups
    apart = f"   specialisation{last} {index:.2f}" if index == index else ""
    lines = [f"excess loss {curve.last['excess_loss']:.3f}   KL to the truths of 1, 2, ... groups {shown}{apart}"]
    alignment = None if curve.alignment is None else curve.alignment[-1]
    for head, to_groups in enumerate(mass[layer]):
        on = " ".join(f"{part:.2f}" for part in to_groups)
        says = "" if alignment is None else " ".join(f"{a:.2f}" for a in alignment[head])
        lines.append(f"  head {head + 1}: attention to the groups {on}" + (f", value alignment {says}" if says else ""))
    return "\n".join(lines)


def _climbed(run_id: str, result: "Result", out: Path) -> list[str]:
    """The end of a run on the ladder, its stages, and what early stopping would have picked."""
    from unstuck.curve import Curve

    final = Curve.from_rows([result.final])
    if not final.rung_names or result.status == "diverged":
        return []
    from unstuck.laws.stages import early_stop, find_stages
    from unstuck.probes.ladder import by_layer
    from unstuck.store.store import Store

    curve = Store(out).run(run_id).curve()
    if curve is None or len(curve) < 2:
        return []
    layers = by_layer(curve)
    most = max(layers, key=lambda layer: layers[layer][-1])
    found, stop = find_stages(curve, layers[most]), early_stop(curve)
    rungs = []
    for rung in found.rungs:
        past = "passed" if rung.number < found.highest and rung.approached else "not reached, nearest"
        when = f"on it from step {rung.reached:.0f}" if rung.reached is not None else f"{past} at {rung.nearest:.0f}"
        rungs.append(f"{rung.number}: {when}")
    heads = f"heads of layer {most + 1}" if len(layers) > 1 else "heads"
    turn = f"{heads} never parted" if found.cooperation is None else f"{heads} part at step {found.cooperation:.0f}"
    near = f"nearest to rung {stop.rung}" if stop.rung else "near no rung"
    return [
        _ladder(final),
        f"rungs (truths of 1, 2, ... groups)  {'; '.join(rungs)}; {turn}",
        f"best test loss {stop.loss:.4g} at step {stop.step:.0f}, {near}; "
        f"stopping there beats the final model by {stop.gain:.3g}",
    ]


def explain_run(spec: Any, done: "Executed", out: Path) -> None:
    """Say what `execute` has done."""
    from unstuck.curve import TEST_LOSS

    console, result = _console(), done.result
    status, threshold = result.status, result.threshold
    measure = spec.task.decides
    if status == "emerged":
        sign = "<=" if measure == "loss" else ">="
        head = f"emerged at step {result.plateau_steps:.0f} (test {measure} {sign} {threshold:g})"
    elif status == "censored":
        reached = result.final.get(f"test_{measure}", float("nan"))
        head = f"not emerged by step {result.steps} (test {measure} {reached:.3f}, wanted {threshold:g})"
        head += "; a larger train.max_steps goes on from here"
    elif status == "diverged":
        head = f"diverged at step {result.steps}; try a smaller optim.lr"
    else:
        head = f"{status} after {result.steps} steps, test loss {result.final.get(TEST_LOSS, math.nan):.3g}"
    console.print(f"[bold]{head}[/bold]")
    if len(result.crossings) > (1 if status == "emerged" else 0):
        steps = ", ".join(f"{threshold} at step {step:.0f}" for threshold, step in result.crossings.items())
        console.print(f"test {measure} {steps}")
    for line in (result.circuit or {}).get("says", []):
        console.print(escape(line))
    for line in _climbed(done.run_id, result, out):
        console.print(escape(line))
    how = "stored" if done.cached else f"{result.seconds:.0f} s"
    more = f", resumed from step {result.resumed_from}" if result.resumed_from else ""
    console.print(f"[dim]run {done.run_id} in {out}, {how}{more}[/dim]")


def explain_runs(table: Any, directory: Path) -> None:
    if table.empty:
        _console().print(f"no runs in {directory}; start one: unstuck train regression --out {directory}")
        return
    from unstuck.view.columns import telling_columns

    columns = telling_columns(table)
    view = _table(*columns, whole=len(columns))
    for row in table[columns].itertuples(index=False):
        view.add_row(*(escape(_cell(v)) for v in row))
    wide = Console(width=10_000).measure(view).maximum
    console = Console(highlight=False, soft_wrap=True, width=max(wide, _console().width))  # rather cut than folded
    console.print(view)
    same = table["status"].value_counts()
    _console().print("\n" + ", ".join(f"{n} {status}" for status, n in same.items()))


def _cell(value: Any) -> str:
    if value is None or value != value:
        return "–"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def explain_run_costs(rows: list[dict[str, Any]], hours: float) -> None:
    table = _table("run", "task", "model", "seed", "steps", "time on one core")
    for row in rows:
        spec = row["spec"]
        task = " ".join(f"{k}={v}" for k, v in spec["task"].items() if k in ("T", "d", "B", "p", "tokens", "pairs"))
        model = " ".join(f"{k}={v}" for k, v in spec["model"].items() if k in ("layers", "heads"))
        table.add_row(row["run_id"], task, model, str(spec["seed"]), f"{row['steps']:,}", _duration(row["hours"]))
    console = _console()
    console.print(table)
    runs = "1 run" if len(rows) == 1 else f"{len(rows)} runs"
    bound = all(row["steps"] >= row["spec"]["train"]["max_steps"] for row in rows)  # of other tasks no law is known
    total = f"{'at most' if bound else 'about'} {_duration(hours)}"
    console.print(f"\n{runs}, in all {total} on one core; nothing was run.")
