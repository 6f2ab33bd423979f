"""A stopper and a scheduler for Ray Tune that keep a trial whose plateau is about to end.

A trial reports the probability with its results: `tune.report({"loss": loss, EXIT_PROBABILITY: p})`, where p is
`exit_probability(watch.forecast(), budget)`.
"""

from typing import Any

from ray.tune.schedulers import TrialScheduler
from ray.tune.stopper import Stopper

from unstuck.attach.veto import EXIT_PROBABILITY, Veto


class VetoStopper(Stopper):
    """Stops a trial where another stopper does, unless the trial reported that its plateau ends within its budget.

        RunConfig(stop=VetoStopper(TrialPlateauStopper("loss")))

    `probability` is that of the exit from which on a trial is kept. What ends all trials still does.
    """

    def __init__(self, stopper: Stopper, probability: float = 0.5) -> None:
        self.stopper, self.veto = stopper, Veto(probability)

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return bool(self.stopper(trial_id, result)) and not self.veto(result.get(EXIT_PROBABILITY))

    def stop_all(self) -> bool:
        return bool(self.stopper.stop_all())


class VetoScheduler(TrialScheduler):
    """Another scheduler, such as ASHAScheduler, whose decision to stop a trial is overruled in the same way.

    TuneConfig(scheduler=VetoScheduler(ASHAScheduler(metric="loss", mode="min")))
    """

    def __init__(self, scheduler: TrialScheduler, probability: float = 0.5) -> None:
        self.scheduler, self.veto = scheduler, Veto(probability)

    @property
    def metric(self) -> Any:
        return self.scheduler.metric

    @property
    def supports_buffered_results(self) -> bool:
        return bool(self.scheduler.supports_buffered_results)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        decision = str(self.scheduler.on_trial_result(tune_controller, trial, result))
        vetoed = decision == TrialScheduler.STOP and self.veto(result.get(EXIT_PROBABILITY))
        return str(TrialScheduler.CONTINUE) if vetoed else decision

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        return bool(self.scheduler.set_search_properties(metric, mode, **spec))

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        self.scheduler.on_trial_add(tune_controller, trial)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        self.scheduler.on_trial_error(tune_controller, trial)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        self.scheduler.on_trial_complete(tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        self.scheduler.on_trial_remove(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        return self.scheduler.choose_trial_to_run(tune_controller)

    def debug_string(self) -> str:
        return f"{self.scheduler.debug_string()}, with a veto for runs whose plateau is about to end"

    def save(self, checkpoint_path: str) -> None:
        self.scheduler.save(checkpoint_path)

    def restore(self, checkpoint_path: str) -> None:
        self.scheduler.restore(checkpoint_path)
