"""What `unstuck train` prints: a line that follows a run, and its result."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from unstuck.columns import COPY_ADVANTAGE, EXCESS_LOSS, SPECIALISATION, TEST_LOSS, deciding_column
from unstuck.curve import Curve
from unstuck.forecast import Forecaster
from unstuck.forecast.features import available
from unstuck.laws.stages import early_stop, find_stages
from unstuck.probes.ladder import by_layer
from unstuck.runner.execute import Executed
from unstuck.store.result import Result
from unstuck.store.store import Store
from unstuck.view.console import console as new_console
from unstuck.view.console import duration
from unstuck.view.expected import sentence


@contextmanager
def live() -> Iterator[Callable[[Any], None]]:
    """A bar on stderr that follows a run, and below it the loss and what the best head attends to; no line is wider
    than the terminal."""
    console = new_console(stderr=True)
    if not console.is_terminal:
        yield lambda run: None
        return
    with Live(Text("starting"), console=console, transient=True, refresh_per_second=4) as shown:

        def show(run: Any) -> None:
            shown.update(progress_of(run))

        yield show


def progress_of(run: Any) -> RenderableType:
    """The bar of a run, its speed and time left at that speed, and lines about its last row."""
    of, rate = run.spec.train.max_steps, run.step / run.seconds if run.seconds else 0.0
    left = f", at most {duration((of - run.step) / rate / 3600)} left" if rate else ""
    head = Table.grid(padding=(0, 1), expand=True)
    head.add_column(no_wrap=True)
    head.add_column(ratio=1)
    head.add_column(no_wrap=True)
    head.add_row(f"step {run.step:,} of {of:,}", ProgressBar(of, run.step), f"{rate:.1f} steps/s{left}")
    lines = (Text(line.strip()) for line in _lines(run))
    return Group(head, *lines)


def _lines(run: Any) -> list[str]:
    curve = Curve.from_rows([run.rows[0], run.rows[-1]])
    if curve.rung_names:
        return _ladder(curve).splitlines()
    measure = f"test loss {curve.values(TEST_LOSS)[-1]:.3f}"
    if curve.accuracy is not None:
        measure += f"   test accuracy {curve.accuracy[-1]:.1%}"
    return [measure + _attended(curve), *_expected(run).splitlines()]


def _attended(curve: Curve) -> str:
    """What the best head attends to, in the first and last row of a run, and what a language model gains by it."""
    shown = ""
    if curve.has(COPY_ADVANTAGE):
        shown += f"   copying advantage {curve.values(COPY_ADVANTAGE)[-1]:.2f} nats"
    if "induction" in curve.measures:
        shown += f"   best induction score {curve.best('induction')[-1]:.2f}"
    if "attention" in curve.measures:
        start, now = curve.flat("attention")
        gains = (now / start)[start > 0]
        shown += f"   best head's attention {gains.max():.2f} x its start" if len(gains) else ""
    if "copying" in curve.measures:
        shown += f"   from value to key {curve.best('copying')[-1]:.2f}"
    return shown


def _expected(run: Any) -> str:
    """The forecast, for a run that is still on its plateau."""
    curve = Curve.from_rows(run.rows)
    if len(curve) < 3 or run.tracker.crossings or not run.tracker.thresholds or not available(curve):
        return ""
    return (
        f"{sentence(Forecaster(task=run.spec.task_name).predict(curve), run.seconds / run.step if run.step else None)}"
    )


def _ladder(curve: Curve) -> str:
    """The last row of a curve: excess loss, KL to each rung, specialisation; for each head its attention to the groups
    and the alignment of its values."""
    rungs = curve.rungs[-1].tolist()
    lowest = rungs.index(min(rungs))
    shown = " ".join(f"[{kl:.2f}]" if i == lowest else f"{kl:.2f}" for i, kl in enumerate(rungs))
    mass = curve.groups()[-1]  # (layers, heads, groups)
    layer = len(mass) - 1
    last = f" of layer {layer + 1}" if layer else ""
    index = curve.last.get(SPECIALISATION, math.nan)  # undefined with fewer heads than groups
    apart = f"   specialisation{last} {index:.2f}" if index == index else ""
    lines = [f"excess loss {curve.last[EXCESS_LOSS]:.3f}   KL to the truths of 1, 2, ... groups {shown}{apart}"]
    alignment = None if curve.alignment is None else curve.alignment[-1]
    for head, to_groups in enumerate(mass[layer]):
        on = " ".join(f"{part:.2f}" for part in to_groups)
        says = "" if alignment is None else " ".join(f"{a:.2f}" for a in alignment[head])
        lines.append(f"  head {head + 1}: attention to the groups {on}" + (f", value alignment {says}" if says else ""))
    return "\n".join(lines)


def _climbed(run_id: str, result: Result, out: Path) -> list[str]:
    """The last row of a run on the ladder, its stages, and the result of early stopping."""
    final = Curve.from_rows([result.final])
    if not final.rung_names or result.status == "diverged":
        return []
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
    since = found.cooperation
    turn = f"{heads} never specialised" if since is None else f"{heads} specialise at step {since:.0f}"
    near = f"nearest to rung {stop.rung}" if stop.rung else "near no rung"
    return [
        _ladder(final),
        f"rungs (truths of 1, 2, ... groups)  {'; '.join(rungs)}; {turn}",
        f"best test loss {stop.loss:.4g} at step {stop.step:.0f}, {near}; "
        f"stopping there beats the final model by {stop.gain:.3g}",
    ]


def explain_run(spec: Any, done: Executed, out: Path) -> None:
    """Say what `execute` has done."""
    console, result = new_console(), done.result
    status, threshold = result.status, result.threshold
    column = deciding_column(spec.task.decides)
    measure = column.replace("_", " ")
    if status == "emerged":
        sign = "<=" if spec.task.decides == "loss" else ">="
        head = f"emerged at step {result.plateau_steps:.0f} ({measure} {sign} {threshold:g})"
    elif status == "censored":
        reached = result.final.get(column, float("nan"))
        head = f"not emerged by step {result.steps} ({measure} {reached:.3f}, wanted {threshold:g})"
        head += "; a larger train.max_steps continues it"
    elif status == "diverged":
        head = f"diverged at step {result.steps}; try a smaller optim.lr"
    else:
        head = f"{status} after {result.steps} steps, test loss {result.final.get(TEST_LOSS, math.nan):.3g}"
    console.print(head, style="bold")
    if len(result.crossings) > (1 if status == "emerged" else 0):
        steps = ", ".join(f"{threshold} at step {step:.0f}" for threshold, step in result.crossings.items())
        console.print(f"{measure} {steps}")
    for line in [*(result.circuit or {}).get("says", []), *_climbed(done.run_id, result, out)]:
        console.print(line)
    how = "stored" if done.cached else f"{result.seconds:.0f} s"
    more = f", resumed from step {result.resumed_from}" if result.resumed_from else ""
    console.print(f"run {done.run_id} in {out}, {how}{more}", style="dim")
