"""Reproduce a figure: run it, write its table, picture and a JSON with ours beside the paper's."""

import dataclasses
import io
import json
import math
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd

from unstuck.files import replace_file, write_text
from unstuck.runner.sweep import run_sweep
from unstuck.store.store import Store

from . import style
from .figure import Profile, Progress, in_one_go, is_trained, load, overall, title
from .finished import Finished
from .lab import plan, settings_of, units
from .provenance import provenance


def reproduce(
    name: str,
    profile: Profile,
    out: Path,
    progress: Progress = lambda done, of: None,
    *,
    store: Path | None = None,
    workers: int = 1,
    run: bool = True,
) -> dict[str, Any]:
    """Run figure `name` and write NAME.csv, NAME.png, NAME.pdf and NAME.json into `out`; returns what the JSON holds.

    A figure of trained runs first does those that are missing in `store` (unless `run` is False), then takes what is
    finished there; with nothing finished, nothing is written and the result is empty.
    """
    figure = load(name)
    start = time.perf_counter()
    trained: dict[str, Any] = {}
    if is_trained(figure):
        raw, trained = _trained_table(figure, profile, progress, store or out / "store", workers if run else 0)
        if raw.empty:
            return {}
    elif hasattr(figure, "overlaid"):
        raw = figure.data(profile, progress, store or out / "store")  # type: ignore[call-arg]
        if raw.empty:
            return {}
    else:
        raw = figure.data(profile, progress)
    # What is drawn and compared is what is stored: the table as it comes back from its CSV.
    text = raw.to_csv(index=False, float_format="%.10g")
    table = pd.read_csv(io.StringIO(text))
    seconds = time.perf_counter() - start
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / f"{name}.csv", text)
    write_picture(figure, table, out / name)
    result = {
        "figure": name,
        "title": title(figure),
        "profile": profile,
        **compared(figure, table),
        "spec": settings_of_figure(figure),
        **trained,
        "seconds": round(seconds, 2),
        "provenance": provenance(),
    }
    write_text(out / f"{name}.json", json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return result


def _trained_table(
    figure: Any, profile: Profile, progress: Progress, store: Path, workers: int
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The figure's table from its runs in `store`, those that are missing done first by `workers` processes."""
    done = Finished(figure, profile, store)
    if workers:
        run_sweep(
            units(done.runs),
            Store(store),
            workers=workers,
            progress=lambda done, of, text: progress(int(done), int(of) + 1),
        )
    many = {"wanted": len(done.runs), "finished": len(done.results)}
    return done.table(figure), {"runs": many, "spec": settings_of(done.runs)}


def reproduce_all(
    names: list[str], profile: Profile, out: Path, workers: int, progress: Progress
) -> list[dict[str, Any]]:
    """Several figures, the longest first, in as many processes as `workers`."""
    cost = {name: sum(job.seconds for job in plan(load(name), profile)) for name in names}
    order = sorted(names, key=lambda name: -cost[name])
    results: dict[str, dict[str, Any]] = {}
    if workers == 1:
        for name in order:
            results[name] = reproduce(name, profile, out)
            progress(len(results), len(names))
    else:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            jobs = {pool.submit(reproduce, name, profile, out): name for name in order}
            for job in as_completed(jobs):
                results[jobs[job]] = job.result()
                progress(len(results), len(names))
    return [results[name] for name in names]


def settings_of_figure(figure: Any) -> dict[str, Any]:
    """The figure's constants, as its file or its row states them: sizes, seeds, formulas."""

    def plain(value: Any) -> bool:
        if isinstance(value, (list, tuple)):
            return all(map(plain, value))
        if isinstance(value, dict):
            return all(isinstance(k, (str, int)) and plain(v) for k, v in value.items())
        return isinstance(value, (str, int, bool)) or (isinstance(value, float) and math.isfinite(value))

    stated = {name: value for name, value in vars(figure).items() if name.isupper() and name not in vars(style)}
    if dataclasses.is_dataclass(figure) and not isinstance(figure, type):
        stated = {name: value for name, value in dataclasses.asdict(figure).items() if name != "title"}
    return {name: value for name, value in stated.items() if name[0] != "_" and plain(value)}


def redraw(name: str, out: Path) -> None:
    """Draw and compare a figure again from its table in `out`; the table and where it comes from stay as they are, and
    so do the settings it was made with: those that the code no longer has go, new ones are added."""
    figure, table = load(name), pd.read_csv(out / f"{name}.csv")
    write_picture(figure, table, out / name)
    result = json.loads((out / f"{name}.json").read_text(encoding="utf-8"))
    result |= {"title": title(figure), **compared(figure, table)}
    if not is_trained(figure) and not in_one_go(figure):  # of the others the settings are those of their runs
        result["spec"] = {name: result["spec"].get(name, value) for name, value in settings_of_figure(figure).items()}
    write_text(out / f"{name}.json", json.dumps(result, indent=1, ensure_ascii=False) + "\n")


def compared(figure: Any, table: pd.DataFrame) -> dict[str, Any]:
    """Ours beside the paper's, as a figure's JSON has it."""
    claims = figure.compare(table)
    return {
        "ours": {c.quantity: c.ours for c in claims},
        "paper": {c.quantity: c.paper for c in claims},
        "verdict": overall(c.verdict for c in claims),
        "claims": [
            {"quantity": c.quantity, "ours": c.ours, "paper": c.paper, "verdict": c.verdict, "note": c.note}
            for c in claims
        ],
    }


def write_picture(figure: Any, table: pd.DataFrame, path: Path) -> None:
    """The figure's PNG and PDF, from its table alone."""
    with style.look():
        picture = figure.draw(table)
        for ending in ("png", "pdf"):
            replace_file(path.with_name(f"{path.name}.{ending}"), partial(picture.savefig, format=ending))
