"""Print the lowest versions that pyproject.toml allows, as pip constraints: `python tools/lowest.py papers`.

Arguments are the extras to include. torch is left out: constraints.txt pins it.
"""

import re
import sys
import tomllib
from pathlib import Path

PINNED = {"torch"}


def lowest(requirements: list[str]) -> list[str]:
    """`numpy>=1.26` as `numpy==1.26`."""
    found = [re.fullmatch(r"([\w-]+)>=([\d.]+)", requirement) for requirement in requirements]
    if not all(found):
        raise SystemExit(f"a requirement is not of the form name>=version: {requirements}")
    return [f"{match[1]}=={match[2]}" for match in found if match and match[1] not in PINNED]


if __name__ == "__main__":
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    extras = [r for name in sys.argv[1:] for r in project["optional-dependencies"][name]]
    print("\n".join(lowest([*project["dependencies"], *extras])))
