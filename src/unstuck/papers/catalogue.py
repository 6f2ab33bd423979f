"""The figures of both papers and our own: where each stands, and what it needs.

A figure is a file of `emergence/`, `incremental/` or `text/`, or a row of the table `FIGURES` of one. Its title stands
there: the first line of the file, or the first argument of the row. Files and rows are found without being listed
here, and so are entry points `unstuck.figures` of other packages. This file adds the order of the papers' figures, what
they need, and how near their setting is to the published one.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Literal, get_args

#: How near the runs of a figure's `cpu` profile are to the published ones: as published; as published where the
#: authors' settings are known, the rest inferred; a smaller grid; not a figure of the papers.
Setting = Literal["published", "inferred", "smaller grid", "ours"]

#: How much of a figure is run: a few minutes, what a desktop does in days, the paper's own grid.
Profile = Literal["quick", "cpu", "paper"]
PROFILES: tuple[Profile, ...] = get_args(Profile)


@dataclass(frozen=True)
class Entry:
    name: str
    shows: str  # its title, without its number or name
    needs: str = "theory"
    setting: Setting = "ours"

    @property
    def ours(self) -> bool:
        """Is it not a figure of the papers?"""
        return self.setting == "ours"

    @property
    def paper(self) -> str:
        return _paper(self.name)

    @property
    def on_text(self) -> bool:
        """Does it test other people's laws, on text?"""
        return self.name in _places() and _places()[self.name][0].startswith(f"{__package__}.text.")


#: Figures that need a package which is not one of ours.
PACKAGES = {"gpt2-induction": "transformers"}

_THEORY, _SGD, _MIXTURE = "theory", "theory and the toy model by SGD", "theory of paper 2"
_TEXT = "GPT runs on text"
_LAB, _RECALL, _MARKOV = "Transformer runs on regression", "Transformer runs on recall", "runs on the Markov task"

#: In the order of the papers, figures of one kind together.
_KINDS: list[tuple[str, Setting, str]] = [
    ("fig1a fig1b fig1c fig2-left fig2-right", "published", _THEORY),
    ("fig3-left fig3-middle fig3-right", "smaller grid", _LAB),
    ("fig3-large fig3-layernorm fig-lr-batch varied-settings", "ours", _LAB),
    ("fig4-curves fig4-law", "smaller grid", _RECALL),
    ("fig4-layernorm recall-rule recall-embedding recall-pairs recall-joined varied-recall", "ours", _RECALL),
    ("varied-mqar", "ours", "GPT runs on recall"),
    ("fig5-context fig5-cross", "smaller grid", _RECALL),
    ("fig5-cross-128 recall-repeated fig5-late", "ours", _RECALL),
    ("fig6 fig7 fig8", "published", _THEORY),
    ("fig9", "published", _SGD),
    ("fig10", "published", _THEORY),
    ("fig11", "published", _LAB),
    ("fig12 fig13", "smaller grid", _LAB),
    ("fit-censored", "ours", "simulated sweeps"),
    ("fit-halves forecast", "ours", _LAB),
    ("schedule", "ours", f"{_LAB} and recall"),
    ("context-at-equal-tokens text-law text-repetition text-layernorm", "ours", _TEXT),
    ("text-fleet text-natural text-size text-corpora", "ours", _TEXT),
    ("gpt2-induction", "ours", "the package transformers"),
    ("fig13-split fig13-width", "ours", _LAB),
    ("no-residual", "ours", f"{_LAB} and recall"),
    ("fig14", "inferred", _LAB),
    ("fig15", "smaller grid", _LAB),
    ("fig16 fig17", "smaller grid", _RECALL),
    ("attention-maps", "ours", _RECALL),
    ("incremental-fig1 incremental-fig1-maps", "published", _MARKOV),
    ("incremental-fig2 incremental-fig3 incremental-fig3-right", "inferred", _MARKOV),
    ("incremental-fig3-every incremental-fig3-right-once", "ours", _MARKOV),
    ("incremental-fig4", "published", _MARKOV),
    ("incremental-fig5 incremental-fig6 incremental-fig7 incremental-fig8 incremental-fig9", "inferred", _MARKOV),
    ("incremental-fig9-m", "ours", _MARKOV),
    ("incremental-fig10", "inferred", _MIXTURE),
    ("incremental-fig11 incremental-fig12", "inferred", _MARKOV),
    ("incremental-fig12-once", "ours", _MARKOV),
    ("incremental-fig13 incremental-fig14 incremental-fig15", "published", _MARKOV),
    ("incremental-fig16 incremental-fig17", "published", _MARKOV),
    ("incremental-fig18 incremental-fig19", "inferred", _MARKOV),
    ("incremental-figB", "published", _MARKOV),
    ("incremental-regression", "ours", _MIXTURE),
]
_PREFIX = {"emergence": "", "incremental": "incremental-", "text": ""}


def _paper(name: str) -> str:
    return "incremental" if name.startswith(_PREFIX["incremental"]) else "emergence"


@cache
def from_packages() -> dict[str, EntryPoint]:
    """Figures of other installed packages."""
    return {point.name: point for point in entry_points(group="unstuck.figures")}


@cache
def entries() -> Mapping[str, Entry]:
    """All figures: those listed here, then other files and rows, then other packages'."""
    titles = {name: title.partition(": ")[2] or title for name, (_, _, title) in _places().items()}
    listed = ((name, setting, needs) for names, setting, needs in _KINDS for name in names.split())
    found = {name: Entry(name, titles[name], needs, setting) for name, setting, needs in listed}
    found |= {name: Entry(name, shows) for name, shows in titles.items() if name not in found}
    for name, point in from_packages().items():
        found.setdefault(name, Entry(name, f"from {point.value}", "its package"))
    return MappingProxyType(found)


@cache
def _places() -> dict[str, tuple[str, str, str]]:
    """Every figure of ours: its module, its row there if it has no file of its own, and its title."""
    return {
        prefix + name.replace("_", "-"): (f"unstuck.papers.{paper}.{path.stem}", row, title)
        for paper, prefix in _PREFIX.items()
        for path in sorted((Path(__file__).parent / paper).glob("[a-z]*.py"))
        for name, row, title in _figures_of(path)
    }


def _figures_of(path: Path) -> Iterator[tuple[str, str, str]]:
    """Name, row and title of the figures of a file, read without importing it: importing takes PyTorch."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tables = [s.value for s in tree.body if isinstance(s, ast.AnnAssign) and getattr(s.target, "id", "") == "FIGURES"]
    for table in tables:
        assert isinstance(table, ast.Dict)
        for key, row in zip(table.keys, table.values, strict=True):
            assert isinstance(key, ast.Constant)
            assert isinstance(row, ast.Call)
            yield str(key.value), str(key.value), ast.literal_eval(row.args[0])
    if not tables:
        yield path.stem, "", (ast.get_docstring(tree) or path.stem).splitlines()[0].rstrip(".")


def place_of(name: str) -> tuple[str, str]:
    """The module a figure of ours lives in, and its row there if it has no file of its own: `fig6` is
    papers/emergence/fig6.py, `incremental-fig2` the row `fig2` of papers/incremental/figures.py."""
    module, row, _ = _places()[name]
    return module, row


def is_available(name: str) -> bool:
    if name in PACKAGES and find_spec(PACKAGES[name]) is None:
        return False
    return name in from_packages() or name in _places()


def available() -> list[str]:
    """The figures that can be drawn."""
    return [name for name in entries() if is_available(name)]
