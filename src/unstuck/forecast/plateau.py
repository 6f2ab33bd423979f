"""Has a loss stopped falling? From the curve alone, with no threshold."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

ROWS = 10  # at least, that make a plateau
STARTS = 200  # at most, that are tried


@dataclass
class PlateauDetector:
    """Has a noisy measure stopped falling? Without a threshold, from its own noise.

    The steps since the last change of level are halved; the measure stands still if the mean of the second half is not
    below that of the first by more than `sure` standard errors, nor by more than `tolerance` of its value.
    """

    least: int = 100  # steps to look at
    sure: float = 3.0
    tolerance: float = 0.02
    values: list[float] = field(default_factory=list)

    def add(self, value: float) -> None:
        self.values.append(value)

    def reset(self) -> None:
        self.values.clear()

    @property
    def stands(self) -> bool:
        n = len(self.values)
        return n >= self.least and self.flat(self.values[-max(self.least, n // 2) :])

    def flat(self, window: Sequence[float]) -> bool:
        """Is the second half of these values no lower than the first?"""
        half = len(window) // 2
        first, second = window[:half], window[-half:]
        fall = mean(first) - mean(second)
        noise = math.sqrt((_variance(first) + _variance(second)) / half)
        return fall <= max(self.sure * noise, self.tolerance * abs(mean(first)))


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    middle = mean(values)
    return math.fsum((v - middle) ** 2 for v in values) / max(1, len(values) - 1)


def plateau_since(losses: Sequence[float]) -> int | None:
    """The row from which on a loss has stood still to the end; None where it still falls.

    Examples:
        >>> plateau_since([5, 4, 3, 2, 1.5, 1.2] + [1.0] * 20), plateau_since(list(range(50, 0, -1)))
        (6, None)
    """
    detector = PlateauDetector()
    for start in range(0, len(losses) - ROWS + 1, max(1, len(losses) // STARTS)):
        rest = losses[start:]
        if detector.flat(rest) and detector.flat(rest[: max(ROWS, len(rest) // 4)]):
            return start + _fallen(rest)
    return None


def _fallen(losses: Sequence[float]) -> int:
    """How many of the first losses still lie above the level, by more than others differ from it."""
    level = median(losses)
    spread = 3 * 1.4826 * median([abs(v - level) for v in losses])
    return next(i for i, v in enumerate(losses) if v <= level + max(spread, 0.02 * abs(level)))
