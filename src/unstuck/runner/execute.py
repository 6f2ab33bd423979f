"""Carry out one run in a store: cached if it is there, resumed if it was stopped, checkpointed as it goes.

A finished result is never lost. Where more is asked of a run than its result says and no checkpoint leads on from it,
it is trained again from its start, on the way passing all it passed before; until then the old result and curve stay.
"""

import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from unstuck.config.run import RunSpec
from unstuck.curve import Curve
from unstuck.errors import BadInput, InvalidCombination
from unstuck.probes.circuit import find_circuit, has_heads
from unstuck.probes.induction_circuit import find_induction_circuit
from unstuck.probes.maps import attention_table
from unstuck.probes.stored_circuit import in_words
from unstuck.runner.budget import covering, is_spec_of, stored_result, truncate
from unstuck.schedule.repetition import repetition_of
from unstuck.store.store import CACHE, Result, RunDirectory, Store
from unstuck.training.loop import Run
from unstuck.training.result import Checkpoint, RunResult
from unstuck.training.trial import named_files, try_out

CHECKPOINT_SECONDS = 20.0
STATUS_SECONDS = 2.0  # between notes of the step a run is at
MAP_SEQUENCES = 256  # whose mean attention is kept, where what matters is positions, not tokens
CIRCUIT = 512  # sequences on which ablations are judged


