"""One run's files: spec.yaml, status.json, curve.parquet, maps.parquet and checkpoint/ in a directory named by its id.

Every file is replaced whole, so a reader always sees one, also while the run goes on. A run is locked while a process
works on it; the lock goes with the process, however that ends. What a directory lacks is read from the archive beside
it (`archive.py`). Reading parses YAML, JSON, Parquet and safetensors and never imports or runs what a file names.
"""

import errno
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from unstuck.columns import Source, renamed
from unstuck.curve import Curve
from unstuck.errors import InvalidCombination
from unstuck.files import is_own_file, own_directory, remove_partial, replace_file, sync_directory
from unstuck.store.archive import ARCHIVE, ArchivedRun, Kind, archived_runs
from unstuck.store.checkpoints import WrongCheckpoint, load_checkpoint, save_checkpoint
from unstuck.store.locks import hold, is_held
from unstuck.store.reading import has_rows, read_spec, read_status, read_table, warn_damaged
from unstuck.store.result import Result
from unstuck.store.scan import holds_run
from unstuck.store.table import flatten, summary

if TYPE_CHECKING:
    import pandas as pd

    from unstuck.config import RunSpec

R = TypeVar("R")

CHECKPOINT = "checkpoint/state.safetensors"


class RunDirectory:
    """One run's files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # -- what it came to

    def status(self) -> dict[str, Any] | None:
        """What status.json says, or None where there is none; a damaged one is named in a warning."""
        status = read_status(self.path / "status.json")
        archived = self._archived("status.json", status)
        if archived is None:
            return status
        return archived.status() if status is None else status | {"result": archived.result}

    def result(self) -> Result | None:
        """What the run came to, or None where it has not ended yet."""
        return _result(self.status())

    def spec(self) -> dict[str, Any] | None:
        """The specification as plain values."""
        spec, archived = read_spec(self.path / "spec.yaml"), self._in_archive()
        return archived.spec() if spec is None and archived is not None else spec

    def curve(self) -> Curve | None:
        """What was measured."""
        frame = self._table("curve.parquet", "curves", {"step"})
        return None if frame is None else Curve(renamed(frame, self._whose))

    def has_curve(self) -> bool:
        """Can the curve be read? Where not, a warning says so."""
        path, archived = self.path / "curve.parquet", self._archived("curve.parquet")
        if archived is not None:
            return archived.has_rows()
        if not is_own_file(path):
            warn_damaged(path, "the run does not count as finished", "is missing")
            return False
        return has_rows(path)

    def maps(self) -> "pd.DataFrame | None":
        """One sequence's attention at the steps that `train.maps` asked for (probes/maps.py), or its mean."""
        maps = self._table("maps.parquet", "maps", {"step", "layer", "head", "row", "column", "weight"})
        if maps is not None and not _are_maps(maps):
            warn_damaged(self.path / "maps.parquet", "no maps of all pairs of positions")
            return None
        return maps

    def exists(self) -> bool:
        """Is there a run, in the directory or in the archive?"""
        return holds_run(self.path) or self._in_archive() is not None

    def _whose(self) -> Source:
        return "watch" if (self.spec() or {}).get("task", {}).get("name") == "watched" else "run"

    def _table(self, name: str, kind: Kind, needed: set[str]) -> "pd.DataFrame | None":
        archived = self._archived(name)
        return read_table(self.path / name, needed) if archived is None else archived.table(kind, needed)

    def _in_archive(self) -> ArchivedRun | None:
        return archived_runs(self.path.parent / ARCHIVE).get(self.path.name)

    def _archived(self, name: str, status: dict[str, Any] | None = None) -> ArchivedRun | None:
        """The archived run, if its file `name` counts: where the directory has no result, one of fewer steps, or, while
        the run is continued, the archived one and not yet a file of that name."""
        archived = self._in_archive()
        if archived is None:
            return None
        result = (status or read_status(self.path / "status.json") or {}).get("result")
        if result is None or result["steps"] < archived.steps:
            return archived
        return archived if result == archived.result and not is_own_file(self.path / name) else None

    # -- other files

    def has_predictions(self) -> bool:
        """Are they there? They are not committed, so a run that others are compared with may have to be done again."""
        return is_own_file(self.path / "predictions.safetensors")

    def predictions(self) -> Any:
        """What the run's model predicted at its end, where `train.predictions` asked to keep it."""
        from safetensors.torch import load_file

        path = self.path / "predictions.safetensors"
        if not is_own_file(path):
            raise InvalidCombination(f"run {self.path.name} has kept no predictions to compare with; train it first")
        return load_file(path)["predictions"]

    def row(self) -> dict[str, Any] | None:
        """The run as a row of a store's table, or None where its files are missing or damaged."""
        row = self.recorded_row()
        if row is not None and row["status"] == "running" and not self.is_locked():
            row["status"] = "interrupted"
        return row

    def recorded_row(self) -> dict[str, Any] | None:
        """The same from its files alone: a run that no process works on any more may say that it is running."""
        spec, status = self.spec(), self.status()
        if spec is None or status is None:
            return None
        # Its name is that of the directory, whatever the specification says.
        return {"run_id": None} | flatten(spec) | summary(status, _result(status)) | {"run_id": self.path.name}

    def write_spec(self, spec: "RunSpec") -> None:
        self._write("spec.yaml", _yaml(spec.as_dict()))

    def write_status(self, status: dict[str, Any]) -> None:
        self._write("status.json", (json.dumps(status, indent=1) + "\n").encode())

    def write_curve(self, curve: "pd.DataFrame") -> None:
        self._replace("curve.parquet", lambda p: curve.to_parquet(p, index=False, compression="zstd"))

    def write_watched(
        self, model: str, step: int, probe: str, seconds: float | None = None, known: Mapping[str, Any] | None = None
    ) -> None:
        """What makes a directory with somebody else's curve a run: the model's name, how far it has come, a mark of
        what was looked at, how long that took, if it is known, and what else is known of the watch."""
        spec = {"task": {"name": "watched"}, "model": {"name": model}, "optim": {}, "train": {}}
        self._write("spec.yaml", _yaml(spec))
        status = {"state": "watched", "step": step, "probe": probe} | dict(known or {})
        self.write_status(status if seconds is None else status | {"seconds": seconds})

    def write_maps(self, maps: "pd.DataFrame") -> None:
        """Add the maps of one step, in the place of those that a run before its resumption may have left."""
        old = self.maps()
        if old is not None:
            import pandas as pd

            maps = pd.concat([old[~old["step"].isin(maps["step"].unique())], maps], ignore_index=True)
        self._replace("maps.parquet", lambda p: maps.to_parquet(p, index=False, compression="zstd"))

    def write_predictions(self, predictions: Any) -> None:
        from safetensors.torch import save_file

        self._write_tensors("predictions.safetensors", lambda p: save_file({"predictions": predictions}, p))

    # -- checkpoints

    def write_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Keep a checkpoint, `tensors` and plain values, in the place of the one before."""
        own_directory(self.path / "checkpoint")
        self._write_tensors(CHECKPOINT, lambda p: save_checkpoint(checkpoint, p, self.path.name))

    def read_checkpoint(self, *, unsigned: bool = False) -> dict[str, Any] | None:
        """The last checkpoint, or None where there is none; raises where it is damaged or another run's. `unsigned`
        accepts one of an earlier version, which does not say whose it is."""
        path = self.path / CHECKPOINT
        if not path.is_file():
            return None
        if path.is_symlink() or path.parent.is_symlink():
            raise WrongCheckpoint("it is a link")
        return load_checkpoint(path, self.path.name, unsigned=unsigned)

    def resume(self, make: Callable[[dict[str, Any] | None], R], *, unsigned: bool = False) -> R:
        """`make` a run from the last checkpoint; from none, with a warning, where that is damaged or another run's."""
        try:
            checkpoint = self.read_checkpoint(unsigned=unsigned)
            if checkpoint is not None:
                return make(checkpoint)
        except Exception as e:
            why = str(e) if isinstance(e, WrongCheckpoint) else type(e).__name__
            warn_damaged(self.path / CHECKPOINT, why, "cannot be used; the run starts anew")
        return make(None)

    def remove_checkpoint(self) -> None:
        path = self.path / "checkpoint"
        if path.is_symlink():
            path.unlink()
        shutil.rmtree(path, ignore_errors=True)

    # -- who works on it

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Hold the run's lock: True, or False where another process holds it and goes on holding it."""
        if not self.path.is_dir():
            self.path.mkdir(parents=True, exist_ok=True)
            sync_directory(self.path.parent)
        with hold(self.path / ".lock") as mine:
            if mine and not (self.path / ".lock").exists():
                mine = False  # who held it has removed the directory: the run is refused
            if mine:
                for directory in (self.path, self.path / "checkpoint"):
                    if not directory.is_symlink():
                        remove_partial(directory)
            yield mine

    def remove_unless_begun(self) -> None:
        """Remove the directory, whose lock is held, where nothing of a run is in it but what was asked for."""
        there = {path.name for path in self.path.iterdir()}
        if there <= {".lock", "spec.yaml"}:
            for name in there:
                (self.path / name).unlink()
            self.path.rmdir()

    def is_locked(self) -> bool:
        """Is a process at work on the run?"""
        return is_held(self.path / ".lock")

    # -- files

    def _write(self, name: str, content: bytes) -> None:
        self._replace(name, lambda p: Path(p).write_bytes(content))

    def _write_tensors(self, name: str, write: Callable[[str], None]) -> None:
        from safetensors import SafetensorError

        try:
            self._replace(name, write)
        except SafetensorError as e:  # a full disk, most often
            what = name.partition("/")[0].partition(".")[0]
            raise OSError(errno.EIO, f"the {what} could not be written ({e})", str(self.path)) from e

    def _replace(self, name: str, write: Callable[[str], object]) -> None:
        replace_file(self.path / name, write)


def _are_maps(maps: "pd.DataFrame") -> bool:
    """Has a table a row for each step, layer, head and pair of positions? One row about position 50,000 would become a
    map with all pairs of so many positions."""
    places = maps.drop(columns="weight")
    if not ((places % 1 == 0) & (places >= 0)).all(axis=None):
        return False
    size = float(max(maps["row"].max(), maps["column"].max())) + 1 if len(maps) else 0.0
    return len(maps) >= size**2 * maps["step"].nunique() * maps.groupby(["layer", "head"]).ngroups


def _result(status: dict[str, Any] | None) -> Result | None:
    result = (status or {}).get("result")
    return None if result is None else Result.model_validate(result)


class _Plain(yaml.SafeDumper):  # type: ignore[misc]
    """Writes a list that is there twice out twice, since aliases are not read again."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _yaml(value: dict[str, Any]) -> bytes:
    return yaml.dump(value, Dumper=_Plain, sort_keys=False).encode()
