"""Sweeps on a Ray cluster: several raylets on this machine, one of which is killed in the middle."""

import threading
import time

import pytest

from refusals import invalid, refused_command
from unstuck.runner.sweep import expand, run_sweep
from unstuck.store.store import Store

ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster  # noqa: E402

from unstuck.runner.on_ray import _resources, run_on_ray  # noqa: E402

WORDS = ["task.T=8", "task.d=4", "train.thresholds=[]", "train.probe_every=50"]


@pytest.fixture(scope="module")
def cluster():
    """A head without CPUs, for the driver, and three nodes of one CPU each; a test that kills one adds another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # else whatever runs beside the tests can starve its workers
        started = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        started.workers = [started.add_node(num_cpus=1) for _ in range(3)]
        started.wait_for_nodes()
        yield started
        ray.shutdown()
        started.shutdown()


def test_no_cluster_is_a_sentence(tmp_path, capsys, monkeypatch):
    ray.shutdown()
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # where `auto` looks first
    with invalid("127.0.0.1:1", "ray start --head"):
        run_on_ray(expand("regression", WORDS), Store(tmp_path), address="127.0.0.1:1")
    words = ["sweep", "regression", *WORDS, "--out", tmp_path, "--ray", "auto"]
    refused_command(capsys, *words, says=["auto", "ray start --head"])


def under_way(store, specs):
    """How many steps the runs that are not finished have behind them."""
    found = [store.run(spec.run_id).status() or {} for spec in specs]
    return [s["step"] for s in found if s.get("state") == "running" and s.get("step", 0) > 0]


def curves(store, specs):
    return {spec.run_id: store.run(spec.run_id).curve() for spec in specs}


def test_what_no_node_has_is_said_and_not_waited_for(cluster, tmp_path):
    for word, asked in (("train.threads=64", "64 CPUs"), ("train.device=cuda", "1 GPUs")):
        specs = expand("regression", [*WORDS, word])
        with invalid(specs[0].run_id, asked, "train.threads", "train.gpu"):
            run_on_ray(specs, Store(tmp_path), address=cluster.address)


@pytest.mark.parametrize(("seeds", "steps"), [(3, 200), pytest.param(24, 400, marks=pytest.mark.slow)])
def test_a_node_that_is_killed_costs_nothing_but_time(cluster, tmp_path, seeds, steps):
    words = [*WORDS, f"train.max_steps={steps}", "seed=" + ",".join(map(str, range(seeds)))]
    specs = expand("regression", words)
    assert len(specs) == seeds
    local, shared = Store(tmp_path / "local"), Store(tmp_path / "shared")
    killed = []

    def kill():
        """The raylet's process, once some runs are finished and all that are under way have checkpoints."""
        until = time.monotonic() + 600
        while time.monotonic() < until:
            states = [(shared.run(s.run_id).status() or {}).get("state") for s in specs]
            all_have = (
                len(under_way(shared, specs)) == states.count("running") == min(3, seeds - states.count("finished"))
            )
            if states.count("finished") >= seeds // 4 and all_have:
                cluster.remove_node(cluster.workers.pop(0), allow_graceful=False)
                killed.append((states.count("finished"), states.count("running")))
                return
            time.sleep(0.05)

    hunter = threading.Thread(target=kill)
    hunter.start()
    sweep = run_on_ray(specs, shared, address=cluster.address, checkpoint_seconds=1.0)
    hunter.join()
    cluster.workers.append(cluster.add_node(num_cpus=1))
    assert killed, "the sweep was over before a node could be killed"
    assert killed[0][0] < seeds
    assert not sweep.failed
    assert len(sweep.results) == seeds
    assert all(r.result.status == "finished" for r in sweep.results.values())
    if seeds > 4:  # of few short runs, the one on the killed node may just have begun or ended
        assert any(r.result.resumed_from > 0 for r in sweep.results.values())  # from a checkpoint
    assert not run_sweep(specs, local, workers=0).failed
    ours, theirs = curves(shared, specs), curves(local, specs)
    for run_id, curve in theirs.items():
        assert ours[run_id] == curve
    begun = time.monotonic()  # what is there is not done again, wherever it was done
    assert len(run_sweep(specs, shared, workers=1).results) == seeds
    assert time.monotonic() - begun < 30


def test_a_task_asks_for_what_its_specification_names():
    cpu = expand("regression", ["train.threads=2"])
    gpu = expand("regression", ["train.device=cuda", "train.gpu=0.25"])
    assert _resources(cpu) == {"num_cpus": 2}
    assert _resources(gpu) == {"num_cpus": 1, "num_gpus": 0.25}
