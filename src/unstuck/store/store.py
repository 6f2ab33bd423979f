"""Runs on disk: DIR/<run_id>/ with spec.yaml, status.json, curve.parquet and checkpoint/.

Every file is replaced whole, so a reader always sees one, also while the run goes on. A run is locked while a
process works on it; the lock goes with the process, however that ends. Reading a store parses YAML, JSON, Parquet
and safetensors and never imports or runs anything that a file names.
"""

import errno
import fcntl
import json
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import yaml

from unstuck.config import RunSpec
from unstuck.curve import renamed
from unstuck.errors import Impossible

R = TypeVar("R")


LOOKS = 10  # times that a lock is tried
LARGEST = 10**18  # whole number that a file of a run may hold


class Damaged(UserWarning):
    """A file of the store that cannot be read; the rest goes on."""


class RunDirectory:
    """One run's files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # -- status and curve

    def status(self) -> dict[str, Any] | None:
        """What status.json says, or None where there is none; a damaged one is named in a warning."""
        return self._read("status.json", json.loads, _is_status)

    def spec(self) -> dict[str, Any] | None:
        """The specification as plain values."""
        return self._read("spec.yaml", _yaml, _is_spec)

    def curve(self) -> pd.DataFrame | None:
        """What was measured, a row a look, all numbers."""
        curve = self._table("curve.parquet", {"step"})
        if curve is None:
            return None
        return renamed(
            curve, lambda: "watch" if (self.spec() or {}).get("task", {}).get("name") == "watched" else "run"
        )

    def maps(self) -> pd.DataFrame | None:
        """One sequence's attention at the steps that `train.maps` asked for (probes/maps.py)."""
        maps = self._table("maps.parquet", {"step", "layer", "head", "row", "column", "weight"})
        places = None if maps is None else maps.drop(columns="weight")
        if places is not None and not ((places % 1 == 0) & (places >= 0)).all(axis=None):
            warnings.warn(f"{self.path / 'maps.parquet'} is damaged and passed over (no places)", Damaged, stacklevel=2)
            return None
        return maps

    def _table(self, name: str, needed: set[str]) -> pd.DataFrame | None:
        path = self.path / name
        if not self._is_ours(name):
            return None
        try:
            table = pd.read_parquet(path)
            if not needed <= set(table):
                raise ValueError("columns are missing")
            numbers = table.apply(pd.to_numeric, errors="coerce")
            return numbers[numbers["step"].notna()]
        except Exception as e:  # pyarrow has many ways to say that a file is none of its own
            warnings.warn(f"{path} is damaged and passed over ({type(e).__name__})", Damaged, stacklevel=2)
            return None

    def _is_ours(self, name: str) -> bool:
        """A file of this directory; a link may lead out of it, to what is not meant to be read."""
        path = self.path / name
        return path.is_file() and not path.is_symlink()

    def write_spec(self, spec: RunSpec) -> None:
        self._write("spec.yaml", yaml.safe_dump(spec.as_dict(), sort_keys=False).encode())

    def write_status(self, status: dict[str, Any]) -> None:
        self._write("status.json", (json.dumps(status, indent=1) + "\n").encode())

    def write_curve(self, curve: pd.DataFrame) -> None:
        self._replace("curve.parquet", lambda p: curve.to_parquet(p, index=False, compression="zstd"))

    def write_watched(self, model: str, step: int, probe: str) -> None:
        """What makes a directory with somebody else's curve a run: the model's name, how far it has come, and a mark of
        what was looked at."""
        spec = {"task": {"name": "watched"}, "model": {"name": model}, "optim": {}, "train": {}}
        self._write("spec.yaml", yaml.safe_dump(spec, sort_keys=False).encode())
        self.write_status({"state": "watched", "step": step, "probe": probe})

    def write_maps(self, maps: pd.DataFrame) -> None:
        """Add the maps of one step, in the place of those that a run before its resumption may have left."""
        old = self.maps()
        if old is not None:
            maps = pd.concat([old[~old["step"].isin(maps["step"].unique())], maps], ignore_index=True)
        self._replace("maps.parquet", lambda p: maps.to_parquet(p, index=False, compression="zstd"))

    def write_predictions(self, predictions: Any) -> None:
        self._write_tensors("predictions.safetensors", {"predictions": predictions})

    def predictions(self) -> Any:
        """What the run's model predicted at its end, where `train.predictions` asked to keep it."""
        from safetensors.torch import load_file

        path = self.path / "predictions.safetensors"
        if not path.is_file():
            raise Impossible(f"run {self.path.name} has kept no predictions to compare with; train it first")
        return load_file(path)["predictions"]

    def row(self) -> dict[str, Any] | None:
        """The run as a row of a store's table, or None where its files are missing or damaged."""
        spec, status = self.spec(), self.status()
        if spec is None or status is None:
            return None
        # Its name is that of the directory, whatever the specification says.
        row = {"run_id": None} | flatten(spec) | summary(status) | {"run_id": self.path.name}
        if "crossings" in (status.get("result") or {}):  # its result may be older than what is asked for now
            row["thresholds"] = watched(status["result"])
        if row["status"] == "running" and not self.is_locked():
            row["status"] = "interrupted"
        return row

    # -- checkpoints

    def write_checkpoint(self, checkpoint: Any) -> None:
        """Tensors and, as JSON in the same file's header, everything else: one file, so never half of each."""
        rest = {k: v for k, v in vars(checkpoint).items() if k != "tensors"}
        (self.path / "checkpoint").mkdir(exist_ok=True)
        header = {"state": json.dumps(rest), "format": "pt"}
        self._write_tensors("checkpoint/state.safetensors", checkpoint.tensors, header)

    def read_checkpoint(self) -> Any | None:
        """The last checkpoint, or None where there is none; raises what the reader raises if it is damaged."""
        from safetensors import safe_open

        from unstuck.training.loop import Checkpoint

        path = self.path / "checkpoint/state.safetensors"
        if not path.is_file():
            return None
        with safe_open(path, framework="pt") as f:
            rest = json.loads(f.metadata()["state"])
            return Checkpoint(tensors={k: f.get_tensor(k) for k in f.keys()}, **rest)  # noqa: SIM118

    def resume(self, make: Callable[[Any], R]) -> R:
        """`make` a run from the last checkpoint; from none, with a warning, where that is damaged or another run's."""
        try:
            checkpoint = self.read_checkpoint()
            if checkpoint is not None:
                return make(checkpoint)
        except Exception as e:
            path = self.path / "checkpoint/state.safetensors"
            warnings.warn(f"{path} is damaged; the run starts anew ({type(e).__name__})", Damaged, stacklevel=2)
        return make(None)

    def remove_checkpoint(self) -> None:
        shutil.rmtree(self.path / "checkpoint", ignore_errors=True)

    # -- who works on it

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Hold the run's lock: True, or False where another process holds it and goes on holding it."""
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / ".lock", "w") as f:
            for _ in range(LOOKS):
                try:
                    fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    time.sleep(0.01)  # it may be no worker, but a look (`is_locked`), which is over at once
                else:
                    yield True
                    return
            yield False

    def is_locked(self) -> bool:
        """Is a process at work on the run?"""
        if not (self.path / ".lock").exists():
            return False
        try:
            with open(self.path / ".lock") as f:
                fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False

    # -- files

    def _read(self, name: str, parse: Any, is_right: Callable[[Any], bool]) -> dict[str, Any] | None:
        path = self.path / name
        if not self._is_ours(name):
            return None
        try:
            value = parse(path.read_text(encoding="utf-8"))
            if not is_right(value):
                raise ValueError("not what this file holds")
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as e:
            warnings.warn(f"{path} is damaged and passed over ({type(e).__name__})", Damaged, stacklevel=3)
            return None
        return value

    def _write(self, name: str, content: bytes) -> None:
        self._replace(name, lambda p: Path(p).write_bytes(content))

    def _write_tensors(self, name: str, tensors: dict[str, Any], header: dict[str, str] | None = None) -> None:
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        def write(path: str) -> None:
            try:
                save_file(tensors, path, header)
            except SafetensorError as e:  # a full disk, most often
                what = name.partition("/")[0].partition(".")[0]
                raise OSError(errno.EIO, f"the {what} could not be written ({e})", str(self.path)) from e

        self._replace(name, write)

    def _replace(self, name: str, write: Any) -> None:
        target = self.path / name
        partial = target.with_name(f".{target.name}.partial")
        try:
            write(str(partial))
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)


