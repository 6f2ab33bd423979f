"""What more than one file of tests needs: one thread a process, a browser, where caches and screenshots go, W&B without
a network."""

import os
from pathlib import Path

import pytest

from amounts import ALL


def pytest_addoption(parser):
    parser.addoption("--screenshots", type=Path, default=None, help="write the docs' screenshots into this directory")


def pytest_configure(config):
    for library in ("OMP", "OPENBLAS", "MKL"):  # before a test imports them: threads of two workers would wait in turns
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    if "not slow" not in config.getoption("markexpr"):
        os.environ[ALL] = "1"


@pytest.fixture(autouse=True, scope="session")
def cache_directory(tmp_path_factory):
    """A place of our own for the indexes of stores, in this process and in those that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def screenshots(request, tmp_path_factory):
    """The directory asked for, or one that is thrown away: the pictures are taken in any case."""
    chosen = request.config.getoption("--screenshots")
    if chosen is None:
        return tmp_path_factory.mktemp("screenshots")
    chosen.mkdir(parents=True, exist_ok=True)
    return chosen


@pytest.fixture
def offline_wandb(tmp_path, monkeypatch):
    """W&B as in a new process, writing below tmp_path: it reads its environment once, at the first use of a process."""
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    wandb.teardown()
    yield wandb
    wandb.teardown()


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    from browsing import CHROMIUM, QUIET

    with sync_playwright() as p:
        started = p.chromium.launch(executable_path=CHROMIUM, args=[*QUIET])
        yield started
        started.close()


@pytest.fixture
def page(browser):
    """A page on which nothing may go wrong."""
    from browsing import new_page

    new = new_page(browser)
    yield new
    assert not new.wrong
    assert new.get_by_text("Share chart").count() == 0  # plotly's own, which would send it away
    new.close()


@pytest.fixture
def dashboard(tmp_path):
    """The address of a dashboard of 24 made-up runs."""
    from dashboards import Server
    from stores import a_store

    with Server(a_store(tmp_path / "runs", 24)) as address:
        yield address
