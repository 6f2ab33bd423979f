"""Paper 2 at its own sizes, each ratio in one run, one thread: drawing chains, a step of the minimal and of the full
model, against what a competent user writes.

The baselines: a loop over tokens that computes one next-token law at a time with NumPy; a module with one-hot inputs,
one linear layer a head and matrix, all positions; the published full model in nn.TransformerEncoderLayer over all
positions. The exit code is 1 where an aim is missed.
"""

import math
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from unstuck.config import load_spec
from unstuck.models.post_norm import PUBLISHED_POSITIONS, PostNorm
from unstuck.runner.memory import keep_freed_memory
from unstuck.tasks.markov import Markov
from unstuck.training.loop import Run
from unstuck.training.seeds import stream

SEQUENCES, TOKENS = 12_000, 32
AIM_SAMPLING, AIM_MINIMAL, AIM_FULL = 40, 3, 2


def token_by_token(task: Markov, A: NDArray[np.float32], n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Sequence after sequence, token after token; a column of A is what a one-hot token selects."""
    out = np.empty((n, task.context + task.scored), dtype=np.int64)
    for x in out:
        x[: task.context] = rng.integers(task.d, size=task.context)
        for t in range(task.context, len(x)):
            logits = np.zeros(task.d, dtype=np.float32)
            for k in range(task.groups):
                for lag in task.lags(k):
                    logits += A[k][:, x[t - lag]]
            e = np.exp((logits - logits.max()) / task.tau)
            x[t] = rng.choice(task.d, p=e / e.sum(dtype=np.float64))
    return out


class PlainMinimal(nn.Module):
    """One-hot token beside one-hot position, a linear layer for the queries and the values of each head."""

    def __init__(self, vocabulary: int, T: int, heads: int) -> None:
        super().__init__()
        self.vocabulary, self.width = vocabulary, vocabulary + T
        self.queries = nn.ModuleList(nn.Linear(self.width, self.width, bias=False) for _ in range(heads))
        self.values = nn.ModuleList(nn.Linear(self.width, self.width, bias=False) for _ in range(heads))
        self.register_buffer("mask", torch.full((T, T), -math.inf).triu(1))
        self.register_buffer("positions", torch.eye(T))

    def forward(self, tokens: Tensor) -> Tensor:
        one_hot = F.one_hot(tokens, self.vocabulary).float()
        x = torch.cat([one_hot, self.positions.expand(len(tokens), -1, -1)], dim=-1)  # type: ignore[operator]
        y = torch.zeros_like(x)
        for query, value in zip(self.queries, self.values, strict=True):
            scores = query(x) @ x.transpose(1, 2) / math.sqrt(self.width) + self.mask
            y = y + scores.softmax(-1) @ value(x)
        return y[..., : self.vocabulary]


class PlainFull(nn.Module):
    """The published model in PyTorch's own encoder layer, normalised after each part, with a causal mask: orthogonal
    encoder and decoder, Xavier positions and maps, no biases but the perceptron's. The layer has others, which start at
    zero and cost next to nothing."""

    def __init__(self, vocabulary: int, T: int) -> None:
        super().__init__()
        c = PostNorm()
        self.encoder = nn.Linear(vocabulary, c.width, bias=False)
        self.decoder = nn.Linear(c.width, vocabulary, bias=False)
        nn.init.orthogonal_(self.encoder.weight)
        nn.init.orthogonal_(self.decoder.weight)
        self.positions = nn.Parameter(nn.init.xavier_uniform_(torch.empty(PUBLISHED_POSITIONS, c.width))[:T].clone())
        self.dropout = nn.Dropout(c.dropout)
        self.layer = nn.TransformerEncoderLayer(c.width, c.heads, c.mlp, c.dropout, batch_first=True)
        for name, p in self.layer.named_parameters():
            if p.ndim == 2:
                for part in p.chunk(3) if "in_proj" in name else [p]:
                    nn.init.xavier_uniform_(part)
            elif "norm" not in name:
                nn.init.zeros_(p)
        self.vocabulary = vocabulary
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(T))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.dropout(self.encoder(F.one_hot(tokens, self.vocabulary).float()) + self.positions)
        return self.decoder(self.layer(x, src_mask=self.mask, is_causal=True))


def plain_step(model: nn.Module, task: Markov, data: Tensor, lr: float, clip: float) -> Callable[[], None]:
    """Draw a batch of 3,000 from the training set, predict at every position, score the last ones, step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)

    def step() -> None:
        batch = data[torch.randperm(len(data))[:3000]]
        logits = model(batch[:, :-1])[:, -task.scored :]
        loss = F.cross_entropy(logits.reshape(-1, task.d), batch[:, task.context :].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()

    return step


def seconds(*jobs: Callable[[], object], rounds: int = 5) -> list[float]:
    """The median time of each job, in turns, so that a slow moment of the machine meets them all."""
    for job in jobs:
        job()
    times = [[_time(job) for job in jobs] for _ in range(rounds)]
    return [sorted(column)[rounds // 2] for column in zip(*times, strict=True)]


def _time(job: Callable[[], object]) -> float:
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def sampling() -> bool:
    task = Markov(span=4, scored=TOKENS - 12, sequences=0)
    world = task.world(stream(0, "world"))
    A, rng, few = world["A"].numpy(), np.random.default_rng(0), SEQUENCES // 20
    ours, loop = seconds(
        lambda: task.chain(SEQUENCES, stream(0, "data"), world), lambda: token_by_token(task, A, few, rng), rounds=3
    )
    loop *= SEQUENCES / few
    print(
        f"{SEQUENCES:,} chains of {TOKENS} tokens: token by token {loop:.1f} s ({SEQUENCES / loop:.0f} a second, timed "
        f"on {few}), ours {ours:.2f} s, ratio {loop / ours:.0f} (aim {AIM_SAMPLING})"
    )
    return loop / ours >= AIM_SAMPLING


def steps(spec_name: str, plain: Callable[[Markov], nn.Module], aim: float) -> bool:
    run = Run(load_spec(spec_name, []))
    task, optim = run.task, run.spec.optim
    assert isinstance(task, Markov)
    run.schedule = None  # evaluation is not part of a step
    base = plain_step(plain(task), task, run.world["train"], optim.lr, optim.clip)
    a, b = seconds(base, run._train_step)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:  # as a sweep's workers and `unstuck train` have it
        c = pool.submit(our_step, spec_name).result()
    print(
        f"{spec_name}: plain {a:.2f} s a step, ours {b:.2f} s in the same process, ratio {a / b:.2f} (aim {aim}); in a "
        f"process that keeps freed memory, as a sweep's workers do, {c:.2f} s, ratio {a / c:.2f}"
    )
    return a / b >= aim


def our_step(spec_name: str) -> float:
    torch.set_num_threads(1)
    keep_freed_memory()
    run = Run(load_spec(spec_name, []))
    run.schedule = None
    return seconds(run._train_step)[0]


if __name__ == "__main__":
    torch.set_num_threads(1)
    met = [
        sampling(),
        steps("markov-minimal", lambda task: PlainMinimal(task.d, task.T, 3), AIM_MINIMAL),
        steps("markov-full", lambda task: PlainFull(task.d, task.T), AIM_FULL),
    ]
    sys.exit(0 if all(met) else 1)
