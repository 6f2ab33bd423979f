"""Where a result comes from: code version and commit, date, machine, libraries."""

import datetime
import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from unstuck import __version__

_LIBRARIES = ("numpy", "scipy", "pandas", "statsmodels", "matplotlib", "torch")


def provenance() -> dict[str, Any]:
    return {
        "unstuck": __version__,
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "system": platform.system()},
        "python": platform.python_version(),
        "libraries": {name: found for name in _LIBRARIES if (found := _version(name))},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@cache
def _commit() -> str | None:
    """The commit of the checkout this package runs from, marked when files differ; None outside a checkout. Of the time
    when it is first asked: a process that goes on for hours goes on with the code it has read."""
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if git("ls-files", "--error-unmatch", Path(__file__).name) is None:  # installed, or another project's checkout
        return None
    head = git("rev-parse", "--short=12", "HEAD")
    changed = git("status", "--porcelain", "--", str(here.parent))
    return f"{head} with local changes" if head and changed else head


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
