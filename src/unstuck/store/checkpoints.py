"""Checkpoints: tensors and, as JSON in the same file's header, everything else, tied to their run by its id and a hash.

One file, so there is never half of each. The hash is over all that a checkpoint holds: one with a flipped bit, or that
of another run, is refused.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class WrongCheckpoint(ValueError):
    """A checkpoint that is not what its run wrote."""


def save_checkpoint(checkpoint: Mapping[str, Any], path: str, run_id: str) -> None:
    """Write a checkpoint of the run `run_id` to `path`: `tensors`, and values that JSON can hold."""
    from safetensors.torch import save_file

    state = json.dumps({k: v for k, v in checkpoint.items() if k != "tensors"})
    digest = _digest(run_id, state, checkpoint["tensors"])
    save_file(checkpoint["tensors"], path, {"state": state, "format": "pt", "run": run_id, "sha256": digest})


def load_checkpoint(path: Path, run_id: str, *, unsigned: bool = False) -> dict[str, Any]:
    """The checkpoint in `path`, if it is one of the run `run_id` and whole.

    Checkpoints of earlier versions name no run; `unsigned` accepts them, for a run that is known to be the same.
    Raises `WrongCheckpoint`, or what the reader raises for a file that is damaged.
    """
    from safetensors import safe_open

    with safe_open(path, framework="pt") as f:
        header = f.metadata()
        tensors = {k: f.get_tensor(k) for k in f.keys()}  # noqa: SIM118
    signature = header.get("run"), header.get("sha256")
    if signature == (None, None):
        if not unsigned:
            raise WrongCheckpoint("it does not say which run it belongs to")
    elif header.get("run") != run_id:
        raise WrongCheckpoint(f"it belongs to run {header.get('run')!r:.40}")
    elif header.get("sha256") != _digest(run_id, header["state"], tensors):
        raise WrongCheckpoint("its content is not what was written")
    return {**json.loads(header["state"]), "tensors": tensors}


def _digest(run_id: str, state: str, tensors: Mapping[str, Any]) -> str:
    """SHA-256 over the run's id, the state and each tensor's name, type, shape and bytes."""
    import torch

    digest = hashlib.sha256(json.dumps([run_id, state]).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
