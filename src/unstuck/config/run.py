"""The specification of one run: task, model, optimiser, training, seed."""

import dataclasses
import hashlib
import inspect
import json
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from unstuck.errors import BadInput, nearest

_FORBID = ConfigDict(extra="forbid")
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
RunId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Steps = Annotated[int, Field(ge=0, le=10**9)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
#: Times the steps to emergence: how long a run waits for `train.until` at most. A run that needs longer is censored.
LONGEST_WAIT = 2.0


OPTIMIZERS = ("adam", "adamw", "sgd")


def _optimizer(name: Any) -> Any:
    """A name we know, or a path to a user's .py."""
    if isinstance(name, str) and (name in OPTIMIZERS or name.endswith(".py")):
        return name
    raise BadInput(
        "optim.name", name, f"one of {', '.join(OPTIMIZERS)}, or a .py file" + nearest(str(name), OPTIMIZERS)
    )


OptimizerName = Annotated[
    str, BeforeValidator(_optimizer), Field(description=f"{', '.join(OPTIMIZERS)}, or a .py file with your own")
]


@dataclass(frozen=True, kw_only=True, config=_FORBID)
class OptimSpec:
    """The optimiser: the paper's Adam, AdamW, SGD with optional momentum, or a class of your own from a .py file."""

    name: OptimizerName = "adam"  # which optimiser
    lr: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 1e-4  # learning rate
    momentum: Fraction = 0.0  # SGD only
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0  # how strongly weights are drawn to 0

    clip: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0  # largest norm of a gradient; 0 means any
    patience: Annotated[int, Field(ge=0, le=10**6)] = 0  # passes without progress before the rate is halved; 0: never

    @model_validator(mode="after")
    def _meant(self) -> "OptimSpec":
        if self.momentum and self.name in ("adam", "adamw"):
            raise ValueError(f"optim.momentum is {self.momentum:g}, but optim.name = {self.name} has none; use sgd")
        return self


@dataclass(frozen=True, kw_only=True, config=_FORBID)
class ScheduleSpec:
    """How repetition changes during training: not at all, or as `DiversitySchedule` finds it needed."""

    #: By `key`; raised when the losses of a stored run with that key would give another repetition.
    versions: ClassVar[dict[str, int]] = {"p": 6, "B": 5}
    name: Literal["none", "adaptive"] = "none"  # adaptive: repetition while the loss is on a plateau
    key: Literal["p", "B"] = "p"  # what is raised: cross-sample repetition, or copies in the context
    most: Positive = 0.5  # by how much at most
    patience: Annotated[int, Field(ge=10, le=10**6)] = 100  # steps on which a plateau is judged


def _several(value: Any) -> Any:
    return (value,) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


@dataclass(frozen=True, kw_only=True, config=_FORBID)
class TrainSpec:
    """How long and how carefully to train. Only `batch`, `threads`, `device` and `matmul` change the dynamics."""

    version: ClassVar[int] = 1  # of the training loop and its optimisers; raised when the numbers of a run change
    #: sequences a step: new ones, or where task.sequences fixes a training set, the next of it
    batch: Annotated[int, Field(ge=1, le=1_000_000)] = 32
    threads: Annotated[int, Field(ge=1, le=1024)] = 1  # that PyTorch computes with; 1 and 2 differ in the last bits
    device: Literal["cpu", "cuda", "auto"] = "cpu"  # auto: a GPU if there is one
    #: Precision of products of float32 matrices, as in torch.set_float32_matmul_precision; high allows TF32 on a GPU.
    matmul: Literal["highest", "high", "medium"] = "highest"
    #: Steps between reads of the training loss, each of which makes a GPU wait; 0: 1 on a CPU, 20 on a GPU.
    read_every: Annotated[int, Field(ge=0, le=10**6)] = 0
    gpu: Annotated[float, Field(gt=0, le=8)] = 1.0  # share of a GPU that a run on a cluster asks for
    max_steps: Annotated[int, Field(ge=1, le=10**9)] = 50_000  # after which a run ends in any case
    #: Of the measure that decides emergence; none: run to the end.
    thresholds: Annotated[tuple[Positive, ...], BeforeValidator(_several)] = (0.1,)
    after: Steps = 0  # steps to go on after the last threshold is crossed
    at_least: Steps = 0  # steps to do in any case, as far as max_steps allows
    #: Of text: go on until this measure has reached the thresholds too, or twice as long. It decides nothing.
    until: Literal["", "copy_advantage_in_text"] = ""
    #: steps at which to keep attention maps: of one sequence, on a Markov chain the mean over the validation set
    maps: Annotated[tuple[Steps, ...], BeforeValidator(_several)] = ()
    predictions: bool = False  # keep what the model predicts at the end, for other runs to compare with
    compare: tuple[RunId, ...] = ()  # ids of runs in the same store with such predictions: KL to them in every row
    probe_every: Annotated[int, Field(ge=1, le=10**6)] = 20  # steps between rows of the curve, at first

    def last_step(self, emerged: float, *, until_reached: bool) -> float:
        """The step at which a run ends that emerged at a step, unless `max_steps` ends it before."""
        wait = LONGEST_WAIT * emerged if self.until and not until_reached else 0.0
        return max(emerged + self.after, self.at_least, wait)


@dataclass(frozen=True, kw_only=True, config=_FORBID)
class RunSpec:
    """One run. `run_id` is a hash of what changes its dynamics, so not of its budget.

    Task, model and loop each have a version, which is raised by hand when their numbers change: the runs of the old
    code then keep their ids, and the new code's get others. A first version is left out of the hash.
    """

    task_name: str
    task: Any
    model_name: str
    model: Any
    optim: OptimSpec = OptimSpec()
    train: TrainSpec = TrainSpec()
    schedule: ScheduleSpec = ScheduleSpec()
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain nested values, as in the YAML."""
        return {
            "task": {"name": self.task_name, **_fields(self.task)},
            "model": {"name": self.model_name, **_fields(self.model)},
            "optim": _fields(self.optim),
            "train": {k: list(v) if isinstance(v, tuple) else v for k, v in _fields(self.train).items()},
            **({"schedule": _fields(self.schedule)} if self.schedule.name != "none" else {}),
            "seed": self.seed,
        }

    @property
    def run_id(self) -> str:
        """Settings at their defaults are left out, so that a new one with a default does not rename the old runs."""
        what: dict[str, Any] = {
            "task": [Path(self.task_name).name, _changed(self.task) | self._identity, code_version(type(self.task))],
            "model": [Path(self.model_name).name, _changed(self.model), *_later_version(type(self.model))],
            "optim": _changed(self.optim) | _file(self.optim.name),
            "train": {k: v for k, v in _changed(self.train).items() if k in ("batch", "threads", "device", "matmul")},
            "seed": self.seed,
        }
        if self.train.device != "cpu":
            what["draws"] = self.train.device  # at first all devices drew their batches on the CPU
        if TrainSpec.version > 1:
            what["loop"] = TrainSpec.version
        if self.schedule.name != "none":
            what["schedule"] = [_changed(self.schedule), ScheduleSpec.versions[self.schedule.key]]
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def _identity(self) -> dict[str, Any]:
        """What the task puts in place of settings that differ from their defaults; somebody's task may not say."""
        changed = _changed(self.task)
        return {k: v for k, v in self.task.identity().items() if k in changed} if changed else {}

    @property
    def thresholds(self) -> tuple[float, ...]:
        """In the order in which they are crossed: a loss falls, an accuracy rises."""
        return tuple(sorted(self.train.thresholds, reverse=self.task.decides == "loss"))

    def with_budget_of(self, other: "RunSpec") -> "RunSpec":
        """The same run with the larger of two budgets, and the thresholds of both."""
        a, b = self.train, other.train
        train = dataclasses.replace(
            a,
            max_steps=max(a.max_steps, b.max_steps),
            after=max(a.after, b.after),
            at_least=max(a.at_least, b.at_least),
            until=a.until or b.until,
            thresholds=tuple(sorted({*a.thresholds, *b.thresholds}, reverse=True)),
            maps=tuple(sorted({*a.maps, *b.maps})),
            predictions=a.predictions or b.predictions,
            compare=a.compare or b.compare,
        )
        return dataclasses.replace(self, train=train)


def _changed(value: Any) -> dict[str, Any]:
    """The fields that differ from their defaults."""
    return {f.name: v for f in dataclasses.fields(value) if (v := getattr(value, f.name)) != f.default}


def _fields(value: Any) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}


def code_version(kind: type) -> str:
    """The class's own `version`, where it keeps one; else a hash of its file: a changed task is another run."""
    version = vars(kind).get("version")
    if version is not None:
        return str(version)
    try:
        file = inspect.getsourcefile(kind)
        text = Path(file).read_text(encoding="utf-8") if file and Path(file).is_file() else inspect.getsource(kind)
    except (OSError, TypeError):
        text = kind.__qualname__
    return _hash(text)


def _later_version(model: type) -> list[str]:
    """What tells a model from what its name and settings once meant: its version, or the hash of a user's file. The
    first version of a model of ours is left out, since it was not recorded at first."""
    version = code_version(model)
    return [] if version == "1" and model.__module__.startswith("unstuck.") else [version]


def _file(name: str) -> dict[str, str]:
    path = Path(name)
    if not name.endswith(".py"):
        return {}
    return {"name": path.name, "code": _hash(path.read_text(encoding="utf-8")) if path.is_file() else ""}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
