"""Write the calibration that the package ships, from those runs under results/store that the forecaster is fitted on.

How good it is on the others is the figure `forecast`: unstuck reproduce forecast --profile cpu --out results.
"""

import json
import sys
from pathlib import Path

from unstuck.forecast.fitting import held_out_sets
from unstuck.forecast.runs import emerged_runs
from unstuck.store.store import Store

ROOT = Path(__file__).parents[1]
CALIBRATION = ROOT / "src" / "unstuck" / "forecast" / "calibration.json"


def main() -> int:
    _, _, fitted = next(held_out_sets(list(emerged_runs(Store(ROOT / "results" / "store")))))
    text = {"written by": "tools/calibrate.py", "calibrations": [c.as_dict() for c in fitted.calibrations.values()]}
    CALIBRATION.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")
    print(f"{len(fitted.calibrations)} signals; {fitted.law}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
