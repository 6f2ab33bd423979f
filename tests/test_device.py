"""A run on another device than the CPU: batches are drawn there, and the host seldom waits for it.

No GPU is needed. PyTorch's `meta` device stands for one: its tensors have shapes and no values, what mixes them with
tensors of the CPU raises, and so does reading one, unless `Host` answers in its place and counts.
"""

import itertools
from unittest import mock

import pytest
import torch
from torch.overrides import TorchFunctionMode

from unstuck.columns import TEST_LOSS
from unstuck.config import load_spec
from unstuck.config.load import build_spec, merge, read_source
from unstuck.runner.cost import predicted_cost
from unstuck.tasks.task import onto, world_on
from unstuck.training import loop
from unstuck.training.device import READ_EVERY, on_device
from unstuck.training.loop import Run
from unstuck.training.result import Checkpoint
from unstuck.training.seeds import stream

READS = {"item", "tolist", "cpu", "__bool__", "__int__", "__float__", "__index__"}
SMALL = {
    "regression": ["task.T=8", "task.d=4", "task.p=0.3", "task.B=2", "model.width=32", "model.qk=8"],
    "recall": ["task.tokens=8", "task.pairs=3", "task.p=0.2", "model.width=16"],
    "markov-minimal": ["task.d=4", "task.scored=4", "train.batch=50", "task.sequences=200"],
    "markov-full": ["task.d=4", "task.scored=4", "train.batch=50", "task.sequences=0", "model.width=12", "model.mlp=8"],
    "markov-regression": ["task.d=4", "task.scored=4", "train.batch=20"],
    "induction-heads": ["task.tokens=5", "task.T=8", "model.width=16"],
    "mqar": ["task.tokens=10", "task.pairs=2", "task.T=8", "model.width=16"],
    "text": ["task.vocabulary=256", "task.context=32", "task.burst=0.5", "model.width=16", "model.heads=2"],
}


def values(shape, value):
    return value if not shape else [values(shape[1:], value) for _ in range(shape[0])]


class Host(TorchFunctionMode):
    """What the host asks of the device: reads of values, and with which generator it has numbers drawn there."""

    def __init__(self):
        super().__init__()
        self.reads, self.generators = [], []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = getattr(function, "__name__", "")
        if name in READS and args[0].device.type == "meta":
            self.reads.append(name)
            answers = {"__bool__": True, "tolist": values(list(args[0].shape), 0.5)}
            return torch.full_like(args[0], 0.5, device="cpu") if name == "cpu" else answers.get(name, 0.5)
        generator = kwargs.pop("generator", None) if name == "exponential_" else kwargs.get("generator")
        result = function(*args, **kwargs)
        if generator is not None and result.device.type == "meta":
            self.generators.append(generator)
        return result


@pytest.fixture
def device(monkeypatch):
    """Runs go to a device that is not there, with generators that a CPU lends it."""
    monkeypatch.setattr(loop, "check_device", lambda spec: "meta")
    monkeypatch.setattr(loop, "stream", lambda seed, name, device="cpu": stream(seed, name))


def run_there(preset, *keys):
    """With an optimiser that the stub has: fused Adam is for real devices."""
    spec = load_spec(preset, [*SMALL[preset], "train.device=cuda", *keys])
    return Run(spec, optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1))


@pytest.mark.parametrize("preset", SMALL)
def test_steps_read_nothing_and_one_read_tells_their_losses(device, preset):
    run = run_there(preset)
    with Host() as host:
        for _ in range(READ_EVERY):
            run._train_step()
        assert host.reads == []
        assert len(run.read()) == READ_EVERY
        assert host.reads == ["tolist"]


@pytest.mark.parametrize("preset", SMALL)
def test_batches_are_drawn_on_the_device_by_the_runs_own_generator(device, preset):
    run = run_there(preset)
    with Host() as host:
        batch = run._batch()
    assert {x.device.type for x in batch if x.numel()} == {"meta"}
    assert set(map(id, host.generators)) <= {id(run.data)}
    if not getattr(run.task, "sequences", 0):
        assert host.generators


@pytest.mark.parametrize("preset", SMALL)
def test_a_row_is_measured_on_the_device(device, preset):
    run = run_there(preset)
    with Host():
        run._train_step()
        run.read()
        run._add_row(lambda run: None, full=True)
    assert run.rows[0]["step"] == 1


