"""Who works on a run: a lock file that one process holds, and that goes with the process, however that ends."""

import errno
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

PATIENCE = 0.1  # seconds to try: the holder may be no worker but a look (`is_held`), which is over at once
LOOK = 0.02  # seconds that a look tries, since two looks may meet
POLL = 0.005  # seconds between tries


@contextmanager
def hold(path: Path) -> Iterator[bool]:
    """Hold the lock file at `path`: True, or False where another process holds it. Where it cannot be a lock (a pipe, a
    directory, a link, no permission), an OSError says so at once."""
    lock = FileLock(path)
    try:
        _check_regular(path)
        lock.acquire(timeout=PATIENCE, poll_interval=POLL)
    except Timeout:
        yield False
        return
    except OSError as e:
        raise OSError(e.errno, f"the run cannot be locked: {e.strerror or e}", str(path)) from e
    try:
        yield True
    finally:
        lock.release()


def is_held(path: Path) -> bool:
    """Does a process hold the lock file at `path`? What cannot be a lock is held by nobody."""
    try:
        if not _check_regular(path):
            return False
        with FileLock(path).acquire(timeout=LOOK, poll_interval=POLL):
            return False
    except Timeout:
        return True
    except PermissionError:
        return _is_held_by_another_user(path)
    except OSError:
        return False


def _is_held_by_another_user(path: Path) -> bool:
    """A look at a lock file that may be read but not written, as in a store that users share. Windows has no such
    look: there nobody seems to hold it."""
    try:
        import fcntl  # not on Windows

        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        return False
    return False


def _check_regular(path: Path) -> bool:
    """Is there a file? Opening a pipe would wait for its other end, and a link leads elsewhere."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(mode):
        raise OSError(errno.EEXIST, "it is not a regular file", str(path))
    return True
