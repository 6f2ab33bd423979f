"""What `Watch` costs in a training loop: 50 steps with one look against 50 without, in one run, one thread.

The model is the GPT-2 of the figure `gpt2-induction` (4 layers, width 128, context 128, batch 16) where the package
transformers is installed, else a stack of nn.TransformerEncoderLayer of that size. `--csv FILE` keeps the numbers
(results/watch-cost.csv); the exit code is 1 where the aim is missed.
"""

import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unstuck import Watch
from unstuck.papers.provenance import provenance

CONTEXT, WIDTH, LAYERS, HEADS, BATCH, EVERY, AIM = 128, 128, 4, 4, 16, 50, 0.05


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


def main() -> int:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, loss_of, name = model_and_loss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batch = torch.randint(256, (BATCH, CONTEXT))
    probe = {"input_ids": batch}
    watch = Watch(model, probe, vocabulary=256, tokens=lambda x: {"input_ids": x}, every=EVERY)

    def steps() -> None:
        for _ in range(EVERY):
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    steps()
    watch.look(0)
    plain, looks = [], []
    for _ in range(3):
        start = time.perf_counter()
        steps()
        middle = time.perf_counter()
        watch.look(0)
        plain.append(middle - start)
        looks.append(time.perf_counter() - middle)
    step, look = sorted(plain)[1], sorted(looks)[1]
    print(
        f"{name}: {EVERY} steps take {step:.2f} s, a look {1000 * look:.0f} ms: {look / step:.1%} (aim {AIM:.0%}), "
        f"with {len(watch.rows[0])} numbers a row"
    )
    if "--csv" in sys.argv:
        made, numbers = (
            provenance(),
            {"steps": EVERY, "steps_seconds": step, "look_seconds": look, "share": look / step},
        )
        table = pd.DataFrame([{"model": name, **numbers, "commit": made["commit"], "date": made["date"]}])
        table.to_csv(sys.argv[sys.argv.index("--csv") + 1], index=False, float_format="%.3g")
    return 0 if look / step <= AIM else 1


if __name__ == "__main__":
    sys.exit(main())
