"""How many examples a property is tried on: all of them in `make test-all`, a fifth in `make test`."""

import os

ALL = "UNSTUCK_TEST_ALL"  # set by conftest.py where slow tests run too
LEAST = 10


def examples(count):
    """Of `count` examples those that this run has time for."""
    return count if os.environ.get(ALL) else min(count, max(LEAST, count // 5))