def _yaml(text: str) -> Any:
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _is_spec(value: Any) -> bool:
    """Sections of plain values, as `RunSpec.as_dict` writes them."""
    sections = ("task", "model", "optim", "train")
    return isinstance(value, dict) and all(isinstance(value.get(s), dict) for s in sections) and _is_plain(value)


def _is_plain(value: Any) -> bool:
    """Made of texts, numbers of a reasonable size, lists and mappings only."""
    if isinstance(value, dict):
        return all(isinstance(k, str) and _is_plain(v) for k, v in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (str, float)) or (isinstance(value, int) and abs(value) < LARGEST)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST


def _is_status(value: Any) -> bool:
    """A state, a step, and, where the run has ended, a result with all that the rest of the package reads."""
    if not isinstance(value, dict) or not isinstance(value.get("state"), str):
        return False
    result = value.get("result")
    if not _is_count(value.get("step", 0)) or not _is_plain(result):
        return False
    if result is None:
        return True
    shapes: dict[str, Any] = {"status": str, "crossings": dict, "final": dict, "steps": int, "seconds": (int, float)}
    if not isinstance(result, dict) or not all(isinstance(result.get(k), kind) for k, kind in shapes.items()):
        return False
    if not isinstance(result.get("plateau_steps"), (int, float, type(None))) or not _is_count(result["steps"]):
        return False
    numbers = [*result["crossings"].values(), *result["final"].values(), result.get("plateau_steps") or 0]
    return all(isinstance(x, (int, float)) for x in numbers)


