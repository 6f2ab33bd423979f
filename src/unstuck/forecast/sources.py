"""Read a training curve: a run directory of ours or of `Watch`, CSV, files of TensorBoard, W&B or Hugging Face."""

from pathlib import Path
from typing import TYPE_CHECKING

from unstuck.columns import Source
from unstuck.curve import Curve
from unstuck.errors import BadInput
from unstuck.files import is_own_file

from ._old import old_names
from .events import Event
from .loss import diverged
from .notes import Outcome
from .outcome import Forecast
from .plain_files import plain_columns

if TYPE_CHECKING:
    from unstuck.store.store import RunDirectory

WATCHED = "watched"  # the task of a directory that a `Watch` wrote
CURVE = "curve.parquet"


def read_curve(source: str | Path) -> Curve:
    """The curve of a run directory or a file, with whatever was recorded, in the order of steps."""
    path = Path(source)
    if not path.exists():
        if (archived := _run(path).curve()) is not None:
            return archived.sorted()
        raise BadInput("SOURCE", str(source), "a run directory or a file that exists, such as runs/ID")
    table = path if path.is_file() else path / CURVE
    plain = plain_columns(table) if table is path or is_own_file(table) else None
    if plain is not None:
        return Curve(plain)
    from .curve_files import logged_table  # with pandas, which takes longer than most forecasts

    return Curve.from_frame(logged_table(path), _whose(path))


def finished(source: Path, curve: Curve) -> Forecast | None:
    """The outcome of a run that has ended, archived or not, from its own record; None where there is still something
    to predict."""
    row = None if source.is_file() else _run(source).row()
    if row is None or row["status"] not in (Outcome.EMERGED, Outcome.DIVERGED):
        return None
    outcome = Outcome(row["status"])
    last = float(curve.steps[-1])
    step = (row["plateau_steps"] or last) if outcome is Outcome.EMERGED else None
    return Forecast(outcome, last, curve.loss_name or "", Event.TASK, step)


def _whose(path: Path) -> Source:
    """A directory with a specification is a run of ours, or of a `Watch`; anything else is somebody else's."""
    spec = _run(path).spec() if path.is_dir() else None
    if spec is None or not is_own_file(path / CURVE):
        return "foreign"
    return "watch" if spec["task"].get("name") == WATCHED else "run"


def _run(path: Path) -> "RunDirectory":
    from unstuck.store.store import RunDirectory  # with pydantic, which a file of numbers does not need

    return RunDirectory(path)


__getattr__ = old_names(__name__, {"astray": diverged})
