"""Kill real sweeps with workers again and again, and a run at every file operation; write what it cost as a table.

    python tools/kill_table.py --kills 100 --out results/kills.csv

A row a kill: the signal, the moment, the step that the run or sweep went on from, whether anything that was there
before was lost, and whether all curves and weights were, in the end, those of an undisturbed sweep, bit for bit.
Signals go to the process group, at moments that are drawn in steps of the runs. The exit code is 1 if anything was lost
or differs.

Processes are forked from this one, which has imported everything and computed nothing: starting Python and PyTorch 300
times would take a quarter of an hour. The workers of
the last `--spawned` kills are spawned, as those of a user's sweep are.
"""

import argparse
import csv
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch

from unstuck.cli import entry
from unstuck.runner import pool
from unstuck.runner.execute import execute
from unstuck.runner.sweep import expand, run_sweep
from unstuck.store.store import Store

TINY = [
    *("task.T=6", "task.d=2", "model.width=8", "model.heads=1", "model.qk=4", "optim.lr=1e-3", "train.probe_every=5"),
    *("train.thresholds=[]",),
]
FORKED, SPAWNED = "forked", "spawned"
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
STEPS, SEEDS = 150, 3  # of each run, and runs of a sweep
FURTHEST = 50  # steps, over all runs, from one kill to the next at most
OPERATIONS = 4  # steps of the run that is killed at every file operation, with a checkpoint after each
PATIENCE = 120.0  # seconds after which a process counts as hung


@dataclass
class Kill:
    what: str  # sweep or run
    workers: str  # of a sweep: forked or spawned; none of a run
    signal: str
    moment: str
    resumed_from: int
    lost: bool
    identical: bool = False


def forked(work: Callable[..., object], *arguments: Any) -> int:
    """Do `work` in a process and process group of its own, silently; returns its id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setsid()
        sink = os.open(os.devnull, os.O_RDWR)
        os.dup2(sink, 1)
        if not os.environ.get("KILLS_STDERR"):
            os.dup2(sink, 2)
        code = 0 if work(*arguments) is not False else 1
    except SystemExit as e:
        code = int(e.code or 0)
    finally:
        os._exit(code)


def ended(process: int) -> int:
    """The exit code of a process; one that hangs is ended, and that is an error."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.killpg(process, signal.SIGKILL)
    raise SystemExit(f"process {process} hangs")


def words_of(seeds: range) -> list[str]:
    return [*TINY, f"train.max_steps={STEPS}", f"seed={','.join(map(str, seeds))}"]


def command(words: list[str], out: Path, workers: str) -> None:
    """`unstuck sweep`; its workers are forked from this process, or spawned as they are for a user."""
    if workers == FORKED:
        fork = multiprocessing.get_context("fork")
        pool.multiprocessing.get_context = lambda method=None: fork  # type: ignore[attr-defined]
    sys.argv = ["unstuck", "sweep", "regression", *words, "--workers", "2", "--checkpoint", "0.03", "--out", str(out)]
    entry()


def checkpoint_step(run: Path) -> int:
    """The step of a run's checkpoint, from the header of its file; 0 without one, -1 where it cannot be read."""
    try:
        content = (run / "checkpoint/state.safetensors").read_bytes()
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        return int(json.loads(header["__metadata__"]["state"])["step"])
    except FileNotFoundError:
        return 0
    except (ValueError, KeyError):
        return -1


def statuses(out: Path) -> dict[str, dict[str, Any]]:
    return {path.parent.name: json.loads(path.read_text()) for path in sorted(out.glob("*/status.json"))}


def progress(out: Path) -> int:
    """Steps of all runs, as their status files say."""
    return sum(status["step"] for status in statuses(out).values())


def is_lost(out: Path, before: dict[str, dict[str, Any]], saved: dict[str, int], *, asked: bool) -> bool:
    """Is a result gone or changed, a checkpoint older or damaged, or, where the processes were asked to stop, a step
    that was done not in a checkpoint?"""
    now = statuses(out)
    for name, status in before.items():
        if status["state"] == "finished" and now.get(name) != status:
            return True
    for name, status in now.items():
        step = checkpoint_step(out / name)
        if step < saved.get(name, 0) and status["state"] != "finished":
            return True
        if asked and (status["state"] not in ("stopped", "finished") or step < status["step"]):
            return True
    return False


