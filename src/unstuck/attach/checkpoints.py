"""One curve over a series of checkpoints: folders of Hugging Face models, or revisions in its cache.

Loading runs no code of a folder: weights are read from safetensors alone, and the model's class comes from the
installed transformers. Nothing is downloaded.
"""

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from unstuck.attach.choice import language_watch
from unstuck.columns import STEP, TRAIN_LOSS, Row
from unstuck.curve import Curve
from unstuck.errors import BadInput, InvalidCombination
from unstuck.extras import require

FINAL = ("main", "master", "final", "last")  # names of revisions that hold the last weights
_STEP = re.compile(r"(?:^|[^a-z0-9])(?:checkpoint|step|steps|global_?step|iter|iteration|ckpt)[-_ ]?(\d+)(?:[^0-9]|$)")
_NUMBER = re.compile(r"(\d+)(?!.*\d)")
MOST_STEPS = 10**15
MOST_STATE = 50_000_000  # bytes of a trainer_state.json that is read


@dataclass(frozen=True)
class Checkpoint:
    """A folder with weights."""

    name: str
    path: Path
    step: int | None  # None for weights of an unknown step, such as those of `main`

    @property
    def weights(self) -> list[Path]:
        return sorted(self.path.glob("*.safetensors"))


@dataclass
class Series:
    """What a series of checkpoints showed. Names are those of folders or revisions."""

    rows: list[Row] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of the rows
    duplicates: dict[str, str] = field(default_factory=dict)  # a checkpoint, and the one whose weights it has
    final: dict[str, str] = field(default_factory=dict)  # the same for weights of the last checkpoint
    skipped: dict[str, str] = field(default_factory=dict)  # a checkpoint, and why it is left out
    mark: str = ""
    model: str = ""

    @property
    def curve(self) -> Curve:
        return Curve.from_rows(self.rows)


def step_of(name: str) -> int | None:
    """The step in a name: after `step`, `checkpoint` and the like, or its last number.

    Examples:
        >>> [step_of(name) for name in ("checkpoint-500", "step3000", "stage1-step42-tokens8B", "epoch_7", "main")]
        [500, 3000, 42, 7, None]
    """
    found = _STEP.search(name.lower()) or _NUMBER.search(name)
    return _as_step(int(found[1])) if found else None


def _as_step(value: Any) -> int | None:
    """A number of steps that a file or a name claims; None for what can be none."""
    return value if type(value) is int and 0 <= value <= MOST_STEPS else None


def find_checkpoints(directory: Path) -> list[Checkpoint]:
    """The checkpoints in a directory, in the order of steps: its own folders, or, in a cache of Hugging Face, its
    revisions. Those of an unknown step come last."""
    if not directory.is_dir():
        raise BadInput("DIR", str(directory), "a directory with checkpoints")
    found = list(_revisions(directory)) or list(_folders(directory))
    if not found:
        raise BadInput("DIR", str(directory), "a directory with folders, or cached revisions, that hold a config.json")
    return sorted(found, key=lambda c: (c.step is None, c.step or 0, c.name))


def _revisions(directory: Path) -> Iterator[Checkpoint]:
    """The revisions of a model in Hugging Face's cache, `models--ORG--NAME`."""
    refs = directory / "refs"
    for ref in sorted(path for path in refs.rglob("*") if path.is_file()) if refs.is_dir() else ():
        commit = ref.read_text(encoding="utf-8", errors="replace")[:100].strip()
        if not re.fullmatch("[0-9a-f]{7,64}", commit):
            continue
        name, path = ref.relative_to(refs).as_posix(), directory / "snapshots" / commit
        if path.is_dir():
            yield Checkpoint(name, path, None if name in FINAL else step_of(name))


def _folders(directory: Path) -> Iterator[Checkpoint]:
    for path in sorted(p for p in (directory, *directory.iterdir()) if (p / "config.json").is_file()):
        state = _state(path)
        known = _as_step(state.get("global_step"))
        step = known if known is not None else None if path.name in FINAL else step_of(path.name)
        yield Checkpoint(path.name, path, step)


def _state(path: Path) -> dict[str, Any]:
    """What Hugging Face's Trainer noted beside a checkpoint."""
    file = path / "trainer_state.json"
    try:
        state = json.loads(file.read_text()) if file.is_file() and file.stat().st_size <= MOST_STATE else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return state if isinstance(state, dict) else {}


def digest(checkpoint: Checkpoint) -> str:
    """A hash of all weights: their names, types, shapes and values."""
    from safetensors import safe_open

    total = hashlib.sha256()
    parts: dict[str, Path] = {}
    for file in checkpoint.weights:
        with safe_open(file, framework="pt") as f:
            parts |= dict.fromkeys(f.keys(), file)
    for name in sorted(parts):
        with safe_open(parts[name], framework="pt") as f:
            tensor = f.get_tensor(name).contiguous()
        total.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy())
    return total.hexdigest()


def load_model(checkpoint: Checkpoint) -> nn.Module:
    """The model of a checkpoint, without code from its folder."""
    require("", "reading checkpoints of Hugging Face", "transformers", install="pip install transformers")
    import transformers  # optional

    safe: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
    with _silenced():
        config = transformers.AutoConfig.from_pretrained(checkpoint.path, **safe)
        _check_layers(config, checkpoint)
        name = next(iter(getattr(config, "architectures", None) or [""]))
        bare = name.endswith("Model") and "LMHead" not in name
        kind: Any = transformers.AutoModel if bare else transformers.AutoModelForCausalLM
        for kernel in ("sdpa", "eager"):  # whatever kernel the folder names
            config._attn_implementation = kernel
            wanted: dict[str, Any] = {"config": config, "use_safetensors": True, "dtype": torch.float32}
            try:
                model, report = kind.from_pretrained(checkpoint.path, output_loading_info=True, **wanted, **safe)
            except ValueError:
                if kernel == "eager":
                    raise
                continue
            except RuntimeError as e:
                if "ignore_mismatched_sizes" in str(e):
                    raise InvalidCombination("its weights have other shapes than its config.json names") from e
                raise
            if missing := sorted(report["missing_keys"]):
                raise InvalidCombination(f"it lacks {len(missing)} weights, such as {missing[0]}")
            return model.eval()
    raise AssertionError


