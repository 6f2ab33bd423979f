"""Benchmarks state an aim and fail where it is missed; `make bench` runs them."""

import ast
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_benchmark_has_an_aim_and_an_exit_code(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    assert any(name.startswith("AIM") for name in names)
    last = tree.body[-1]
    assert isinstance(last, ast.If)
    assert "sys.exit(" in ast.unparse(last)