@dataclass(frozen=True)
class Executed:
    """A run's result in its store, and whether it was there already."""

    run_id: str
    result: Result
    cached: bool

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as `unstuck train --json` prints them."""
        return {"run_id": self.run_id, **self.result.model_dump(), "cached": self.cached}

    def __getitem__(self, key: str) -> Any:
        warnings.warn(
            "what `execute` returns is no longer a dict: its attributes are run_id, result and cached, and [...] goes "
            "with the next release",
            FutureWarning,
            stacklevel=2,
        )
        return self.as_dict()[key]


def execute(
    spec: RunSpec,
    store: Store,
    *,
    stop: Callable[[], bool] = lambda: False,
    on_row: Callable[[Run], None] = lambda run: None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    keep: bool = False,
) -> Executed | None:
    """Run `spec` in `store`; None, and nothing is done, where another process works on the same run.

    A run that emerged keeps its last checkpoint only if asked to: it is twenty megabytes, and only a larger
    `train.after` would need it.
    """
    directory = store.run(spec.run_id)
    if not directory.path.exists() and (found := _known(spec, directory)) is not None:
        return Executed(spec.run_id, found, cached=True)  # archived: there is nothing to lock
    with directory.lock() as mine:
        if not mine:
            return None
        if (found := _known(spec, directory)) is not None:
            return Executed(spec.run_id, found, cached=True)
        try:
            with named_files(spec):
                spec.task.prepare(store.path / CACHE)
                try_out(spec)
                session = _Session(spec, directory, checkpoint_seconds)
                return Executed(spec.run_id, session.train(stop, on_row, keep), cached=False)
        except BadInput:
            directory.remove_unless_begun()
            raise


def _known(spec: RunSpec, directory: RunDirectory) -> Result | None:
    """The stored result, if it answers what is asked."""
    if spec.train.predictions and not directory.has_predictions():
        return None  # here, not in `stored_result`: in a committed store a finished comparison needs them no more
    stored = stored_result(directory, spec)
    return None if stored is None else _at_its_last_step(stored, directory.curve())


class _Session:
    """A run that is trained in its directory: what is written there, and when."""

    def __init__(self, asked: RunSpec, directory: RunDirectory, checkpoint_seconds: float) -> None:
        self.asked, self.directory, self.checkpoint_seconds = asked, directory, checkpoint_seconds
        self.old = directory.result()
        self.spec = spec = asked if self.old is None else covering(asked, self.old)
        unsigned = is_spec_of(directory.spec(), spec)  # before it is replaced
        directory.write_spec(spec)
        store = Store(directory.path.parent)
        others = [_to_compare(spec, store.run(run_id)) for run_id in spec.train.compare]

        def resumed(state: dict[str, Any] | None) -> Run:
            checkpoint = None if state is None else Checkpoint(**state)
            return Run(spec, checkpoint, references=others, repetition=repetition_of(spec))

        self.run = directory.resume(resumed, unsigned=unsigned)
        self._note("running")
        self.saved = self.noted = time.monotonic()

    def train(self, stop: Callable[[], bool], on_row: Callable[[Run], None], keep: bool) -> Result:
        """Train to the end, or until `stop()`."""
        if self.run.step == 0:
            self._on_step(self.run)
        at_least = 0 if self.old is None else self.old.steps
        trained = self.run.advance(stop=stop, on_row=on_row, on_step=self._on_step, at_least=at_least)
        if trained.status == "stopped":
            self._save("stopped")
            return Result.of(trained)
        return self._finish(trained, keep)

    def _on_step(self, run: Run) -> None:
        if run.step in self.spec.train.maps:
            self._keep_map()
        now = time.monotonic()
        if run.rows and now - self.saved >= self.checkpoint_seconds:  # without a row there is nothing to go on from
            self._save("running")
            self.saved = self.noted = time.monotonic()
        elif now - self.noted >= STATUS_SECONDS:
            self._note("running")
            self.noted = now

    def _save(self, state: str) -> None:
        """Write what the run goes on from, and its curve once that has all that the old one has."""
        self.directory.write_checkpoint(vars(self.run.checkpoint()))
        if self.old is None or self.run.step >= self.old.steps:
            self.directory.write_curve(Curve.from_rows(self.run.rows).to_frame())
        self._note(state)

    def _note(self, state: str) -> None:
        before = {} if self.old is None else {"result": self.old.model_dump()}
        now = {"state": state, "step": self.run.step, "seconds": self.run.seconds}
        self.directory.write_status({**now, **before})

    def _keep_map(self) -> None:
        sequences = MAP_SEQUENCES if hasattr(self.spec.task, "scored") else 1
        batch = self.run.evaluator.sets["primary"][1]
        self.directory.write_maps(attention_table(self.run.model, batch, self.run.step, sequences=sequences))

    def _finish(self, trained: RunResult, keep: bool) -> Result:
        """Write what a run that has ended leaves: the status last, when everything else is on disk."""
        keep = keep or trained.status in ("censored", "finished")  # a larger budget goes on from there
        if keep:
            self.directory.write_checkpoint(vars(self.run.checkpoint()))
        result = Result.of(trained).model_copy(update=self._extras(trained))
        self.directory.write_curve(trained.curve.to_frame())
        self.directory.write_status({"state": "finished", "step": result.steps, "result": result.model_dump()})
        if not keep:
            self.directory.remove_checkpoint()
        return _at_its_last_step(truncate(result, self.asked), trained.curve)

    def _extras(self, trained: RunResult) -> dict[str, Any]:
        """What the specification asks for beside the curve: maps, predictions, the circuit."""
        t = self.spec.train
        mapped = [step for step in t.maps if step <= trained.steps]
        if t.maps and trained.steps not in mapped:
            self._keep_map()
            mapped.append(trained.steps)
        if t.predictions:
            self.directory.write_predictions(self.run.evaluator.predictions())
        extras: dict[str, Any] = {"compared": list(t.compare), "predicted": t.predictions, "mapped": mapped}
        if trained.status == "emerged" and (circuit := self._circuit(trained)) is not None:
            extras["circuit"] = circuit
        return extras

    def _circuit(self, trained: RunResult) -> dict[str, Any] | None:
        """The circuit of a task that has one: of recall, or of induction heads in a language model."""
        model, evaluator = self.run.model, self.run.evaluator
        if hasattr(self.spec.task, "chance") and "copying" in trained.curve.measures:
            return find_circuit(model, *evaluator.primary(CIRCUIT), trained.curve, self.spec.task.chance).as_dict()
        if evaluator.repeated is not None and has_heads(model) and hasattr(model, "observe"):
            return find_induction_circuit(model, evaluator.repeated._replace(tokens=evaluator.repeated.alone)).as_dict()
        return None


def _at_its_last_step(result: Result, curve: Curve | None) -> Result:
    """A result whose last values are those of its last step, where the run itself went on: without the circuit that it
    had in the end. One that is still there is said in today's words."""
    if curve is None:
        return result
    if result.steps < curve.steps.max():
        final = {k: v for k, v in curve.at(result.steps).items() if k != "step"}
        mapped = {"mapped": [x for x in result.mapped if x <= result.steps]} if result.mapped else {}
        return result.model_copy(update={"circuit": None, "final": final, **mapped})
    if result.circuit:
        return result.model_copy(update={"circuit": {**result.circuit, "says": in_words(result.circuit, curve)}})
    return result


def _to_compare(spec: RunSpec, other: RunDirectory) -> Any:
    """The predictions of another run, made on the evaluation set of this one: same task but for its training set."""
    predictions = other.predictions()
    theirs, mine = other.spec() or {}, spec.as_dict()
    tasks = [{k: v for k, v in s.get("task", {}).items() if k != "sequences"} for s in (theirs, mine)]
    if json.dumps(tasks[0]) != json.dumps(tasks[1]) or theirs.get("seed") != mine["seed"]:
        raise InvalidCombination(
            f"run {other.path.name} cannot be compared with: its task or seed is another, and so are the sequences it "
            "was asked about"
        )
    return predictions
