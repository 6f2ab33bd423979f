"""Runs of Transformers that are not our laboratory's, to fit and to test forecasts: results/strangers*.csv.gz.

    python tools/strangers.py             strangers.csv.gz: six tasks, on which models of forecasts are fitted
    python tools/strangers.py --unseen    strangers-unseen.csv.gz: three other tasks, and the shipped model's scores

A run is a small nn.TransformerEncoder of PyTorch's, watched as a user watches it. It looks up one token of a sequence:
the one that is marked, say, or the one that follows a mark (`TASKS`). Its task, model and training are drawn from its
seed. In one of eight runs the answers belong to other sequences, so that there is nothing to learn. A run ends when its
loss is a twentieth of that of a guess, or after 3,000 steps. Runs that
a file has are not repeated.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unstuck.attach import Watch
from unstuck.columns import STEP, TEST_LOSS, place
from unstuck.forecast import Forecaster
from unstuck.forecast.features import KINDS
from unstuck.forecast.runs import CONTROL, moments, strangers
from unstuck.forecast.scoring import scores

RESULTS = Path(__file__).parents[1] / "results"
CURVES, UNSEEN_CURVES = RESULTS / "strangers.csv.gz", RESULTS / "strangers-unseen.csv.gz"
SCORES = RESULTS / "strangers-scores.csv"
RUNS, UNSEEN_RUNS, FIRST_UNSEEN = 120, 36, 1000  # how many, and the first seed of a run of an unseen task
MODEL, GROUP = "survival model", "unseen tasks"
MEASURES, PARTS = ("error", "coverage", "answered"), ("15-30%", "30-50%", "50-70%", "70-100%", "from 15%", "all")
STEPS, SHUFFLED, PROBE = 3000, 1000, 64
SOLVED = 0.05  # of the loss of a guess
KEPT = ("attention", "selectivity")
FIXED, MARK = 4, 2  # seed of what a run's sequences share; tokens beside those of the task: a mark and the question


@dataclass(frozen=True)
class Settings:
    """What differs from run to run."""

    task: str
    T: int
    tokens: int
    squares: bool
    shuffled: bool
    layers: int
    heads: int
    width: int
    norm_first: bool
    causal: bool
    gelu: bool
    dropout: float
    lr: float
    warmup: int
    batch: int
    adamw: bool
    every: int

    @classmethod
    def drawn(cls, seed: int) -> "Settings":
        rng = np.random.default_rng(seed)

        def one_of(values: Sequence[Any]) -> Any:
            return values[int(rng.integers(len(values)))]

        tasks = list(TASKS if seed < FIRST_UNSEEN else UNSEEN)
        task = tasks[seed % len(tasks)]
        return cls(
            task=task,
            T=one_of([16, 24, 32, 48]),
            tokens=one_of([16, 32, 64]),
            squares=one_of([False, False, True]),
            shuffled=one_of([False] * 7 + [True]),
            layers=one_of([1, 2, 3] if task in ONE_STEP else [2, 3]),
            heads=one_of([2, 4]),
            width=one_of([32, 64]),
            norm_first=one_of([False, True]),
            causal=one_of([False, True]),
            gelu=one_of([False, True]),
            dropout=one_of([0.0, 0.0, 0.1]),
            lr=one_of([5e-5, 1e-4, 2e-4, 4e-4]),
            warmup=one_of([0, 0, 200]),
            batch=one_of([32, 64]),
            adamw=one_of([False, True]),
            every=one_of([5, 10, 20]),
        )

    @property
    def size(self) -> str:
        return f"{self.task} T={self.T} tokens={self.tokens}"


# -- tasks: (n, T) tokens, the (n,) question, the (n,) answer, and (n, T) where it is found

Drawn = tuple[Tensor, Tensor, Tensor, Tensor]


def _plain(s: Settings, n: int, rng: torch.Generator) -> Drawn:
    """Random tokens, a question that is always the same, and a place at random."""
    x, at = torch.randint(s.tokens, (n, s.T), generator=rng), torch.randint(s.T, (n,), generator=rng)
    return x, torch.full((n,), 2 * s.tokens + 1), x[torch.arange(n), at], F.one_hot(at, s.T).bool()


def marked(s: Settings, n: int, rng: torch.Generator) -> Drawn:
    """The token that is marked."""
    x, query, answer, where = _plain(s, n, rng)
    return x + s.tokens * where, query, answer, where


def placed(s: Settings, n: int, rng: torch.Generator) -> Drawn:
    """The token at a place that is always the same."""
    x, query, _, _ = _plain(s, n, rng)
    at = s.T // 3
    return x, query, x[:, at], F.one_hot(torch.full((n,), at), s.T).bool()


def largest(s: Settings, n: int, rng: torch.Generator) -> Drawn:
    """The token with the largest number."""
    x, query, _, _ = _plain(s, n, rng)
    answer = x.amax(1)
    return x, query, answer, x == answer[:, None]


def after(s: Settings, n: int, rng: torch.Generator) -> Drawn:
    """The token that follows a mark."""
    x, query, _, where = _plain(s, n, rng)
    next_one = where.roll(1, dims=1)  # after the last token comes the first
    return x.masked_fill(where, 2 * s.tokens), query, x[next_one], next_one


def keyed(s: Settings, n: int, rng: torch.Generator) -> Drawn:
    """The value that follows the key asked for, in a list of up to six keys and values."""
    pairs = min(s.T // 2, 6)
    keys = torch.rand(n, s.tokens, generator=rng).argsort(1)[:, :pairs]
    values = torch.randint(s.tokens, (n, pairs), generator=rng)
    x = torch.stack([keys, values + s.tokens], dim=2).flatten(1)
    rows, at = torch.arange(n), torch.randint(pairs, (n,), generator=rng)
    return x, keys[rows, at], values[rows, at], F.one_hot(2 * at + 1, 2 * pairs).bool()


def matched(s: Settings, n: int, rng: torch.Generator) -> Drawn:
    """The second part of the token whose first part is asked for; a token has two parts, each one of few."""
    parts = math.isqrt(2 * s.tokens)
    many = min(s.T, parts)
    first = torch.rand(n, parts, generator=rng).argsort(1)[:, :many]
    second = torch.randint(parts, (n, many), generator=rng)
    rows, at = torch.arange(n), torch.randint(many, (n,), generator=rng)
    return first * parts + second, first[rows, at], second[rows, at], F.one_hot(at, many).bool()


TASKS: dict[str, Callable[[Settings, int, torch.Generator], Drawn]] = {
    task.__name__: task for task in (marked, placed, largest, after, keyed, matched)
}


def before(s: Settings, n: int, rng: torch.Generator) -> Drawn:
    """The token that precedes a mark."""
    x, query, _, where = _plain(s, n, rng)
    last = where.roll(-1, dims=1)  # before the first token comes the last
    return x.masked_fill(where, 2 * s.tokens), query, x[last], last


def latest(s: Settings, n: int, rng: torch.Generator) -> Drawn:
    """The later one of two tokens that are marked."""
    x, query, _, _ = _plain(s, n, rng)
    both = torch.rand(n, s.T, generator=rng).argsort(1)[:, :2]
    late = F.one_hot(both.amax(1), s.T).bool()
    return x + s.tokens * (late | F.one_hot(both.amin(1), s.T).bool()), query, x[late], late


def repeated(s: Settings, n: int, rng: torch.Generator) -> Drawn:
    """The token that followed an earlier occurrence of the last one."""
    x, _, _, _ = _plain(s, n, rng)
    rows, at = torch.arange(n), torch.randint(s.T - 1, (n,), generator=rng)
    x[rows, at] += s.tokens  # a token that occurs nowhere else
    return x, x[rows, at], x[rows, at + 1], F.one_hot(at + 1, s.T).bool()


UNSEEN: dict[str, Callable[[Settings, int, torch.Generator], Drawn]] = {
    task.__name__: task for task in (before, latest, repeated)
}
ONE_STEP = {"marked", "placed", "largest", "matched", "latest"}  # those that one layer can learn


# -- models and training


class Encoder(nn.Module):
    """Embedding, learned positions, encoder, and a linear map at the last position."""

    def __init__(self, s: Settings) -> None:
        super().__init__()
        self.causal = s.causal
        self.embed = nn.Embedding(2 * s.tokens + MARK, s.width)
        self.places = nn.Parameter(0.02 * torch.randn(s.T + 1, s.width))
        layer = nn.TransformerEncoderLayer(
            s.width,
            s.heads,
            2 * s.width,
            dropout=s.dropout,
            activation="gelu" if s.gelu else "relu",
            batch_first=True,
            norm_first=s.norm_first,
        )
        self.encoder = nn.TransformerEncoder(layer, s.layers, enable_nested_tensor=False)
        self.read = nn.Linear(s.width, s.tokens)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1]) if self.causal else None
        found = self.encoder(self.embed(x) + self.places[: x.shape[1]], mask=mask, is_causal=self.causal)
        said: Tensor = self.read(found[:, -1])
        return said


def draw(s: Settings, n: int, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Sequences that end with a question, answers, and where each answer is found."""
    x, query, answer, where = (TASKS | UNSEEN)[s.task](s, n, rng)
    answer = answer[torch.randperm(n, generator=rng)] if s.shuffled else answer
    return torch.cat([x, query[:, None]], dim=1), answer, F.pad(where, (0, 1))


