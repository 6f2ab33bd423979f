"""What a command imports: no library that it does not need, since importing is most of what a short command does.
`benchmarks/startup.py` measures the time."""

import json
import subprocess
import sys

import pandas as pd
import pytest

from stores import a_store
from unstuck.papers.catalogue import PROFILES, available
from unstuck.papers.cost_table import ALL, as_csv, cost_of, stored_costs
from unstuck.papers.costs import figure_cost
from unstuck.store.cells import Cells
from unstuck.store.index_file import Rows, write_index
from unstuck.store.scan import NO_FILES

HEAVY = {"torch", "scipy", "matplotlib", "pandas", "pyarrow"}
CODE = """
import io, json, sys
from contextlib import redirect_stdout
from unstuck.cli import main
with redirect_stdout(io.StringIO()):
    code = main(sys.argv[1:])
print(json.dumps([code, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def imported(*words):
    """The libraries that a command has imported when it is done."""
    done = subprocess.run([sys.executable, "-c", CODE, *map(str, words)], capture_output=True, text=True, check=True)
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0, done.stderr
    return set(modules) & HEAVY


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (["--help"], set()),
        (["figures"], set()),
        (["figures", "--cost", "--profile", "cpu"], set()),
        (["predict", "--T", "64", "--d", "8"], {"scipy"}),
        (["predict", "induction", "--batch", "32", "--context", "64"], set()),
    ],
    ids=lambda words: " ".join(words),
)
def test_a_command_imports_what_it_needs(words, needed):
    assert imported(*words) <= needed


def test_a_forecast_of_a_file_needs_no_solver_and_no_model(tmp_path):
    rows = [f"{10 * i},{0.5 + 0.001 * (i % 3)},{0.02 + 1e-4 * i}" for i in range(100)]
    (tmp_path / "curve.csv").write_text("\n".join(["step,test_loss,attn_0_0", *rows]))
    assert imported("forecast", tmp_path / "curve.csv") == set()


def test_the_table_of_runs_needs_no_solver_no_model_and_no_pandas(tmp_path):
    assert imported("runs", a_store(tmp_path / "runs", 3)) == {"pyarrow"}


def test_reading_an_index_and_a_curve_needs_no_pandas(tmp_path):
    """pyarrow imports pandas in some of its functions."""
    names = ["a", "b"]
    cells = Cells.of([{"run_id": "a", "d": 1}, {"run_id": "b", "T": 2}])
    write_index(tmp_path, Rows(names, [NO_FILES] * 2, frozenset("a"), [], cells))
    pd.DataFrame({"step": [0, 1], "loss": [1.0, None]}).to_parquet(tmp_path / "curve.parquet")
    code = """
import sys
from pathlib import Path
from unstuck.forecast.sources import read_curve
from unstuck.store.index_file import read_index
path = Path(sys.argv[1])
rows = read_index(path)
curve = read_curve(path / "curve.parquet")
print(list(rows.names), rows.archived, [rows.cells.row(i) for i in range(2)], curve.values("loss").tolist())
print("pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    found = [cells.row(i) for i in range(2)]
    assert done.stdout.splitlines() == [f"{names} {frozenset('a')} {found} [1.0, nan]", "False"]


def test_the_stored_costs_cover_every_figure_and_profile():
    """That they are those of the figures' runs, `tools/generate_docs.py --check` tests (test_docs.py)."""
    assert set(stored_costs()) >= {(name, profile) for name in (*available(), ALL) for profile in PROFILES}


def test_a_figure_without_stored_costs_is_computed(monkeypatch):
    known = figure_cost("fig11", "quick")
    monkeypatch.setattr("unstuck.papers.cost_table.stored_costs", dict)
    assert cost_of("fig11", "quick") == known


def test_costs_are_read_as_they_were_written(monkeypatch, tmp_path):
    rows = [figure_cost(name, "quick") for name in ("fig1c", "fig11")]
    (tmp_path / "costs.csv").write_text(as_csv(rows))
    monkeypatch.setattr("unstuck.papers.cost_table.FILE", tmp_path / "costs.csv")
    read = stored_costs.__wrapped__()
    assert [row[:4] for row in read.values()] == [row[:4] for row in rows]
    assert [row[4:] for row in read.values()] == [pytest.approx(row[4:], rel=1e-9) for row in rows]