def kill_sweeps(kills: int, seed: int, work: Path, workers: str) -> Iterator[Kill]:
    """Sweeps that are killed until they are over, one after the other; the signals take turns."""
    rng, done, number = random.Random(seed), 0, 0
    while done < kills:
        out, words = work / f"{workers}{number}", words_of(range(SEEDS * number, SEEDS * (number + 1)))
        number += 1
        rows: list[Kill] = []
        while done < kills:
            before = statuses(out)
            saved = {name: checkpoint_step(out / name) for name in before}
            target, jitter = progress(out) + rng.randint(1, FURTHEST), rng.uniform(0, 0.01)
            process = forked(command, words, out, workers)
            over = False
            while not over and progress(out) < target:
                over = bool(os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT))
                time.sleep(0.01)
            if over:
                ended(process)
                break
            time.sleep(jitter)
            number_of = SIGNALS[done % len(SIGNALS)]
            moment = progress(out)
            os.killpg(process, number_of)
            ended(process)
            lost = is_lost(out, before, saved, asked=number_of != signal.SIGKILL)
            steps = sum(max(0, checkpoint_step(path.parent)) for path in out.glob("*/status.json"))
            rows.append(Kill("sweep", workers, number_of.name, f"step {moment}", steps, lost))
            done += 1
        finished = ended(forked(command, words, out, workers)) == 0
        calm = work / "calm"
        same = finished and ended(forked(as_undisturbed, words, out, calm)) == 0
        for row in rows:
            row.identical = same
            yield row
        shutil.rmtree(out)


def as_undisturbed(words: list[str], out: Path, calm: Path) -> bool:
    """Are all curves and weights those of a sweep that nobody disturbed?"""
    specs = expand("regression", words)
    run_sweep(specs, Store(calm), workers=0)
    return all(is_same(Store(calm), Store(out), spec.run_id) for spec in specs)


def is_same(calm: Store, other: Store, run_id: str) -> bool:
    a, b = calm.run(run_id), other.run(run_id)
    if a.curve() is None or a.curve() != b.curve():
        return False
    x, y = ((run.read_checkpoint() or {}).get("tensors", {}) for run in (a, b))
    return bool(x) and x.keys() == y.keys() and all(torch.equal(x[name], y[name]) for name in x)


def one_run(out: Path) -> None:
    (spec,) = expand("regression", [*TINY, f"train.max_steps={OPERATIONS}", "train.maps=[2]"])
    execute(spec, Store(out), checkpoint_seconds=0.0)


def killed_at(place: int, out: Path, log: Path | None = None) -> None:
    """The same, killed when it is about to do the file operation of that number; all are written to `log`."""
    count, events = 0, {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir"}

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event not in events or not str(arguments[0]).startswith(str(out)):
            return
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_DIRECTORY):
            return  # a look
        count += 1
        if count == place:
            os.kill(os.getpid(), signal.SIGKILL)
        if log is not None:
            with log.open("a") as file:
                name = str(arguments[1] if event == "os.rename" else arguments[0]).removeprefix(str(out))
                file.write(f"{event.removeprefix('os.')} {name.partition('/')[2].partition('/')[2]}\n")

    sys.addaudithook(hook)
    one_run(out)


def kill_operations(work: Path, every: int) -> Iterator[Kill]:
    """One run, killed at each of its file operations, or at every so many, in a store of its own."""
    calm, log = work / "calm-run", work / "operations"
    ended(forked(killed_at, 0, calm, log))
    operations = log.read_text().splitlines()
    for place in range(1, len(operations) + 1, every):
        out = work / f"run{place}"
        killed = ended(forked(killed_at, place, out)) == -signal.SIGKILL
        steps = max((checkpoint_step(path) for path in out.glob("*") if path.is_dir()), default=0)
        finished = ended(forked(one_run, out)) == 0
        same = finished and ended(forked(same_run, calm, out)) == 0
        what = operations[place - 1].split(".partial")[0]
        yield Kill("run", "none", "SIGKILL", f"operation {place}: {_named(what)}", steps, steps < 0 or not killed, same)
        shutil.rmtree(out)


def _named(operation: str) -> str:
    """An operation without the random part of a temporary name."""
    word, _, name = operation.partition(" ")
    parts = name.rpartition("/")
    last = parts[2]
    if last.startswith(".") and last.count(".") > 1 and last.rpartition(".")[2].isalnum() and len(last) > 9:
        last = last[: -len(last.rpartition(".")[2]) - 1] + ".partial"
    return f"{word} {parts[0]}{parts[1]}{last}".strip()


def same_run(calm: Path, out: Path) -> bool:
    (spec,) = expand("regression", [*TINY, f"train.max_steps={OPERATIONS}", "train.maps=[2]"])
    a, b = Store(calm).run(spec.run_id), Store(out).run(spec.run_id)
    maps, others = a.maps(), b.maps()
    return is_same(Store(calm), Store(out), spec.run_id) and maps is not None and maps.equals(others)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100, help="signals to sweeps")
    parser.add_argument("--spawned", type=int, default=12, help="more signals, to sweeps whose workers are spawned")
    parser.add_argument("--every", type=int, default=1, help="kill the run at every so many file operations")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--out", type=Path, default=Path("results/kills.csv"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as work:
        rows = [
            *kill_sweeps(given.kills, given.seed, Path(work), FORKED),
            *kill_sweeps(given.spawned, given.seed, Path(work), SPAWNED),
            *kill_operations(Path(work), given.every),
        ]
    with given.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Kill)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    bad = [row for row in rows if row.lost or not row.identical]
    sweeps = sum(row.what == "sweep" for row in rows)
    print(f"{sweeps} kills of sweeps, {len(rows) - sweeps} of a run; lost something or differ: {len(bad)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
