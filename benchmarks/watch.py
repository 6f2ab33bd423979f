"""What `unstuck.watch(model, optimizer)` costs at its default: the same training with and without it, in one run, one
thread.

The model is the GPT-2 of the figure `gpt2-induction` (4 layers, width 128, context 128, batch 16) where the package
transformers is installed, else a stack of nn.TransformerEncoderLayer of that size. Two equal models are trained on the
same batches in turns of a few steps, one of them watched; times are those of the processor. At the end their weights
must be equal bit by bit. The error of the share is twice its standard error, from the differences of the turns: with
the default of 60 steps it may be larger than the aim, and on a busy machine it is. `--steps N` trains longer, `--csv
FILE` keeps the numbers (results/watch-cost.csv: `--steps 600` on an idle machine, some six minutes); the exit code is 1
where the aim is missed.
"""

import copy
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import unstuck
from unstuck.papers.provenance import provenance

CONTEXT, WIDTH, LAYERS, HEADS, BATCH, STEPS, TURN, AIM = 128, 128, 4, 4, 16, 60, 5, 0.02


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, batch_first=True, norm_first=True)
        self.blocks, self.out = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False), nn.Linear(WIDTH, 256)

    def forward(self, input_ids: Tensor) -> Tensor:
        n = input_ids.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(n)
        x = self.embed(input_ids) + self.places(torch.arange(n))
        return self.out(self.blocks(x, mask=mask, is_causal=True))


def model_and_loss() -> tuple[nn.Module, Callable[[nn.Module, Tensor], Tensor], str]:
    if find_spec("transformers") is None:
        return Stack(), _next_token, "nn.TransformerEncoderLayer"
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes: dict[str, Any] = {"n_positions": CONTEXT, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, bos_token_id=0, eos_token_id=0, **sizes))
    return model, lambda model, batch: model(input_ids=batch, labels=batch).loss, "GPT-2 of transformers"


def _next_token(model: nn.Module, batch: Tensor) -> Tensor:
    return F.cross_entropy(model(batch)[:, :-1].flatten(0, 1), batch[:, 1:].flatten())


def option(name: str) -> str | None:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None


def main() -> int:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    watched, loss_of, name = model_and_loss()
    alone = copy.deepcopy(watched)
    steps = int(option("--steps") or STEPS)
    batches = torch.randint(256, (steps, BATCH, CONTEXT))
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-3) for model in (alone, watched)]
    turns: tuple[list[float], list[float]] = ([], [])  # seconds of each
    began = 0.0

    def clock() -> float:
        """Of the watched training alone."""
        return sum(turns[1]) + time.process_time() - began

    def turn(which: int, part: Tensor) -> None:
        nonlocal began
        model, optimizer = (alone, watched)[which], optimizers[which]
        torch.manual_seed(int(part[0, 0, 0]))  # of dropout
        began = time.process_time()
        for batch in part:
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        turns[which].append(time.process_time() - began)

    with tempfile.TemporaryDirectory() as out:
        for which in (0, 1):
            turn(which, batches[:TURN])  # to warm up
            turns[which].clear()
        watch = unstuck.watch(watched, optimizers[1], out=Path(out) / "run", step=TURN)
        watch.pace.clock = clock
        assert watch.watch is not None
        for kind, work in (("look", watch.watch.measure), ("report", watch.report)):  # again, by this clock
            start = time.process_time()
            work()
            watch.pace.expect(kind, time.process_time() - start)
        for first in range(TURN, steps, TURN):
            for which in (0, 1):
                turn(which, batches[first : first + TURN])
        rows = len(watch.curve.complete("induction"))
        watch.close()
    same = all(torch.equal(a, b) for a, b in zip(alone.parameters(), watched.parameters(), strict=True))
    seconds = np.array(turns).sum(1)
    share, done = seconds[1] / seconds[0] - 1, steps - TURN
    differences = np.subtract(turns[1], turns[0])
    error = 2 * np.sqrt(len(differences)) * differences.std(ddof=1) / seconds[0]
    print(
        f"{name}: {done} steps take {seconds[0]:.2f} s, watched {seconds[1]:.2f} s with {rows} measurements: "
        f"{share:+.2%} ± {error:.2%} (aim {AIM:.0%}); its own clock counts {watch.pace.spent:.2f} s; "
        f"the same bits: {same}"
    )
    if (path := option("--csv")) is not None:
        made = provenance()
        numbers = {
            "steps": done,
            "steps_seconds": seconds[0],
            "watched_seconds": seconds[1],
            "share": share,
            "error": error,
        }
        numbers |= {"measurements": rows, "same_bits": same}
        table = pd.DataFrame([{"model": name, **numbers, "commit": made["commit"], "date": made["date"]}])
        table.to_csv(path, index=False, float_format="%.3g")
    return 0 if share <= AIM and same else 1


if __name__ == "__main__":
    sys.exit(main())
