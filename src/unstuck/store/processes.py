"""The process that writes a run directory, so that another one can see whether it still runs."""

import os
import platform
from contextlib import suppress
from typing import Any


def this_process() -> dict[str, Any]:
    """Its number, and the machine on which that counts."""
    return {"pid": os.getpid(), "machine": _machine()}


def is_gone(process: Any) -> bool:
    """Has a process of this machine ended? False where that cannot be known: on another machine, in another container,
    and on Windows, where asking would end it."""
    pid = process.get("pid") if isinstance(process, dict) and process.get("machine") == _machine() else None
    if not isinstance(pid, int) or pid <= 0 or os.name == "nt":
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # it is another user's, or no number of a process
        return False
    return False


def _machine() -> str:
    """The name of the machine, and on Linux of the space in which numbers of processes count: containers differ."""
    name = platform.node()
    with suppress(OSError, AttributeError):
        name += f" {os.readlink('/proc/self/ns/pid')}"
    return name