def _check_layers(config: Any, checkpoint: Checkpoint) -> None:
    """Refuse more layers than there are weights, before a model of millions of layers is made."""
    from safetensors import safe_open

    count, layers = 0, getattr(config, "num_hidden_layers", 0)
    for file in checkpoint.weights:
        with safe_open(file, framework="pt") as f:
            count += len(f.keys())
    if isinstance(layers, int) and layers > count:
        raise InvalidCombination(f"its config.json names {layers} layers, and it has {count} weights")


@contextmanager
def _silenced() -> Iterator[None]:
    """Without the reports and bars of transformers, which print names from files as they are."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def watch_checkpoints(directory: str | Path, progress: Callable[[int, int], None] = lambda done, of: None) -> Series:
    """Measure every checkpoint of a directory: one curve, in the order of steps, whatever the order of the folders.

    Checkpoints with the same weights are measured once: those that hold the weights of the last one are named in
    `final`, others in `duplicates`. What cannot be read is named in `skipped`. A checkpoint of an unknown step has no
    row.
    """
    series, kept = Series(), []
    for checkpoint in _distinct(find_checkpoints(Path(directory)), series):
        if checkpoint.step is None:
            series.skipped[checkpoint.name] = "its name has no step"
        else:
            kept.append(checkpoint)
    losses = _losses(kept)
    for i, checkpoint in enumerate(kept):
        progress(i, len(kept))
        try:
            row = _measured(checkpoint, series)
        except Exception as e:  # a folder may hold anything
            why = " ".join(str(e).split())[:300].rstrip(".")
            series.skipped[checkpoint.name] = why or type(e).__name__
            continue
        assert checkpoint.step is not None
        loss = {TRAIN_LOSS: losses[checkpoint.step]} if checkpoint.step in losses else {}
        series.rows.append({STEP: float(checkpoint.step), **loss, **row})
        series.names.append(checkpoint.name)
    return series


def _distinct(found: list[Checkpoint], series: Series) -> list[Checkpoint]:
    """The checkpoints with weights of their own; the others are named."""
    groups = _by_weights(found, series)
    last = max((c.step for group in groups for c in group if c.step is not None), default=None)
    kept = [_kept(group, last, series) for group in groups]
    return [c for c in found if c in kept]


def _by_weights(found: list[Checkpoint], series: Series) -> list[list[Checkpoint]]:
    """Groups of checkpoints with the same weights; those without readable weights are named as skipped."""
    by_digest: dict[str, list[Checkpoint]] = {}
    for checkpoint in found:
        if odd := _odd_file(checkpoint.path):
            series.skipped[checkpoint.name] = f"{odd} is no plain file"
            continue
        if not checkpoint.weights:
            series.skipped[checkpoint.name] = _why_no_weights(checkpoint)
            continue
        try:
            by_digest.setdefault(digest(checkpoint), []).append(checkpoint)
        except Exception as e:  # a damaged file
            series.skipped[checkpoint.name] = f"its weights cannot be read ({type(e).__name__})"
    return list(by_digest.values())


def _odd_file(folder: Path) -> str | None:
    """What stands in a folder and is neither file nor folder: to open a pipe waits for its other end."""
    return next((path.name for path in folder.iterdir() if not path.is_file() and not path.is_dir()), None)


def _why_no_weights(checkpoint: Checkpoint) -> str:
    pickled = any(checkpoint.path.glob("*.bin")) or any(checkpoint.path.glob("*.pt"))
    why = "it has only pickled weights, which could run code" if pickled else "it has no weights"
    return f"{why}: safetensors are read alone"


def _kept(group: list[Checkpoint], last: int | None, series: Series) -> Checkpoint:
    """The one that is measured of those with the same weights; the others are named. The weights are final ones if the
    group has the last step, or a checkpoint of an unknown step."""
    of_last = [c for c in group if c.step == last]
    of_no_step = [c for c in group if c.step is None]
    final = (of_last or of_no_step)[:1]
    kept = (final or group)[0]
    named = series.final if final else series.duplicates
    named.update({c.name: kept.name for c in group if c is not kept})
    return kept


def _measured(checkpoint: Checkpoint, series: Series) -> Row:
    model = load_model(checkpoint)
    watch, why = language_watch(model)
    if watch is None:
        raise InvalidCombination(why)
    if series.mark and watch.seen_with != series.mark:
        raise InvalidCombination("its vocabulary or context is another one, so its row cannot be compared")
    series.mark, series.model = watch.seen_with, type(model).__name__
    return watch.tried


def _losses(found: list[Checkpoint]) -> dict[int, float]:
    """The training loss at each step that a Trainer logged, from the state beside the last checkpoint that has one."""
    for checkpoint in reversed(found):
        history = _state(checkpoint.path).get("log_history")
        entries = [e for e in history if isinstance(e, dict)] if isinstance(history, list) else []
        known = {e["step"]: e["loss"] for e in entries if isinstance(e.get("step"), int) and "loss" in e}
        if known:
            return {step: float(loss) for step, loss in known.items() if _is_loss(loss)}
    return {}


def _is_loss(value: Any) -> bool:
    """JSON has whole numbers of any size."""
    return isinstance(value, (int, float)) and abs(value) <= sys.float_info.max
