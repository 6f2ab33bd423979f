"""Training speed, in one run: our step against a plain PyTorch loop, against this machine's own GEMM rate, and a sweep.

The baseline is the loop a competent user writes: torch.nn modules, all positions of all blocks, the last one read, Adam
as it comes, the same batch and sizes. (a) and (b) use one thread; (c) compares a sweep with two one-thread workers to
the plain loop run in sequence with two threads, both stopping at emergence. `--quick` leaves out (c). The share of
evaluation is printed and has no aim. The exit code is 1 where an aim is missed.
"""

import sys
import tempfile
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unstuck.config import load_spec
from unstuck.models.transformer import Transformer, TransformerModule, sinusoidal
from unstuck.runner.sweep import expand, run_sweep
from unstuck.store.store import Store
from unstuck.training.loop import Run
from unstuck.training.seeds import stream

SIZES = [(32, 16, 2, False), (256, 64, 2, False), (65, 256, 4, True)]  # T, d or tokens, layers, token task
AIMS = [1.2, 1.6, 1.15]
AIM_SWEEP = 1.6
SWEEP = ["task.T=16", "task.d=4,8", "seed=0,1,2,3,4,5"]


class PlainBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, causal: bool) -> Tensor:
        n, T, width = x.shape
        q, k, v = self.qkv(x).view(n, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        x = x + self.out(y.transpose(1, 2).reshape(n, T, width))
        return x + self.mlp(x)


class PlainTransformer(nn.Module):
    """What one writes first: a stack of blocks over the whole sequence, read at the end."""

    def __init__(self, inputs: int, outputs: int, layers: int, causal: bool, width: int = 256) -> None:
        super().__init__()
        self.causal = causal
        self.embed = nn.Embedding(inputs, width) if causal else nn.Linear(inputs, width)
        self.register_buffer("positions", sinusoidal(512, width))
        self.blocks = nn.ModuleList(PlainBlock(width, 4) for _ in range(layers))
        self.read_out = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        x = x + self.positions[: x.shape[1]]  # type: ignore[index]
        for block in self.blocks:
            x = block(x, self.causal)
        return self.read_out(x[:, -1])


def seconds_a_call(f: Callable[[], object], calls: int) -> float:
    """The median of several timings, so that one hiccup of the machine does not count."""
    f()
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(calls):
            f()
        times.append((time.perf_counter() - start) / calls)
    return sorted(times)[2]


def stepper(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> Callable[[], None]:
    def step() -> None:
        out = model(x)
        loss = F.cross_entropy(out, y) if y.dtype == torch.int64 else 0.5 * (out - y).square().sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def gemm_rate() -> float:
    a = torch.randn(2048, 2048)
    return 2 * 2048**3 / seconds_a_call(lambda: a @ a, 2)


def needed_operations(T: int, layers: int, batch: int = 32, width: int = 256) -> float:
    """Floating-point operations of a step that its result depends on: all blocks but the last, both passes."""
    token = 2 * 12 * width**2
    attention = 2 * 2 * T * width
    return 3.0 * batch * (layers - 1) * T * (token + attention)


def steps() -> bool:
    met = []
    torch.set_num_threads(1)
    rate = gemm_rate()
    print(f"GEMM 2048 x 2048, one thread: {rate / 1e9:.0f} GFLOP/s")
    for (T, d, layers, tokens), aim in zip(SIZES, AIMS, strict=True):
        rng = stream(0, "data")
        if tokens:
            indices, y = torch.randint(d, (32, T), generator=rng), torch.randint(d, (32,), generator=rng)
            x, inputs = indices, d
        else:
            x, inputs = torch.randn(32, T, d + 1, generator=rng), d + 1
            y = torch.randn(32, d, generator=rng)
        c = Transformer(layers=layers, causal=tokens)
        ours = TransformerModule(c, inputs, d, stream(0, "init"), tokens)
        plain = PlainTransformer(inputs, d, layers, tokens)
        fast = stepper(ours, torch.optim.Adam(ours.parameters(), lr=1e-4, fused=True), x, y)
        slow = stepper(plain, torch.optim.Adam(plain.parameters(), lr=1e-4, fused=True), x, y)
        calls = max(1, 200 // T)
        a, b = seconds_a_call(slow, calls), seconds_a_call(fast, calls)
        share = needed_operations(T, layers) / b / rate
        print(
            f"T = {T:3}, d = {d:3}, {layers} layers: plain {1e3 * a:6.0f} ms, ours {1e3 * b:6.0f} ms, "
            f"ratio {a / b:.2f} (aim {aim}); {share:.0%} of the GEMM rate"
        )
        met.append(a / b >= aim)
    return all(met)


def evaluation() -> None:
    for words in (["task.T=16", "task.d=8"], ["task.T=16", "task.d=8", "task.B=4"], ["task.T=32", "task.d=16"]):
        result = Run(load_spec("regression", words)).advance()
        print(f"evaluation takes {result.evaluation_share:.1%} of a run of {result.steps} steps ({' '.join(words)})")


def plain_run(T: int, d: int, seed: int) -> int:
    """Train the plain model on the same task, evaluating 256 sequences every 20 steps, until the loss is 0.1."""
    task = load_spec("regression", [f"task.T={T}", f"task.d={d}"]).task
    torch.manual_seed(seed)
    world, data = task.world(stream(seed, "world")), stream(seed, "data")
    test = task.sample(256, stream(seed, "eval primary"), world)
    model = PlainTransformer(task.inputs, task.outputs, 2, False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    for step in range(1, 50_000):
        batch = task.sample(32, data, world)
        loss = task.losses(model(batch.inputs), batch.targets).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            with torch.no_grad():
                if task.losses(model(test.inputs), test.targets).mean().item() <= 0.1:
                    return step
    raise RuntimeError("the plain loop did not emerge")


def sweeps() -> bool:
    torch.set_num_threads(2)
    start = time.perf_counter()
    plain_steps = sum(plain_run(16, d, seed) for d in (4, 8) for seed in range(6))
    plain = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        done = run_sweep(expand("regression", SWEEP), Store(folder), workers=2)
        ours = time.perf_counter() - start
    ours_steps = sum(r["steps"] for r in done.results.values())
    print(
        f"12 runs: plain, one after the other on two threads {plain:.0f} s ({plain_steps} steps); "
        f"sweep with two workers {ours:.0f} s ({ours_steps} steps); ratio {plain / ours:.2f} (aim {AIM_SWEEP})"
    )
    return plain / ours >= AIM_SWEEP


if __name__ == "__main__":
    met = steps()
    if "--quick" not in sys.argv:
        evaluation()
        met &= sweeps()
    sys.exit(0 if met else 1)
