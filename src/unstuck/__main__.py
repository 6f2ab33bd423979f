"""`python -m unstuck`: the same as the command."""

import sys

from unstuck.cli import main

if __name__ == "__main__":
    sys.exit(main())
