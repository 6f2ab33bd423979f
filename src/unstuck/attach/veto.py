"""When a search may not stop a run: a believable exit from its plateau lies ahead.

Early stopping compares losses so far. A run that leaves its plateau late but ends lowest looks worst until then. A
pruner, stopper or scheduler of `optuna_pruner.py` and `ray_tune.py` asks another one, and does not stop a run for which
the probability that its plateau ends within its budget is high enough.
"""

from unstuck.errors import BadInput
from unstuck.forecast import Forecast, Outcome
from unstuck.scalars import real

EXIT_PROBABILITY = "unstuck/exit_probability"  # under which a trial reports it


def exit_probability(forecast: Forecast, budget: float) -> float:
    """Probability that the event comes before the last step of a run; 0 where a forecast states no end, or is about a
    run unlike those of its fit.

    Examples:
        >>> from unstuck.forecast.survival import Survival
        >>> ahead = Survival(now=100, mean=5.3, spread=0.1, probability=0.9)
        >>> said = Forecast(Outcome.EMERGES, 100, "attention", step=200, distribution=ahead)
        >>> round(exit_probability(said, budget=1000), 2), exit_probability(said, budget=100)
        (0.9, 0.0)
    """
    if budget <= 0:
        raise BadInput("budget", budget, "the number of steps of the run, above 0")
    if forecast.outcome is not Outcome.EMERGES or forecast.distribution is None or forecast.notes.unlike:
        return 0.0
    return forecast.distribution.by(budget)


class Veto:
    """Is an exit believable? From `probability` on; at twice the value fewer runs are kept, and fewer of them in
    vain."""

    def __init__(self, probability: float = 0.5) -> None:
        self.probability = real("probability", probability, 0.0, 1.0, "a number from 0 to 1")

    def __call__(self, reported: float | None) -> bool:
        """For the probability that a trial reported last, None if it has not."""
        return reported is not None and reported >= self.probability
