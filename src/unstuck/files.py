"""Write a file whole or not at all, and never through a link; tell files from links, pipes and devices."""

import errno
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PARTIAL = ".partial"  # ending of a file that is being written
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)  # as far as the platform has them


def replace_file(path: Path, write: Callable[[str], object]) -> None:
    """Let `write` fill a new file, given by its name, and put that in the place of `path`.

    The new file and its directory entry are on disk before this returns; until then the old file stays. A link at
    `path` is replaced itself: what it leads to stays as it is. The temporary name is random, so that two writers never
    share one; it is opened exclusively, so that nothing which lies there is written through.
    """
    if path.exists() and not path.is_file():  # a directory, a pipe or a device, or a link to one
        raise OSError(errno.EEXIST, "it cannot be replaced, since it is not a regular file", str(path))
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINKS, 0o666))
    try:
        write(str(partial))
        _sync(partial)
        os.replace(partial, path)
        sync_directory(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Put `content` in the place of what `path` holds."""
    replace_file(path, lambda partial: Path(partial).write_bytes(content))


def write_text(path: Path, text: str) -> None:
    """Put `text`, as UTF-8, in the place of what `path` holds."""
    write_bytes(path, text.encode())


def is_own_file(path: Path) -> bool:
    """Is it a file of its directory? A link may lead out of it, to what is not meant to be read."""
    return path.is_file() and not path.is_symlink()


def own_directory(path: Path) -> None:
    """Make `path` a directory of its own; a link to another one is removed, not followed."""
    if path.is_symlink():
        path.unlink()
    path.mkdir(exist_ok=True)


def remove_partial(directory: Path) -> None:
    """Remove what writers that were killed have left in a directory, while nobody else writes there."""
    for path in (*directory.glob(f".*{PARTIAL}"), *directory.glob(".tmp??????")):  # the latter by safetensors
        with suppress(OSError):  # such as a directory of that name, which is none of ours
            path.unlink()


def sync_directory(path: Path) -> None:
    """Wait until the names in a directory are on disk, where the platform can tell."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as e:
        if e.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that has no such thing
            raise
    finally:
        os.close(descriptor)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | _NO_LINKS)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
