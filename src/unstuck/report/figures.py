"""One HTML file with every figure of a directory, ours beside the paper's. Opens from disk, needs no network."""

import base64
import json
import warnings
from pathlib import Path
from typing import Any

import jinja2

from unstuck.errors import BadInput
from unstuck.papers.catalogue import entries

_KEYS: dict[str, type] = {
    "figure": str,
    "title": str,
    "profile": str,
    "verdict": str,
    "claims": list,
    "provenance": dict,
}
_CLAIM, _PROVENANCE = (
    {"quantity", "ours", "paper", "verdict", "note"},
    {"unstuck", "commit", "date", "machine", "python"},
)


def write_report(directory: Path, target: Path) -> Path:
    """Write the report of the figures in `directory`, as `unstuck reproduce` left them there."""
    figures = _figures(directory)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("unstuck.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["number"] = _number
    counts = {v: sum(c["verdict"] == v for f in figures for c in f["claims"]) for v in ("agrees", "differs")}
    html = environment.get_template("figures.html").render(
        figures=figures, counts=counts, new=[f for f in figures if f["figure"] in ("progress-law", "exact-flow")]
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(html, encoding="utf-8")
    return target


def _figures(directory: Path) -> list[dict[str, Any]]:
    if not directory.is_dir():
        raise BadInput(
            "directory", str(directory), "a directory that exists; `unstuck reproduce all --out DIR` makes one"
        )
    found = []
    for path in sorted(directory.glob("*.json")):
        picture = path.with_suffix(".png")
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
            wrong = _wrong(result) or ("" if picture.is_file() else f"{picture.name} is missing")
        except (ValueError, OSError) as e:
            wrong = f"{type(e).__name__}: {e}"
        if wrong:
            warnings.warn(f"{path} is passed over: {wrong}", UserWarning, stacklevel=2)
            continue
        image = base64.b64encode(picture.read_bytes()).decode()
        found.append({**result, "image": f"data:image/png;base64,{image}"})
    if not found:
        raise BadInput(
            "directory", str(directory), "one that holds figures; `unstuck reproduce all --out DIR` makes them"
        )
    order = {name: i for i, name in enumerate(entries())}
    return sorted(found, key=lambda f: order.get(f["figure"], len(order)))


def _wrong(result: Any) -> str:
    """What keeps a JSON file from being a figure's result; nothing if it is one."""
    if not isinstance(result, dict):
        return "it is not a figure's result"
    for key, kind in _KEYS.items():
        if not isinstance(result.get(key), kind):
            return f"it has no {key!r}"
    if not all(isinstance(c, dict) and c.keys() >= _CLAIM for c in result["claims"]):
        return "a claim of it is incomplete"
    if not result["provenance"].keys() >= _PROVENANCE or not isinstance(result["provenance"]["machine"], dict):
        return "its provenance is incomplete"
    return ""


def _number(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
