"""An option for the browser's tests: where the screenshots of README and docs go."""

from pathlib import Path

import pytest


def pytest_addoption(parser):
    parser.addoption("--screenshots", type=Path, default=None, help="write the docs' screenshots into this directory")


@pytest.fixture(scope="session")
def screenshots(request, tmp_path_factory):
    """The directory asked for, or one that is thrown away: the pictures are taken in any case."""
    chosen = request.config.getoption("--screenshots")
    if chosen is None:
        return tmp_path_factory.mktemp("screenshots")
    chosen.mkdir(parents=True, exist_ok=True)
    return chosen