def trained(seed: int) -> pd.DataFrame:
    """The curve of one training, with its settings as columns."""
    torch.set_num_threads(1)
    s = Settings.drawn(seed)
    torch.manual_seed(seed)
    model, rng = Encoder(s), torch.Generator().manual_seed(seed)
    optimizer = (torch.optim.AdamW if s.adamw else torch.optim.Adam)(model.parameters(), lr=s.lr)
    slowly = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / (s.warmup + 1)))
    code = torch.randn(s.tokens, s.tokens, generator=torch.Generator().manual_seed(FIXED))
    probe, _, targets = draw(s, PROBE, torch.Generator().manual_seed(10**6 + seed))
    watch, losses = Watch(model, probe, targets=targets, every=s.every), list[float]()
    guess = float(code.var()) if s.squares else math.log(s.tokens)
    for step in range(1, (SHUFFLED if s.shuffled else STEPS) + 1):
        x, answer, _ = draw(s, s.batch, rng)
        loss = F.mse_loss(model(x), code[answer]) if s.squares else F.cross_entropy(model(x), answer)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        slowly.step()
        losses.append(loss.item())
        recent = float(np.mean(losses[-s.every :]))
        watch(step, loss=recent)
        if recent < SOLVED * guess:
            break
    table = watch.curve.to_frame().rename(columns={"loss": TEST_LOSS})
    kept = [c for c in table if c in (STEP, TEST_LOSS) or ((found := place(c)) and found[0] in KEPT)]
    return table[kept].assign(seed=seed, **asdict(s))


