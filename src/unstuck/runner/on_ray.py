"""The same sweep on a Ray cluster: a task for every unit, in a store that all nodes see.

Each task asks for the threads its specification names, and for its share of a GPU where it wants one. A worker or node
that dies costs the steps since the last checkpoint: Ray gives its task to another, which goes on from there.
"""

import logging
import os
import secrets
import socket
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from unstuck.config.run import RunSpec
from unstuck.errors import InvalidCombination
from unstuck.extras import require
from unstuck.runner.execute import CHECKPOINT_SECONDS, Executed
from unstuck.runner.memory import keep_freed_memory
from unstuck.runner.units import Agenda, Progress, Sweep, Unit, portable, work
from unstuck.store.store import Store

RETRIES = 20  # of a task whose worker or node died
BUSY = 120.0  # seconds to wait for the lock of a worker that died with its node
LOOK = 0.5  # seconds between looks at what has finished


def run_on_ray(
    specs: Sequence[RunSpec | Unit],
    store: Store,
    *,
    address: str = "auto",
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    progress: Progress = lambda done, of, text: None,
) -> Sweep:
    """Carry out what is missing of `specs` on the cluster at `address`, "auto" being the one this machine is part of.
    An interrupt ends the tasks; what they had done up to their last checkpoints stays."""
    ray = _connected(address)
    agenda = Agenda(specs, store, progress)
    if not agenda.todo:
        return agenda.sweep
    agenda.check_importable()
    _check_room(ray, agenda.todo)
    store.path.mkdir(parents=True, exist_ok=True)
    mark = store.path / f".seen-{secrets.token_hex(8)}"
    mark.touch()
    task = ray.remote(max_retries=RETRIES, retry_exceptions=False)(_on_a_node)
    places = str(store.path.resolve()), str(mark.resolve()), os.getcwd()
    running = {}
    try:
        for i, unit in enumerate(agenda.todo):
            given = [portable(spec) for spec in unit]
            running[task.options(**_resources(unit)).remote(given, *places, checkpoint_seconds)] = i
        while running:
            finished, _ = ray.wait(list(running), num_returns=len(running), timeout=LOOK)
            for job in finished:
                agenda.settle(running.pop(job), _settled(ray, job))
            agenda.report(running.values())
    except KeyboardInterrupt:
        for job in running:
            ray.cancel(job, force=True)
        raise
    finally:
        mark.unlink(missing_ok=True)
    return agenda.sweep


def _connected(address: str) -> Any:
    require("ray", "a sweep on Ray")
    import ray

    if not ray.is_initialized():
        try:
            _knock(_found(address))
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except OSError as e:  # of which ConnectionError, Ray's own, is one
            raise InvalidCombination(
                f"there is no Ray cluster at {address!r}; `ray start --head` starts one on this machine"
            ) from e
    return ray


def _found(address: str) -> str:
    """Where the cluster is that "auto" means, as far as Ray says so."""
    if address != "auto":
        return address
    try:
        from ray._private.services import canonicalize_bootstrap_address
    except ImportError:  # not a promise of Ray's: then it finds out itself, slowly
        return address
    return canonicalize_bootstrap_address(address) or address


def _knock(address: str) -> None:
    """Is there somebody at host:port? Ray itself would wait for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=10).close()


def _check_room(ray: Any, todo: Sequence[Unit]) -> None:
    """Is there a node that has what each task asks for? Ray itself would wait for one, without a word."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for unit in todo:
        needs = _resources(unit)
        cpus, gpus = needs["num_cpus"], needs.get("num_gpus", 0)
        if not any(node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= gpus for node in nodes):
            most = max((node.get("CPU", 0) for node in nodes), default=0)
            raise InvalidCombination(
                f"run {unit[0].run_id} asks for {cpus:g} CPUs and {gpus:g} GPUs, and no node of the cluster has them "
                f"(the largest has {most:g} CPUs); train.threads and train.gpu say what a run asks for"
            )


def _resources(unit: Unit) -> dict[str, float]:
    """What the most demanding run of a unit needs."""
    needs: dict[str, float] = {"num_cpus": max(spec.train.threads for spec in unit)}
    if any(spec.train.device == "cuda" for spec in unit):
        needs["num_gpus"] = max(spec.train.gpu for spec in unit)
    return needs


def _on_a_node(
    unit: list[RunSpec | dict[str, Any]], path: str, mark: str, here: str, checkpoint_seconds: float
) -> list[Executed]:
    if not Path(mark).exists():
        raise InvalidCombination(
            f"this node does not see {path}: a sweep on a cluster needs a directory that all nodes share"
        )
    with suppress(OSError):  # a task of one's own is named by its file, as seen from where the sweep was started
        os.chdir(here)
    keep_freed_memory()
    begun = time.monotonic()
    while True:
        results = work(unit, Path(path), checkpoint_seconds, lambda: False)
        if len(results) == len(unit) or time.monotonic() - begun > BUSY:
            return results
        time.sleep(1.0)  # another process is at a run: most likely a worker that is about to die with its node


def _settled(ray: Any, job: Any) -> "Future[list[Executed]]":
    """What came of a task, as the local pool has it."""
    found: Future[list[Executed]] = Future()
    try:
        found.set_result(ray.get(job))
    except ray.exceptions.RayTaskError as e:
        found.set_exception(e.cause if isinstance(e.cause, Exception) else e)
    except ray.exceptions.RayError as e:
        found.set_exception(e)
    return found
