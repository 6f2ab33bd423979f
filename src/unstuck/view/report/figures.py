"""The figures of a directory for a report, ours beside the paper's."""

import base64
import io
import json
import warnings
from pathlib import Path
from typing import Any

from PIL import Image

from unstuck.files import is_own_file
from unstuck.papers.catalogue import entries
from unstuck.store.reading import read_text

WIDTH, COLOURS = 1300, 96  # of a picture in a report
PIXELS = 40_000_000  # of a picture that is opened: 120 MB, which a file of some kB may stand for
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


def figures_of(directory: Path) -> list[dict[str, Any]]:
    """The results of `unstuck reproduce` in a directory, in the order of the catalogue."""
    found = []
    for path in sorted(directory.glob("*.json")):
        picture = path.with_suffix(".png")
        try:
            result: Any = json.loads(read_text(path)) if is_own_file(path) else None
            wrong = _wrong(result) or ("" if is_own_file(picture) else f"{picture.name} is missing")
        except (ValueError, OSError, RecursionError) as e:
            wrong = f"{type(e).__name__}: {e}"
        if wrong:
            warnings.warn(f"{path} is skipped: {wrong}", UserWarning, stacklevel=2)
            continue
        try:
            found.append({**result, "image": _image(picture)})
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as e:
            warnings.warn(f"{picture} is skipped: {e}", UserWarning, stacklevel=2)
    order = {name: i for i, name in enumerate(entries())}
    return sorted(found, key=lambda f: order.get(f["figure"], len(order)))


def _image(picture: Path) -> str:
    """The picture as a data URL, no wider than a page."""
    with Image.open(picture, formats=["PNG"]) as opened:
        if opened.width * opened.height > PIXELS:
            raise ValueError(f"it has {opened.width} x {opened.height} pixels, and at most {PIXELS:,} are shown")
        image: Image.Image = opened.convert("RGB")
        if image.width > WIDTH:
            image = image.resize((WIDTH, round(image.height * WIDTH / image.width)), Image.Resampling.LANCZOS)
        out = io.BytesIO()
        image.quantize(COLOURS).save(out, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"


def _wrong(result: Any) -> str:
    """Why a JSON file is not a figure's result; empty if it is."""
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
