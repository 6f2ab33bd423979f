"""How forecasts fare on Transformers that are not our laboratory's: results/strangers.csv and strangers-scores.csv.

    python tools/strangers.py --runs 40

A run is a small nn.TransformerEncoder of PyTorch's, with layer normalisation before or after each part, trained by
cross-entropy to name the one token of a sequence that is marked, and watched as a user watches it. Sizes, learning
rate, batch and optimiser are drawn from its seed. It ends when its loss is a twentieth of that of a guess, or after
4,000 steps. The shipped model, which was fitted on no such run, forecasts each at the moments of the benchmark. Runs
that the file has are not repeated; the scores are made again.
"""

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unstuck.attach import Watch
from unstuck.columns import STEP, TEST_LOSS, place
from unstuck.curve import Curve
from unstuck.forecast import Forecaster
from unstuck.forecast.features import KINDS
from unstuck.forecast.runs import MeasuredRun, moments
from unstuck.forecast.scoring import scores

RESULTS = Path(__file__).parents[1] / "results"
CURVES, SCORES = RESULTS / "strangers.csv", RESULTS / "strangers-scores.csv"
STEPS, EVERY, PROBE = 4000, 10, 64
SOLVED = 0.05  # of the loss of a guess
KEPT = ("attention", "selectivity")
ENTRANT, GROUP = "survival model", "strangers' models"
MEASURES, PARTS = ("error", "coverage", "answered"), ("30-50%", "50-70%", "70-100%", "from 15%")


@dataclass(frozen=True)
class Settings:
    """What differs from run to run."""

    T: int
    tokens: int
    layers: int
    heads: int
    width: int
    norm_first: bool
    lr: float
    batch: int
    adamw: bool

    @classmethod
    def drawn(cls, seed: int) -> "Settings":
        rng = np.random.default_rng(seed)

        def one_of(values: Sequence[Any]) -> Any:
            return values[int(rng.integers(len(values)))]

        return cls(
            T=one_of([12, 16, 24, 32, 48]),
            tokens=one_of([16, 32, 64]),
            layers=one_of([1, 2, 3]),
            heads=one_of([2, 4]),
            width=one_of([32, 64, 128]),
            norm_first=one_of([False, True]),
            lr=one_of([1e-4, 2e-4, 4e-4, 8e-4]),
            batch=one_of([32, 64]),
            adamw=one_of([False, True]),
        )


class Encoder(nn.Module):
    """Embedding, learned positions, encoder, and a linear map at the last position."""

    def __init__(self, s: Settings) -> None:
        super().__init__()
        self.embed = nn.Embedding(2 * s.tokens + 1, s.width)
        self.places = nn.Parameter(0.02 * torch.randn(s.T + 1, s.width))
        layer = nn.TransformerEncoderLayer(
            s.width, s.heads, 2 * s.width, dropout=0.0, batch_first=True, norm_first=s.norm_first
        )
        self.encoder = nn.TransformerEncoder(layer, s.layers, enable_nested_tensor=False)
        self.read = nn.Linear(s.width, s.tokens)

    def forward(self, x: Tensor) -> Tensor:
        said: Tensor = self.read(self.encoder(self.embed(x) + self.places)[:, -1])
        return said


def draw(s: Settings, n: int, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Sequences of T tokens, one of them marked, and a query, (n, T + 1); answers, (n,); where the marked token is."""
    x = torch.randint(s.tokens, (n, s.T), generator=rng)
    rows, at = torch.arange(n), torch.randint(s.T, (n,), generator=rng)
    answer = x[rows, at].clone()
    x[rows, at] += s.tokens
    return F.pad(x, (0, 1), value=2 * s.tokens), answer, F.pad(F.one_hot(at, s.T).bool(), (0, 1))


def trained(seed: int) -> pd.DataFrame:
    """The curve of one training, and its settings as columns."""
    s = Settings.drawn(seed)
    torch.manual_seed(seed)
    model, rng = Encoder(s), torch.Generator().manual_seed(seed)
    optimizer = (torch.optim.AdamW if s.adamw else torch.optim.Adam)(model.parameters(), lr=s.lr)
    probe, _, targets = draw(s, PROBE, torch.Generator().manual_seed(10**6 + seed))
    watch, losses = Watch(model, probe, targets=targets, every=EVERY), list[float]()
    for step in range(1, STEPS + 1):
        x, answer, _ = draw(s, s.batch, rng)
        loss = F.cross_entropy(model(x), answer)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        recent = float(np.mean(losses[-EVERY:]))
        watch(step, loss=recent)
        if recent < SOLVED * math.log(s.tokens):
            break
    table = watch.curve.to_frame().rename(columns={"loss": TEST_LOSS})
    kept = [c for c in table if c in (STEP, TEST_LOSS) or ((found := place(c)) and found[0] in KEPT)]
    return table[kept].assign(seed=seed, **asdict(s))


def answers(curves: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """What the shipped model says at each moment of each run, as columns of a table that `scores` takes."""
    settings = [name for name in curves if name in Settings.__dataclass_fields__]
    for seed, rows in curves.groupby("seed"):
        curve = Curve.from_frame(rows.drop(columns=["seed", *settings]).dropna(axis=1, how="all"), "watch")
        run = MeasuredRun(f"stranger {seed}", GROUP, {"seed": seed}, curve)
        for step, evidence, event in moments(run, KINDS["attention"]):
            said = Forecaster("attention").from_evidence(evidence)
            low, high = said.interval() or (math.nan, math.nan)
            yield {
                **{"entrant": ENTRANT, "group": GROUP, "setting": "", "run_id": run.run_id, "since": evidence.since},
                **{"step": step, "event": math.nan if event is None else event, "last": float(curve.steps.max())},
                **{"median": math.nan if said.step is None else said.step, "low": low, "high": high},
                **{"soon": said.probability, "unlike": float(said.notes.unlike)},
            }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    table = pd.read_csv(CURVES) if CURVES.exists() else pd.DataFrame({"seed": []})
    for seed in sorted(set(range(arguments.runs)) - set(table["seed"])):
        table = pd.concat([table, trained(seed)], ignore_index=True)
        table.to_csv(CURVES, index=False, float_format="%.6g")
        print(f"seed {seed}: step {table[STEP].iloc[-1]:.0f}, loss {table[TEST_LOSS].iloc[-1]:.3f}", flush=True)
    found = scores(pd.DataFrame(answers(table)))
    shown = found["measure"].isin(MEASURES) & found["part"].isin(PARTS) & (found["group"] == GROUP)
    found = found[shown][["measure", "part", "value", "low", "high", "runs"]]
    found.to_csv(SCORES, index=False, float_format="%.3f")
    print(found.to_string())
    return 0


if __name__ == "__main__":
    sys.exit(main())
