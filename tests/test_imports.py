"""A module of ours imports another one inside a function only to postpone a library that takes long to start, or that
need not be installed."""

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"
LATER: set[str] = set()


def _name(path):
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_name(path): path for path in (SRC / "unstuck").rglob("*.py")}


def imported(node, module):
    """The modules that an import statement loads, by their full names."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    base = node.module or ""
    if node.level:
        is_package = MODULES[module].name == "__init__.py"
        parts = module.split(".")[: -(node.level - is_package) or None]
        base = ".".join([*parts, *([base] if base else [])])
    return {f"{base}.{a.name}" if f"{base}.{a.name}" in MODULES else base for a in node.names}


@cache
def imports(module):
    """What a module imports when it is loaded, and what inside its functions."""
    first, late = set(), set()

    def visit(node, inside):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import | ast.ImportFrom):
                (late if inside else first).update(imported(child, module))
            elif not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
                visit(child, inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))

    visit(ast.parse(MODULES[module].read_text(encoding="utf-8")), False)
    return first, late


@cache
def libraries(module):
    """All that is installed by others and loaded with a module."""
    seen, todo = set(), [module]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            parts = name.split(".")
            todo += [".".join(parts[:i]) for i in range(1, len(parts))]
            todo += imports(name)[0] if name in MODULES else []
    return {name.partition(".")[0] for name in seen} - set(sys.stdlib_module_names) - {"unstuck"}


@pytest.mark.parametrize("module", sorted(MODULES.keys() - LATER))
def test_a_late_import_of_ours_postpones_a_library(module):
    ours = {name for name in imports(module)[1] if name in MODULES}
    assert {name for name in ours if libraries(name) <= libraries(module)} == set()


def test_the_store_does_not_know_how_runs_are_made():
    made = ("training", "runner", "schedule", "models")
    for module in MODULES:
        if module.startswith("unstuck.store"):
            assert not {
                n for found in imports(module) for n in found if n.startswith(tuple(f"unstuck.{m}" for m in made))
            }
