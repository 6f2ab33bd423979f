"""gpt2-induction: induction heads of a small GPT-2 form, watched from outside, without and with repetition in context.

Not in the paper. A randomly initialised Hugging Face GPT-2 learns the bytes of Python's standard library; `Watch`
measures its attention every few steps. In the second run half of the training sequences repeat their first half. Both
runs are tested on plain text. Needs `pip install transformers`.
"""

import sysconfig
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

from unstuck.attach import Watch
from unstuck.columns import TEST_LOSS
from unstuck.curve import Curve
from unstuck.errors import InvalidCombination
from unstuck.forecast import KINDS, CircuitRule, Forecaster
from unstuck.forecast.runs import MeasuredRun, moments
from unstuck.papers.figure import Claim, Job, Profile, Progress
from unstuck.papers.style import BLUE, ORANGE, legend_outside, panels
from unstuck.runner.cost import GPU_STEP

SIZES = {
    "quick": {"layers": 2, "width": 32, "context": 32, "steps": 60, "every": 20},
    "cpu": {"layers": 4, "width": 128, "context": 128, "steps": 6000, "every": 50},
    "paper": {"layers": 4, "width": 128, "context": 128, "steps": 10_000, "every": 50},
}
BATCH, RATE, TEST, HEADS = 16, 1e-3, 64, 4
REPEATED = 0.5  # fraction of the sequences of the second run
RARE = 1e-3  # fraction of the text: commoner bytes make the random sequences on which induction is scored
COLOURS = {"plain text": BLUE, "half of it repeats itself": ORANGE}
FORMED = CircuitRule().score  # induction score at which heads have formed


def plan(profile: Profile) -> list[Job]:
    size = SIZES[profile]
    step = 0.02 if profile == "quick" else 0.25
    steps = len(COLOURS) * size["steps"]
    weights = 12 * size["layers"] * size["width"] ** 2 + 256 * size["width"]
    flops = 6.0 * steps * BATCH * size["context"] * weights
    return [Job("GPT-2 run", len(COLOURS), steps * step, steps, flops, steps * GPU_STEP / 3600)]


def text() -> Tensor:
    """The sources of Python's standard library, one after the other, as bytes."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    return torch.frombuffer(bytearray(b"".join(path.read_bytes() for path in files)), dtype=torch.uint8).long()


def data(profile: Profile, progress: Progress) -> pd.DataFrame:
    size = SIZES[profile]
    whole = text()
    cut = int(0.9 * len(whole))
    done = 0
    parts = []
    for name in COLOURS:
        for row in train(whole[:cut], whole[cut:], REPEATED if name != "plain text" else 0.0, **size):
            parts.append({"data": name, **row})
            done += size["every"]
            progress(min(done, len(COLOURS) * size["steps"]), len(COLOURS) * size["steps"])
    return pd.DataFrame(parts)


def train(
    text: Tensor, held_out: Tensor, repeated: float, layers: int, width: int, context: int, steps: int, every: int
) -> list[dict[str, float]]:
    """Train a model and return the rows that its `Watch` recorded."""
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError as e:
        raise InvalidCombination("transformers is not installed; pip install transformers brings it") from e
    torch.manual_seed(0)
    rng = torch.Generator().manual_seed(1)
    config = GPT2Config(
        vocab_size=256,
        n_positions=context,
        n_embd=width,
        n_layer=layers,
        n_head=HEADS,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    test = draw_batch(held_out, TEST, context, torch.Generator().manual_seed(2))
    probe, length = {"input_ids": test[:16]}, min(48, context)
    known = (torch.bincount(text, minlength=256) > RARE * len(text)).nonzero()[:, 0].tolist()
    watch = Watch(model, probe, vocabulary=known, length=length, tokens=lambda x: {"input_ids": x}, every=every)
    for step in range(steps + 1):
        batch = draw_batch(text, BATCH, context, rng, repeated)
        if step % every == 0:
            with torch.no_grad():
                model.eval()
                tested = model(input_ids=test, labels=test).loss
                model.train()
            watch(step, test_loss=tested)
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return watch.rows


def draw_batch(text: Tensor, n: int, length: int, rng: torch.Generator, repeated: float = 0.0) -> Tensor:
    """n pieces of the text; a fraction `repeated` of them have their first half in place of the second."""
    starts = torch.randint(len(text) - length, (n,), generator=rng)
    batch = text[starts[:, None] + torch.arange(length)]
    again = torch.rand(n, generator=rng) < repeated
    half = length // 2
    batch[again, half : 2 * half] = batch[again, :half]
    return batch


def draw(table: pd.DataFrame) -> Figure:
    picture, (left, right) = panels(2, width=4.4)
    for name, colour in COLOURS.items():
        rows = table[table["data"] == name]
        left.plot(rows["step"], rows[TEST_LOSS], color=colour, label=name)
        curve = Curve.from_frame(rows, "watch")
        for head in curve.flat("induction").T:
            right.plot(curve.steps, head, color=colour, lw=0.5, alpha=0.4)
        right.plot(curve.steps, curve.best("induction"), color=colour, lw=1.8)
    left.set(xlabel="step", ylabel="test loss on plain text (nats a byte)")
    right.set(xlabel="step", ylabel="induction score; strong: best head", ylim=(0, None))
    legend_outside(picture, left)
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    claims = []
    for name, rows in table.groupby("data", sort=False):
        curve = Curve.from_frame(rows, "watch")
        best, steps = curve.best("induction"), curve.steps
        for level, what in ((2 * best[0], "twice its start"), (FORMED, f"{FORMED:g}")):
            first = np.flatnonzero(best >= level)
            passed = f"step {steps[first[0]]:.0f}" if len(first) else f"not by step {steps[-1]:.0f}"
            claims.append(Claim(f"{name}: a head's induction score passes {what} at", passed))
        asked = [moment.step for moment in moments(MeasuredRun(str(name), "gpt2", {}, curve), KINDS["induction"])]
        said = {step: Forecaster("induction").from_attention(curve.truncate(step)) for step in asked}
        seen = ", ".join(f"{step:,.0f}: {f.step:,.0f}" for step, f in said.items() if f.step is not None)
        note = f"asked at {len(asked)} steps before it; at the others no end is predicted"
        claims.append(Claim(f"{name}: step forecast from the induction score", seen or "none", note=note))
        claims.append(Claim(f"{name}: best induction score at the end", f"{best[-1]:.2f}"))
        claims.append(Claim(f"{name}: test loss at the end", f"{rows[TEST_LOSS].iloc[-1]:.3f}"))
    losses = table.pivot_table(index="step", columns="data", values=TEST_LOSS).reindex(columns=list(COLOURS)).dropna()
    if len(losses):
        plain, repeating = losses.to_numpy().T
        text = f"{(repeating > plain).sum()} of {len(losses)} looks"
        claims.append(Claim("test loss on plain text is higher where half of the data repeats itself at", text))
    return claims
