"""Draw figures again from their committed tables: python tools/redraw.py fig1c fig2-left. No run is done."""

import sys
from pathlib import Path

import pandas as pd

from unstuck.papers.reproduce import write_picture

RESULTS = Path(__file__).resolve().parent.parent / "results"

if __name__ == "__main__":
    for name in sys.argv[1:]:
        write_picture(name, pd.read_csv(RESULTS / f"{name}.csv"), RESULTS)
