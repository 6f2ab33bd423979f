"""The figures of both papers, and what each needs. A figure can be drawn if its file is here; files beyond the
papers' own figures, and entry points `unstuck.figures` of other packages, are found without being listed."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Literal

#: How near the runs of a figure's `cpu` profile are to the published ones: as published; as published where the
#: authors' settings are known, the rest inferred; a smaller grid; not a figure of the papers.
Setting = Literal["published", "inferred", "smaller grid", "ours"]


@dataclass(frozen=True)
class Entry:
    name: str
    shows: str
    needs: str
    setting: Setting = "published"
    ours: bool = False  # not a figure of the paper

    def __post_init__(self) -> None:
        if self.ours:
            object.__setattr__(self, "setting", "ours")

    @property
    def paper(self) -> str:
        return "incremental" if self.name.startswith("incremental-") else "emergence"


#: Figures that need a package which is not one of ours.
PACKAGES = {"gpt2-induction": "transformers"}

_THEORY, _SGD = "theory", "theory and the toy model by SGD"
_LAB, _RECALL, _MARKOV = "Transformer runs on regression", "Transformer runs on recall", "runs on the Markov task"

_SMALLER: Setting = "smaller grid"

_ENTRIES = [
    Entry("fig1a", "reduced dynamics: loss against time for several d", _THEORY),
    Entry("fig1b", "reduced dynamics: weights move before attention", _THEORY),
    Entry("fig1c", "plateau against T and d, with its power law", _THEORY),
    Entry("fig2-left", "plateau against in-context repetition B and d", _THEORY),
    Entry("fig2-right", "plateau against cross-sample repetition p and d", _THEORY),
    Entry("fig3-left", "Transformer: plateau against d for several T", _LAB, _SMALLER),
    Entry("fig3-middle", "Transformer: plateau against d for several B", _LAB, _SMALLER),
    Entry("fig3-right", "Transformer: plateau against d for several p", _LAB, _SMALLER),
    Entry("fig3-large", "Transformer: plateau at four larger sizes", _LAB, ours=True),
    Entry("fig3-layernorm", "Transformer with layer normalisation", _LAB, ours=True),
    Entry("fig-lr-batch", "Transformer: plateau against learning rate and batch", _LAB, ours=True),
    Entry("fig4-curves", "recall: accuracy curves for several numbers of pairs", _RECALL, _SMALLER),
    Entry("fig4-law", "recall: plateau against vocabulary and pairs", _RECALL, _SMALLER),
    Entry("fig4-layernorm", "recall: with and without layer normalisation", _RECALL, ours=True),
    Entry("recall-rule", "recall: the paper's rule for the query's slots", _RECALL, ours=True),
    Entry("recall-embedding", "recall: the paper's law, and what may explain the factor", _RECALL, ours=True),
    Entry("recall-pairs", "recall: plateau with many pairs", _RECALL, ours=True),
    Entry("recall-joined", "recall: a pair at one position", _RECALL, ours=True),
    Entry("fig5-context", "recall: in-context repetition, clean test data", _RECALL, _SMALLER),
    Entry("fig5-cross", "recall: cross-sample repetition, clean test data", _RECALL, _SMALLER),
    Entry("fig5-cross-128", "recall: cross-sample repetition at 128 tokens", _RECALL, ours=True),
    Entry("recall-repeated", "recall: how many tokens are repeated", _RECALL, ours=True),
    Entry("fig5-late", "recall: strong repetition, trained four times as long", _RECALL, ours=True),
    Entry("fig6", "loss landscape with the flow on it", _THEORY),
    Entry("fig7", "early dynamics against the linear approximation", _THEORY),
    Entry("fig8", "equilibrium weight, weight along the flow, Hessian eigenvalues", _THEORY),
    Entry("fig9", "SGD on the real toy model against the reduced flow", _SGD),
    Entry("fig10", "cross-sample flow: loss, weights, attention for several p", _THEORY),
    Entry("fig11", "Transformer: loss curves", _LAB),
    Entry("fig12", "Transformer: loss curves with p, repeated and clean test data", _LAB, _SMALLER),
    Entry("fig13", "Transformer: layers and heads", _LAB, _SMALLER),
    Entry("fit-censored", "laws from runs of which some did not emerge", "simulated sweeps", ours=True),
    Entry("fit-halves", "a law of small sizes, tested on large ones", _LAB, ours=True),
    Entry("forecast", "the plateau's end, forecast while the loss is flat", _LAB, ours=True),
    Entry(
        "schedule",
        "repeat only while stuck: an adaptive schedule against fixed repetition",
        f"{_LAB} and recall",
        ours=True,
    ),
    Entry("gpt2-induction", "a small GPT-2 watched: induction heads form", "the package transformers", ours=True),
    Entry("fig13-split", "Transformer: heads that share the width", _LAB, ours=True),
    Entry("fig13-width", "Transformer: a residual stream of 64 a head", _LAB, ours=True),
    Entry("no-residual", "Transformer without residual connections", f"{_LAB} and recall", ours=True),
    Entry("fig14", "Transformer: position and relevance feature", _LAB, "inferred"),
    Entry("fig15", "Transformer: SGD against Adam", _LAB, _SMALLER),
    Entry("fig16", "recall: repetition, training-like data", _RECALL, _SMALLER),
    Entry("fig17", "recall: accuracy and attention over training", _RECALL, _SMALLER),
    Entry("attention-maps", "recall: where the circuit looks, over training", _RECALL, ours=True),
    Entry("incremental-fig1", "minimal model: loss, KL to truncated truths", _MARKOV),
    Entry("incremental-fig1-maps", "minimal model: attention maps", _MARKOV),
    Entry("incremental-fig2", "full model: attention maps", _MARKOV),
    Entry("incremental-fig3", "full model: KL to truncated truths", _MARKOV),
    Entry("incremental-fig3-right", "full model: KL to models of restricted context", _MARKOV),
    Entry("incremental-fig4", "minimal model: start of the queries, importance ratio", _MARKOV),
    Entry("incremental-fig5", "size of the training set, early stopping", _MARKOV, "inferred"),
    Entry("incremental-fig6", "new data at every step: attention maps", _MARKOV, "inferred"),
    Entry("incremental-fig7", "new data at every step: loss and KL", _MARKOV, "inferred"),
    Entry("incremental-fig8", "farthest group most important: attention maps", _MARKOV, "inferred"),
    Entry("incremental-fig9", "farthest group most important: loss and KL", _MARKOV, "inferred"),
    Entry("incremental-fig10", "gradient-flow simulation of the heads", "theory of paper 2", "inferred"),
    Entry("incremental-fig11", "minimal model, two layers: loss and KL", _MARKOV, "inferred"),
    Entry("incremental-fig12", "full model, two layers: loss and KL", _MARKOV, "inferred"),
    Entry("incremental-fig13", "uneven weights in a span: KL to models of restricted context", _MARKOV),
    Entry("incremental-fig14", "uneven weights in a span: attention maps", _MARKOV),
    Entry("incremental-fig15", "overlapping groups: loss, KL to models of restricted context", _MARKOV),
    Entry("incremental-fig16", "overlapping groups, 3 heads: a map a head", _MARKOV),
    Entry("incremental-fig17", "overlapping groups, 4 heads: a map a head", _MARKOV),
    Entry("incremental-fig18", "SGD: KL to models of restricted context", _MARKOV, "inferred"),
    Entry("incremental-fig19", "SGD: attention maps", _MARKOV, "inferred"),
    Entry("incremental-figB", "attention and value alignment of each head", _MARKOV),
    Entry("incremental-regression", "regression variant: descent beside the flow", "theory of paper 2", ours=True),
]

CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}
_PREFIX = {"emergence": "", "incremental": "incremental-"}


@cache
def from_packages() -> dict[str, EntryPoint]:
    """Figures of other installed packages."""
    return {point.name: point for point in entry_points(group="unstuck.figures")}


@cache
def entries() -> Mapping[str, Entry]:
    """All figures: the papers' own, then those of our own that have a file, then other packages'."""
    found = dict(CATALOGUE)
    for paper, prefix in _PREFIX.items():
        for path in sorted(_folder(paper).glob("[a-z]*.py")):
            name = prefix + path.stem.replace("_", "-")
            if name not in found and path.stem != "figures":
                first = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or name).splitlines()[0]
                found[name] = Entry(name, first.removeprefix(f"{name}: ").rstrip("."), "theory", ours=True)
    for name, point in from_packages().items():
        found.setdefault(name, Entry(name, f"from {point.value}", "its package", ours=True))
    return MappingProxyType(found)


def place_of(name: str) -> tuple[str, str]:
    """The module a figure of ours lives in, and its row there if it has no file of its own: `fig2-left` is
    papers/emergence/fig2_left.py, `incremental-fig2` the row `fig2` of papers/incremental/figures.py."""
    paper = "incremental" if name.startswith("incremental-") else "emergence"
    short = name.removeprefix("incremental-")
    file = short.replace("-", "_")
    if not (_folder(paper) / f"{file}.py").is_file() and (_folder(paper) / "figures.py").is_file():
        return f"unstuck.papers.{paper}.figures", short
    return f"unstuck.papers.{paper}.{file}", ""


def is_available(name: str) -> bool:
    if name in PACKAGES and find_spec(PACKAGES[name]) is None:
        return False
    if name in from_packages():
        return True
    module, row = place_of(name)
    return bool(row) or find_spec(module) is not None


def available() -> list[str]:
    """The figures that can be drawn."""
    return [name for name in entries() if is_available(name)]


def _folder(paper: str) -> Path:
    return Path(__file__).parent / paper
