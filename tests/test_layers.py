"""Names of modules in strings obey the layers of pyproject.toml, as import statements do (`lint-imports`)."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from unstuck import _PLACES
from unstuck._moved import MOVED
from unstuck.cli import COMMANDS, SUBCOMMANDS
from unstuck.config.load import PACKAGES
from unstuck.papers.catalogue import available, from_packages, place_of

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
LAYERS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
LEVEL = {room: level for level, layer in enumerate(LAYERS) for room in layer.split(" | ")}
FRONT_DOOR = {"unstuck", "unstuck._moved", "unstuck.__main__"}  # may name everything


def dotted(path):
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {dotted(path): path for path in sorted((SOURCE / "unstuck").rglob("*.py"))}


def room(module):
    return module.split(".")[1]


def named(tree):
    """Every module of ours that a string names, and as "unstuck.ROOM." the beginning of one that is put together."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in MODULES:
            yield node.value
        if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
            head = str(node.values[0].value)
            if re.match(r"unstuck\.(\w|$)", head):
                yield head


def allowed(importer, imported):
    """An import within a room, or from a higher layer to a lower one; never of a room that the string leaves open."""
    return importer == imported or (imported in LEVEL and LEVEL[importer] < LEVEL[imported])


def edges():
    for module, path in MODULES.items():
        for name in named(ast.parse(path.read_text(encoding="utf-8"))):
            if module not in FRONT_DOOR and name != "unstuck":
                yield module, name


def test_module_names_in_strings_obey_the_layers():
    wrong = [(module, name) for module, name in edges() if not allowed(room(module), room(name))]
    assert wrong == []


def test_the_walk_finds_the_tables_of_modules():
    found = set(edges())
    assert {("unstuck.cli", command.module) for command in (COMMANDS | SUBCOMMANDS).values()} <= found
    assert {("unstuck.config.load", package) for package in PACKAGES.values()} <= found
    assert ("unstuck.papers.catalogue", "unstuck.papers.") in found


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import_module('unstuck.cli.fit')", ["unstuck.cli.fit"]),
        ("import_module(f'unstuck.papers.{name}')", ["unstuck.papers."]),
        ("import_module(f'unstuck.{name}')", ["unstuck."]),
        ("print('see unstuck.cli.fit')", []),
    ],
)
def test_the_walk_finds_names_in_strings(code, names):
    assert list(named(ast.parse(code))) == names


@pytest.mark.parametrize(
    ("importer", "imported", "expected"),
    [
        ("store", "papers", False),
        ("view", "cli", False),
        ("attach", "runner", False),
        ("cli", "", False),
        ("cli", "store", True),
    ],
)
def test_an_edge_is_allowed_downwards_only(importer, imported, expected):
    assert allowed(importer, imported) is expected


def test_every_module_that_a_table_names_exists():
    ours = [name for name in available() if name not in from_packages()]
    named = {*_PLACES.values(), *(f"unstuck.{new}" for new in MOVED.values()), *PACKAGES.values()}
    named |= {command.module for command in COMMANDS.values()} | {place_of(name)[0] for name in ours}
    assert named <= set(MODULES)
    assert all(place_of(name)[0].startswith("unstuck.papers.") for name in ours)
