"""What has been run of a figure, from the result that `unstuck reproduce` has written."""

import json
from pathlib import Path
from typing import Any

from .catalogue import is_available
from .cost_table import cost_of


def stored_state(name: str, results: Path) -> dict[str, str | None]:
    """`state` is complete, `12 of 60 runs`, not run, or made with an earlier budget or with other settings than the
    figure has now; `run` the profile and date of the stored result; `verdict` what came of it."""
    try:
        result = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
        run = f"{result['profile']}, {result['provenance']['date']}"
        runs = dict(result.get("runs", {}))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {"state": "not run", "run": None, "verdict": None}
    if result["profile"] == "quick":
        return {"state": "quick run only", "run": run, "verdict": None}
    return {"state": _how_far(name, result, runs), "run": run, "verdict": result.get("verdict")}


def _how_far(name: str, result: dict[str, Any], runs: dict[str, int]) -> str:
    cost = cost_of(name, result["profile"]) if is_available(name) else None
    if cost is None or not cost.is_trained:
        return "complete"
    done = runs.get("finished")
    if done is None:  # trained in one go, by the figure itself
        stated = result.get("spec", {}).get("STEPS", {}).get(result["profile"], {})
        return "complete" if sum(stated.values()) == cost.steps else "with an earlier budget"
    if done < cost.runs:
        return f"{done} of {cost.runs} runs"
    planned = runs.get("wanted", cost.runs)  # when it was drawn
    return "complete" if planned <= cost.runs else "with other settings"
