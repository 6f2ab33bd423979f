"""One HTML file about a directory of runs, of figures, or of both. It opens from disk and needs no network.

Runs are shown by plotly, whose script is part of the file. What run files say reaches the page as JSON and is shown as
text, whatever it contains.
"""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from unstuck.errors import BadInput
from unstuck.files import write_text
from unstuck.papers.provenance import provenance
from unstuck.store.scan import holds_run
from unstuck.view.plain_table import shown
from unstuck.view.report.figures import figures_of
from unstuck.view.report.runs import MEASURES, run_of, runs_of

NEW = ("progress-law", "exact-flow")


def write_report(directory: Path, target: Path, formula: str | None = None) -> Path:
    """Write the report of `directory`: a run store, one run, what `unstuck reproduce` wrote, or figures and runs (in
    DIR/store)."""
    if not directory.is_dir():
        raise BadInput(
            "directory",
            str(directory),
            "a directory that exists; `unstuck train regression --out DIR` or `unstuck reproduce theory --out DIR` "
            "makes one",
        )
    if holds_run(directory):
        figures, runs = [], run_of(directory.resolve(), formula)
    else:
        figures, store = figures_of(directory), directory / "store"
        runs = runs_of(store if store.is_dir() else directory, formula)
    if not figures and runs is None:
        raise BadInput(
            "directory",
            str(directory),
            "one that holds runs or figures; `unstuck train regression --out DIR` or `unstuck reproduce all --out DIR` "
            "makes them",
        )
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("unstuck.view.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["number"] = shown
    counts = {v: sum(c["verdict"] == v for f in figures for c in f["claims"]) for v in ("agrees", "differs")}
    html = environment.get_template("report.html").render(
        directory=directory.resolve().name,
        figures=figures,
        counts=counts,
        new=[f for f in figures if f["figure"] in NEW],
        runs=runs,
        data=None if runs is None else _json({**asdict(runs), "measures": MEASURES}),
        plotly=None if runs is None else _plotly(),
        script=None if runs is None else Markup(_script()),
        provenance=provenance(),
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    write_text(target, html)
    return target


def _json(data: dict[str, Any]) -> Markup:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _plotly() -> Markup:
    return Markup(get_plotlyjs())


def _script() -> str:
    """The modules that the report shares with the dashboard, and its own, as one: a page on disk cannot import."""
    shared = sorted((Path(__file__).parents[1] / "scripts").glob("*.js"))
    parts = [path.read_text(encoding="utf-8") for path in [*shared, Path(__file__).parent / "templates" / "report.js"]]
    return re.sub(r"^(import .*;$|export )", "", "\n".join(parts), flags=re.MULTILINE)
