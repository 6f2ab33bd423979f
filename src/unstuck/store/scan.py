"""Which runs a directory holds, and how their files are now: one pass over the directory, two looks at each run."""

import os
import stat
from pathlib import Path

from unstuck.store.reading import warn_damaged

FILES = ("spec.yaml", "status.json")  # what a run's row is made of
Signature = tuple[int, ...]  # of these files: when each was last written and last changed in any way, and its size
MISSING: Signature = (0, 0, 0)  # of a file that is not there
NO_FILES: Signature = MISSING * len(FILES)  # of a run that only the archive has

_BELOW = os.stat in os.supports_dir_fd  # names below an open directory are found faster than whole paths


def scan(root: Path, *, links: bool = True) -> dict[str, Signature | None]:
    """The names of the run directories in `root`; None for one whose files must be read to be known, such as a link.

    Without `links`, directories that are links are left out.
    """
    found: dict[str, Signature | None] = {}
    if not root.is_dir():
        return found
    descriptor = os.open(root, os.O_RDONLY) if _BELOW else None
    try:
        with os.scandir(root) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith(".") or not name.isprintable():
                    continue
                if entry.is_dir(follow_symlinks=False):
                    signature = _signature(name if _BELOW else entry.path, descriptor)
                    if signature != NO_FILES and (signature or _is_run(root / name)):
                        found[name] = signature
                elif links and entry.is_symlink() and _is_run(root / name):
                    found[name] = None
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return found


def _signature(path: str, descriptor: int | None) -> Signature | None:
    """Of a run directory; None where a file is no regular one, or may not be looked at."""
    out: Signature = ()
    for name in FILES:
        try:
            file = os.stat(f"{path}/{name}", dir_fd=descriptor, follow_symlinks=False)
        except FileNotFoundError:
            out += MISSING
            continue
        except OSError:
            return None
        if not stat.S_ISREG(file.st_mode):
            return None
        out += (file.st_mtime_ns, file.st_ctime_ns, file.st_size)
    return out


def holds_run(path: Path) -> bool:
    """Are there files of a run in a directory?"""
    return path.is_dir() and any((path / name).exists() for name in FILES)


def _is_run(path: Path) -> bool:
    try:
        return holds_run(path)
    except OSError as e:  # no permission to look
        warn_damaged(path, type(e).__name__)
        return False
