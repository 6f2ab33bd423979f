"""The order in which `make results` does what is left: what is named comes first, nothing is lost, tiers stay apart."""

import sys
from pathlib import Path

import pytest

from unstuck.papers.lab import grid, raced
from unstuck.runs.store import Store

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
import results


@pytest.fixture
def figures():
    return {
        "small": grid("regression", 1, [0, 1], task__T=[16, 32]),
        "recalled": grid("recall", 2, [0], task__pairs=[4, 8]),
        "raced": raced(grid("recall", 3, [0], task__pairs=[4]), [1e-4, 1e-5]),
    }


def ids(units):
    return [spec.run_id for unit in units for spec in unit]


def test_what_is_named_comes_first_and_nothing_is_lost(figures, tmp_path):
    store = Store(tmp_path)
    plain, late = results.in_order(figures, store)
    assert plain[0][0].task.T == 16  # regression, the cheapest first
    long = figures["recalled"][1].spec
    first, same = results.in_order(figures, store, [long.run_id, "small"])
    assert ids(first)[0] == long.run_id
    assert ids(first)[1:5] == [run.spec.run_id for run in figures["small"]]
    assert set(ids(first)) == set(ids(plain))
    assert ids(same) == ids(late)


def test_a_run_that_races_brings_its_rivals(figures, tmp_path):
    rival = figures["raced"][1].spec
    _, late = results.in_order(figures, Store(tmp_path), [rival.run_id])
    assert ids(late)[:2] == [run.spec.run_id for run in figures["raced"]]


def test_an_unknown_name_is_refused(monkeypatch, capsys, figures):
    monkeypatch.setattr(results, "trained_figures", lambda: figures)
    monkeypatch.setattr(sys, "argv", ["results.py", "--first", "0123456789abcdef"])
    with pytest.raises(SystemExit) as stopped:
        results.main()
    assert stopped.value.code == 2
    assert "no trained figure or run of one is named 0123456789abcdef" in capsys.readouterr().err


def test_layer_norm_and_repetition_change_what_recall_is_expected_to_take():
    """Measured: with layer norm two to three times as long, with two copies half as long."""
    from unstuck.runs.cost import predicted_cost

    def steps(**settings):
        return predicted_cost(grid("recall", 1, [0], settings)[0].spec).steps

    plain = steps()
    assert 2 < steps(**{"model.layer_norm": True}) / plain < 3
    assert steps(**{"task.B": 2.0}) == pytest.approx(plain / 2, abs=1)
    assert steps(**{"task.B": 4.0}) == steps(**{"task.B": 2.0})  # more does not help further