@pytest.mark.parametrize(
    ("keys", "every"), [([], READ_EVERY), (["train.read_every=7"], 7), (["train.read_every=1"], 1)]
)
def test_the_loop_reads_once_in_so_many_steps(device, keys, every):
    run = run_there("regression", "train.max_steps=140", "train.thresholds=[]", "train.probe_every=1000", *keys)

    def add_row(run, on_row, *, full):
        run.rows.append({"step": run.step, TEST_LOSS: 0.5})
        run.next_row = run.step + 1000

    with mock.patch.object(Run, "_add_row", add_row), Host() as host:
        run.advance()
    assert (run.step, len(host.reads)) == (140, 140 // every)


def test_a_schedule_of_repetition_hears_of_every_loss():
    spec = load_spec("regression", ["schedule.name=adaptive", "train.read_every=10"])
    assert loop.steps_between_reads(spec) == 1


@pytest.mark.parametrize("preset", ["regression", "recall", "markov-minimal"])
def test_when_losses_are_read_changes_no_bit_of_training(preset):
    runs = []
    for every in (1, 7):
        keys = [f"train.read_every={every}", "train.max_steps=45", "train.thresholds=[]"]
        run = Run(load_spec(preset, [*SMALL[preset], *keys]))
        run.advance()
        runs.append(run)
    assert runs[0].rows == runs[1].rows
    pairs = zip(runs[0].model.state_dict().values(), runs[1].model.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("preset", ["regression", "recall"])
def test_a_run_that_stops_between_reads_resumes_bit_for_bit(preset):
    """Also where the losses decide when to evaluate in full."""
    keys = ["train.read_every=8", "train.max_steps=90", "train.thresholds=[0.45]", "optim.lr=0.01"]
    spec = load_spec(preset, [*SMALL[preset], *keys])
    whole = Run(spec)
    whole.advance()
    for stop in (5, 16, 43):
        first = Run(spec)
        first.advance(stop=lambda run=first, stop=stop: run.step >= stop)
        assert len(first.unread) == (0 if first.rows[-1]["step"] == first.step else stop % 8)
        second = Run(spec, Checkpoint(**vars(first.checkpoint())))
        second.advance()
        assert second.rows == whole.rows
        assert second.tracker.state() == whole.tracker.state()


def test_divergence_is_noticed_at_the_next_read():
    run = Run(load_spec("regression", [*SMALL["regression"], "train.read_every=6", "optim.name=sgd", "optim.lr=100"]))
    assert run.advance().status == "diverged"
    assert run.step <= 20


@pytest.mark.parametrize("preset", SMALL)
def test_naming_a_device_changes_no_number(preset):
    """`on_device` enters a mode of PyTorch; on a CPU it would draw the same."""
    task = load_spec(preset, SMALL[preset]).task
    batches = []
    for context in (on_device("cpu"), torch.device("cpu")):
        with context:
            world = world_on(task.world(stream(0, "world")), "cpu")
            batches.append(task.batch(0, 8, stream(0, "data"), world))
    assert all(torch.equal(a, b) for a, b in zip(*batches, strict=True))


def test_what_is_copied_and_what_stays_on_the_host():
    assert onto(torch.ones(2), "meta").device.type == "meta"
    assert onto(torch.empty(0), "meta").device.type == "cpu"
    world = world_on({"seed": torch.tensor([7]), "A": torch.eye(2), "order": torch.arange(3)}, "meta")
    assert {k: v.device.type for k, v in world.items()} == {"seed": "cpu", "A": "meta", "order": "meta"}


def test_the_precision_of_products_is_part_of_the_id_unless_it_is_the_default():
    def spec(**train):
        return build_spec(merge(read_source("regression"), {"train": train}))

    ids = [spec(matmul=matmul).run_id for matmul in ("highest", "high", "medium")]
    assert ids[0] == spec().run_id == spec(read_every=9).run_id
    assert all(a != b for a, b in itertools.combinations(ids, 2))


def test_a_run_sets_the_precision_of_products():
    before = torch.get_float32_matmul_precision()
    try:
        for matmul in ("high", "highest"):
            Run(load_spec("regression", [*SMALL["regression"], f"train.matmul={matmul}"]))
            assert torch.get_float32_matmul_precision() == matmul
    finally:
        torch.set_float32_matmul_precision(before)


def test_tf32_is_reckoned_with_only_where_it_is_allowed():
    sizes = ["task.T=256", "task.d=128"]
    plain, tf32 = (predicted_cost(load_spec("regression", [*sizes, f"train.matmul={x}"])) for x in ("highest", "high"))
    assert plain.flops / (3600 * plain.gpu_hours) <= 19.5e12  # an A100's peak in float32
    assert tf32.gpu_hours < plain.gpu_hours
    assert tf32.steps == plain.steps
