"""How many steps our Transformers take on regression: the power law of our runs, steps = C d^a (T/B)^b.

It is read from `regression_law.json`, which `tools/fit_regression.py` writes. Theory gives the time of a toy model's
gradient flow; this law gives steps of the preset `regression`, by measurement.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unstuck.laws.induction import FittedLaw

FILE = Path(__file__).with_name("regression_law.json")
THRESHOLD = 0.1  # test loss that ends a plateau of these runs


@dataclass(frozen=True)
class Sizes:
    """A regression to predict: tokens, their dimension, and copies of the relevant one."""

    T: int
    d: int
    B: int = 1

    @property
    def length(self) -> float:
        """Tokens for each relevant one."""
        return self.T / self.B


@dataclass(frozen=True)
class TransformerLaw:
    """What we measured: the law, and the settings of all its runs."""

    setting: str
    date: str
    law: FittedLaw

    @classmethod
    def read(cls, file: Path = FILE) -> "TransformerLaw":
        stored = json.loads(file.read_text(encoding="utf-8"))
        return cls(law=FittedLaw(**stored.pop("law")), **stored)

    def predict(self, sizes: Sizes) -> dict[str, Any]:
        """Steps, the interval of a new run, and what they rest on."""
        steps, low, high = self.law.predict(sizes)
        return {
            "steps": steps,
            "interval": [low, high],
            "level": self.law.level,
            "law": str(self.law).replace("length", "(T/B)"),
            "runs": self.law.runs,
            "setting": self.setting,
            "beyond": [text.replace("length", "T/B") for text in self.law.outside(sizes)],
        }
