"""A step of SGD on the toy model at T = d = 256, batch 32: data summed out against whole sequences and autograd.

The baseline is the ordinary loop: draw the sequences, forward, backward, step. Both in one run, one thread, one
seed. The exit code is 1 where the aim is missed.
"""

import sys
import time

import torch

from unstuck.models.toy import ToyAttention
from unstuck.tasks.single_location import SingleLocation
from unstuck.training.seeds import stream
from unstuck.training.toy_sgd import train

STEPS = {"plain": 60, "summed out": 1000}
AIM = 10


def plain(task: SingleLocation, steps: int) -> None:
    rng, world = stream(0, "data"), task.world(stream(0, "target"))
    model = ToyAttention(task.T, task.d)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for _ in range(steps):
        batch = task.sample(32, rng, world)
        loss = task.losses(model(batch.inputs), batch.targets).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main() -> int:
    torch.set_num_threads(1)
    task = SingleLocation.for_toy(T=256, d=256)
    plain(task, 5)
    seconds = {}
    for name, run in (("plain", plain), ("summed out", lambda task, n: train(task, [0], n))):
        start = time.perf_counter()
        run(task, STEPS[name])
        seconds[name] = (time.perf_counter() - start) / STEPS[name]
        print(f"{name:12} {1e3 * seconds[name]:8.3f} ms a step")
    ratio = seconds["plain"] / seconds["summed out"]
    print(f"{'ratio':12} {ratio:8.1f} x (aim {AIM})")
    return 0 if ratio >= AIM else 1


if __name__ == "__main__":
    sys.exit(main())
