"""A search does not stop a run with a believable exit ahead, and stops all others as before."""

from types import SimpleNamespace

import optuna
import pytest
from ray.tune.schedulers import ASHAScheduler, TrialScheduler
from ray.tune.stopper import MaximumIterationStopper

from refusals import refused
from unstuck.attach.optuna_pruner import VetoPruner
from unstuck.attach.ray_tune import VetoScheduler, VetoStopper
from unstuck.attach.veto import EXIT_PROBABILITY, exit_probability
from unstuck.forecast import Forecast, Outcome
from unstuck.forecast.notes import Notes
from unstuck.forecast.survival import Survival

AHEAD = Survival(now=100, mean=5.3, spread=0.1, probability=0.9)  # the median is step 200


def test_the_probability_is_that_of_the_survival_curve_where_an_end_is_stated():
    stated = Forecast(Outcome.EMERGES, 100, "attention", step=200, distribution=AHEAD)
    assert exit_probability(stated, 200) == AHEAD.by(200)
    assert 0 < exit_probability(stated, 190) < exit_probability(stated, 300) <= 0.9
    unlike = Forecast(Outcome.EMERGES, 100, "attention", step=200, distribution=AHEAD, notes=Notes(unlike=True))
    for said in (unlike, Forecast(Outcome.NOT_SOON, 100, "attention", distribution=AHEAD)):
        assert exit_probability(said, 1000) == 0
    with refused("budget", 0):
        exit_probability(stated, 0)


@pytest.mark.parametrize(("reported", "kept"), [(None, False), (0.3, False), (0.5, True), (0.9, True)])
def test_a_trial_of_optuna_is_kept_from_the_probability_on(reported, kept):
    """Two trials: the second one is worse at the rung, and would be pruned."""
    inner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2)
    study = optuna.create_study(pruner=VetoPruner(inner))

    def objective(trial):
        loss = float(trial.number)
        for step in (1, 2, 3):
            trial.report(loss, step)
            if reported is not None and trial.number:
                trial.set_user_attr(EXIT_PROBABILITY, reported)
            if trial.should_prune():
                raise optuna.TrialPruned
        return loss

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study.optimize(objective, n_trials=2)
    pruned = optuna.trial.TrialState.PRUNED
    assert [trial.state == pruned for trial in study.trials] == [False, not kept]


@pytest.mark.parametrize(("probability", "kept"), [(None, False), (0.3, False), (0.6, True)])
def test_ray_keeps_a_trial_in_the_same_way(probability, kept):
    reported = {} if probability is None else {EXIT_PROBABILITY: probability}
    assert VetoStopper(MaximumIterationStopper(1))("a", {"training_iteration": 1, **reported}) is not kept
    scheduler = VetoScheduler(ASHAScheduler(metric="loss", mode="min", grace_period=1, reduction_factor=2))
    decisions = []
    for name, loss, more in (("first", 0.0, {}), ("second", 1.0, reported)):
        trial = SimpleNamespace(trial_id=name)
        scheduler.on_trial_add(None, trial)
        result = {"training_iteration": 1, "loss": loss, **more}
        decisions.append(scheduler.on_trial_result(None, trial, result))
    assert decisions == [TrialScheduler.CONTINUE, TrialScheduler.CONTINUE if kept else TrialScheduler.STOP]


def test_what_ends_all_trials_still_does():
    ends = SimpleNamespace(stop_all=lambda: True)
    assert VetoStopper(ends).stop_all()


def test_a_probability_is_from_0_to_1():
    with refused("probability", 2):
        VetoPruner(optuna.pruners.NopPruner(), probability=2)
