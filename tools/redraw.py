"""Pictures and claims again from committed tables: python tools/redraw.py fig1c fig2-left. No run is done."""

import sys
from pathlib import Path

from unstuck.papers.reproduce import redraw

if __name__ == "__main__":
    for name in sys.argv[1:]:
        redraw(name, Path(__file__).resolve().parent.parent / "results")
