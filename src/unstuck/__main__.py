"""`python -m unstuck`: the same as the command."""

from unstuck.cli import entry

if __name__ == "__main__":
    entry()
