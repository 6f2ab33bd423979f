"""Measure attention in your own training loop: a Hugging Face GPT-2 on the source of Python's standard library.

    python examples/watch_gpt2.py                    # 3,000 steps, a quarter of an hour on one core
    python examples/watch_gpt2.py --schedule         # repeat data while the loss stands still
    unstuck forecast runs/gpt2                       # at any time, from another terminal; then: unstuck report runs

It prints the loss and a forecast of when induction heads form. `unstuck reproduce gpt2-induction` compares the same
model with and without repetition.
"""

import argparse
import sysconfig
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from unstuck import DiversitySchedule, Watch


def library() -> torch.Tensor:
    """The source files of the standard library as byte values."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    return torch.frombuffer(bytearray(b"".join(f.read_bytes() for f in files)), dtype=torch.uint8).long()


def repeat(batch: torch.Tensor, part: float) -> torch.Tensor:
    """In this fraction of the sequences the second half repeats the first."""
    half, again = batch.shape[1] // 2, torch.rand(len(batch)) < part
    batch[again, half : 2 * half] = batch[again, :half]
    return batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--every", type=int, default=50, help="steps between measurements")
    parser.add_argument("--schedule", action="store_true", help="repeat data while the loss stands still")
    parser.add_argument("--out", type=Path, default=Path("runs/gpt2"))
    options = parser.parse_args()
    torch.manual_seed(0)
    text, length = library(), options.context
    sizes = {"vocab_size": 256, "n_positions": length, "n_embd": options.width, "n_layer": 4, "n_head": 4}
    model = GPT2LMHeadModel(GPT2Config(bos_token_id=0, eos_token_id=0, **sizes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    watch = Watch(model, vocabulary=text.unique(), length=min(48, length), every=options.every)
    schedule = DiversitySchedule(most=0.5, floor=1.0, patience=500)  # floor: no model reaches 0 on text
    watch(0)  # before the first step
    for step in range(1, options.steps + 1):
        starts = torch.randint(len(text) - length, (16, 1))
        batch = repeat(text[starts + torch.arange(length)], schedule.repetition if options.schedule else 0.0)
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step(loss)
        if watch(step, loss=loss):
            watch.save(options.out)
            print(f"step {step}: loss {loss:.3f}, {watch.forecast()}")


if __name__ == "__main__":
    main()
