"""A pruner for Optuna that keeps a trial whose plateau is about to end."""

from optuna.pruners import BasePruner
from optuna.study import Study
from optuna.trial import FrozenTrial

from unstuck.attach.veto import EXIT_PROBABILITY, Veto


class VetoPruner(BasePruner):
    """Prunes where another pruner does, unless the trial reported that its plateau ends within its budget.

        study = optuna.create_study(pruner=VetoPruner(optuna.pruners.SuccessiveHalvingPruner()))

        def objective(trial):
            ...
            trial.report(loss, step)
            trial.set_user_attr(EXIT_PROBABILITY, exit_probability(watch.forecast(), budget))
            if trial.should_prune():
                raise optuna.TrialPruned()

    `probability` is that of the exit from which on a trial is kept.
    """

    def __init__(self, pruner: BasePruner, probability: float = 0.5) -> None:
        self.pruner, self.veto = pruner, Veto(probability)

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        return self.pruner.prune(study, trial) and not self.veto(trial.user_attrs.get(EXIT_PROBABILITY))
