"""Old module names give the new modules, with a warning, and only once."""

import importlib
import sys

import pytest

from unstuck._moved import MOVED, new_name

OLD = [f"unstuck.{name}" for name in MOVED if name not in ("serve", "runs.on_ray")] + [
    "unstuck.runs.store",
    "unstuck.spec.run",
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


def test_old_names_of_functions_warn_and_give_the_same():
    import pandas as pd

    from unstuck import Forecaster, errors

    with pytest.warns(FutureWarning):
        assert errors.Impossible is errors.InvalidCombination
    curve = pd.DataFrame({"step": [0.0, 100.0, 200.0], "attn_0_0": [0.1, 0.1, 0.1]})
    for old, new in (("told", "predict"), ("of_curve", "from_attention")):
        with pytest.warns(FutureWarning):
            said = getattr(Forecaster(), old)(curve)
        assert said == getattr(Forecaster(), new)(curve)
