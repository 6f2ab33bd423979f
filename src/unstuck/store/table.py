"""A run as a row of a table: the names that laws are written in, and what the run came to."""

from typing import Any

from unstuck.config.names import shown_name
from unstuck.store.result import Result


def flatten(spec: dict[str, Any]) -> dict[str, Any]:
    """{"task": {"T": 3}} -> {"T": 3}; a name that two sections share keeps its section in front. Tasks have their names
    for users."""
    out: dict[str, Any] = {}
    for section, values in spec.items():
        if not isinstance(values, dict):
            out[str(section)] = values
            continue
        for key, value in values.items():
            short = str(key) if key != "name" and str(key) not in out else f"{section}.{key}"
            out[section if key == "name" else short] = value
    return out | ({"task": shown_name(out["task"])} if "task" in out else {})


def summary(status: dict[str, Any], result: Result | None) -> dict[str, Any]:
    """The columns about what a run came to, or how far it is."""
    if result is None:
        unknown = dict.fromkeys(("threshold", "plateau_steps"))
        return {"status": status["state"], **unknown, "steps": status.get("step"), "seconds": None}
    return {
        "status": result.status,
        "threshold": result.threshold,
        "plateau_steps": result.plateau_steps,
        "steps": result.steps,
        "seconds": result.seconds,
        **result.crossing_columns,
        "thresholds": result.thresholds,  # the specification may ask for others by now
    }