class Store:
    """A directory of runs."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def run(self, run_id: str) -> RunDirectory:
        return RunDirectory(self.path / run_id)

    def __iter__(self) -> Iterator[RunDirectory]:
        if self.path.is_dir():
            for path in sorted(self.path.iterdir()):
                if (
                    path.is_dir()
                    and not path.name.startswith(".")
                    and path.name.isprintable()
                    and any((path / n).exists() for n in ("status.json", "spec.yaml"))
                ):
                    yield RunDirectory(path)

    def table(self) -> pd.DataFrame:
        """One row a run: its keys (`task.T` is also called `T`), status, plateau_steps, steps, seconds."""
        return pd.DataFrame([row for run in self if (row := run.row()) is not None])


def flatten(spec: dict[str, Any]) -> dict[str, Any]:
    """{"task": {"T": 3}} -> {"T": 3}; a name that two sections share keeps its section in front."""
    out: dict[str, Any] = {}
    for section, values in spec.items():
        if not isinstance(values, dict):
            out[str(section)] = values
            continue
        for key, value in values.items():
            short = str(key) if key != "name" and str(key) not in out else f"{section}.{key}"
            out[section if key == "name" else short] = value
    return out


def watched(result: dict[str, Any]) -> list[float]:
    """The thresholds that a stored run looked out for."""
    known = result.get("watched")
    if known is not None:
        return list(known)
    last = [] if result.get("threshold") is None else [result["threshold"]]
    return sorted({*map(float, result["crossings"]), *last})


def summary(status: dict[str, Any]) -> dict[str, Any]:
    result = status.get("result") or {}
    state = status.get("state")
    return {
        "status": result.get("status", state),
        "threshold": result.get("threshold"),
        "plateau_steps": result.get("plateau_steps"),
        "steps": result.get("steps", status.get("step")),
        "seconds": result.get("seconds"),
        **{f"crossing_{k}": v for k, v in (result.get("crossings") or {}).items()},
    }


def result_dict(result: Any) -> dict[str, Any]:
    """A run's result as plain values, without its curve."""
    return {k: v for k, v in vars(result).items() if k != "curve"}
