"""What the runs on text share: their seeds, sizes and budgets, and the two events that are timed."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

#: Runs of seeds 0 to 4 were seen while the event was still being defined, and seed 1000 is that of pilot runs. Results
#: count from the first seed that nobody had seen when settings and event were fixed. All figures begin there, so that
#: runs with the same settings are shared between them.
FIRST_BLIND_SEED = 10

SMALL = {"model.width": 16, "model.heads": 2, "train.max_steps": 40, "task.vocabulary": 256}  # a quick look
BURST = 0.25  # share of sequences that repeat themselves where another size is varied
LONG = 20_000  # steps at most


def blind_seeds(n: int) -> range:
    """The seeds of n runs of one setting."""
    return range(FIRST_BLIND_SEED, FIRST_BLIND_SEED + n)


@dataclass(frozen=True)
class Event:
    """A copying advantage of 2 nats. `column` has its step where a table does not have it as `plateau_steps`."""

    name: str
    axis: str
    column: str = ""

    def of(self, table: pd.DataFrame) -> pd.DataFrame:
        """The runs with the steps to this event. One that has not reached it by its last row is censored there."""
        if not self.column:
            return table
        steps = table[self.column] if self.column in table else pd.Series(np.nan, table.index)
        formed = np.where(steps.notna(), "emerged", "censored")
        return table.assign(plateau_steps=steps, status=np.where(table["status"] == "diverged", "diverged", formed))


ALONE = Event("random sequences", "steps until heads form (copying 2 nats)")  # decides
IN_TEXT = Event("copying in text", "steps until copying in text is 2 nats", "crossing_in_text_2")
#: For runs that are to reach both.
BOTH: dict[str, Any] = {"train.until": "copy_advantage_in_text"}