def curves(missing: Sequence[int], workers: int) -> Iterator[pd.DataFrame]:
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(trained, missing)


def measured(file: Path, seeds: range, workers: int) -> pd.DataFrame:
    """The curves of a file, which gets those that it lacks."""
    table = pd.read_csv(file) if file.exists() else pd.DataFrame({"seed": []})
    for curve in curves(sorted(set(seeds) - set(table["seed"])), workers):
        table = pd.concat([table, curve], ignore_index=True)
        table.to_csv(file, index=False, float_format="%.4g", compression={"method": "gzip", "mtime": 0})
        print(" ".join(f"{f.name}={curve[f.name].iloc[0]}" for f in fields(Settings)), end=": ")
        print(f"step {curve[STEP].iloc[-1]:.0f}, loss {curve[TEST_LOSS].iloc[-1]:.3f}", flush=True)
    return table


def answers(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """What the shipped model says at each moment of each run, as columns of a table that `scores` takes."""
    for run in strangers(table):
        for step, evidence, event in moments(run, KINDS["attention"]):
            said = Forecaster("attention").from_evidence(evidence)
            low, high = said.interval() or (math.nan, math.nan)
            yield {
                **{"entrant": MODEL, "group": CONTROL if run.family == CONTROL else GROUP, "setting": ""},
                **{"run_id": run.run_id, "since": evidence.since, "step": step},
                **{"event": math.nan if event is None else event, "last": float(run.curve.steps.max())},
                **{"median": math.nan if said.step is None else said.step, "low": low, "high": high},
                **{"soon": said.probability, "unlike": float(said.notes.unlike)},
            }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--unseen", action="store_true", help="the tasks of the test, and its scores")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    if not arguments.unseen:
        measured(CURVES, range(RUNS), arguments.workers)
        return 0
    table = measured(UNSEEN_CURVES, range(FIRST_UNSEEN, FIRST_UNSEEN + UNSEEN_RUNS), arguments.workers)
    found = scores(pd.DataFrame(answers(table)))
    shown = found["measure"].isin(MEASURES) & found["part"].isin(PARTS) & (found["group"] == GROUP)
    found = found[shown][["measure", "part", "value", "low", "high", "runs"]]
    found.to_csv(SCORES, index=False, float_format="%.3f")
    print(found.to_string())
    return 0


if __name__ == "__main__":
    sys.exit(main())
