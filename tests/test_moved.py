"""Old module names give the new modules, with a warning, and only once."""

import importlib
import sys

import pytest

from unstuck._moved import MOVED, new_name

OLD = [f"unstuck.{name}" for name in MOVED if name not in ("serve", "runs.on_ray")] + [
    "unstuck.runs.store",
    "unstuck.spec.run",
    "unstuck.watch.watch",
    "unstuck.observe.ladder",
    "unstuck.report.page",
]


@pytest.mark.parametrize("name", OLD)
def test_an_old_name_is_the_new_module(name):
    for known in [m for m in sys.modules if m == name]:
        del sys.modules[known]
    with pytest.warns(FutureWarning):
        old = importlib.import_module(name)
    new = importlib.import_module(new_name(name))
    assert old is new
    assert new.__spec__.name == new.__name__ == new_name(name)


def test_other_names_are_left_alone():
    assert new_name("unstuck.laws.power") is None
    assert new_name("runs.store") is None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("unstuck.runs.nothing")
