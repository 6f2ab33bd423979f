"""The small language of laws: terms joined by `+`, each an arithmetic expression of columns.

    "d + T/B"                             log plateau = log C + x log d + y log(T/B)
    "sqrt(d)*T / sqrt(p**2*d + (1-p)**2)" one term: everything in it shares one exponent

Parsed with Python's `ast`; only numbers, names, + - * / **, sqrt and log are understood, nothing is ever evaluated
as code.
"""

import ast
import io
import tokenize
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstuck.errors import BadInput, nearest, some

Array = NDArray[np.float64]

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.power,
}
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {"sqrt": np.sqrt, "log": np.log}
_ALLOWED = "terms joined by +, each made of columns, numbers, + - * / **, sqrt() and log()"
_MAX_LENGTH = 500
_DEEPEST = 50  # levels of an expression, which is read and evaluated by recursion; 495 minus signs are as many levels


@dataclass(frozen=True)
class Term:
    """One term of a law: its text as the user wrote it, and the expression."""

    text: str
    tree: ast.expr

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(_names(self.tree)))

    def evaluate(self, table: Mapping[str, Any]) -> Array:
        """The term's value in every row; a column that is missing or not positive where it must be is bad input."""
        with np.errstate(all="ignore"):
            values = np.asarray(_evaluate(self.tree, table), dtype=float)
        if not np.all(np.isfinite(values)) or np.any(values <= 0):
            raise BadInput(f"term {self.text!r}", "zero, negative or undefined in some rows", "positive in every row")
        return values


def parse(formula: str) -> list[Term]:
    """The terms of a law, in order; one sentence for anything else."""
    if not isinstance(formula, str) or not formula.strip() or len(formula) > _MAX_LENGTH:
        raise BadInput("formula", formula, _ALLOWED)
    terms = [Term(text, _expression(text, formula)) for text in _split(formula)]
    texts = [t.text for t in terms]
    if len(set(texts)) < len(texts):
        raise BadInput("formula", formula, "without a term written twice")
    return terms


def _split(formula: str) -> list[str]:
    """Cut at every `+` outside brackets. Tokens, not characters, so that 1e+3 stays whole."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(formula).readline))
    except (tokenize.TokenError, SyntaxError, IndentationError) as e:
        raise BadInput("formula", formula, _ALLOWED) from e
    lines = formula.splitlines(keepends=True)
    starts = [sum(map(len, lines[:i])) for i in range(len(lines) + 1)]
    depth, cuts = 0, [-1]
    for token in tokens:
        if token.type != tokenize.OP:
            continue
        depth += (token.string in "([{") - (token.string in ")]}")
        if token.string == "+" and depth == 0:
            cuts.append(starts[token.start[0] - 1] + token.start[1])
    pieces = [formula[a + 1 : b].strip() for a, b in zip(cuts, [*cuts[1:], len(formula)], strict=True)]
    if not all(pieces):
        raise BadInput("formula", formula, _ALLOWED)
    return pieces


def _expression(text: str, formula: str) -> ast.expr:
    """One term as a tree, of which every node is allowed."""
    tree = _tree(text, formula)
    for node in ast.walk(tree):
        if refusal := _refusal(node):
            raise BadInput("formula", formula, refusal)
    if not _names(tree):
        raise BadInput("formula", formula, f"made of terms that name a column; {text!r} names none")
    return tree


def _tree(text: str, formula: str) -> ast.expr:
    """A term as Python reads it, if it is not nested too deeply to walk."""
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        raise BadInput("formula", formula, _ALLOWED) from e
    level: list[ast.AST] = [tree]
    for _ in range(_DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        raise BadInput("formula", formula, f"nested at most {_DEEPEST} levels deep")
    return tree


def _refusal(node: ast.AST) -> str | None:
    """What is allowed, for a node that is not."""
    match node:
        case ast.BinOp(op=ast.BitXor()):
            return f"{_ALLOWED}; write a power as **"
        case ast.BinOp(op=op):
            allowed = type(op) in _OPERATORS
        case ast.Call() if not _is_known_call(node):
            return _ALLOWED + nearest(ast.unparse(node.func), _FUNCTIONS)
        case ast.Constant(value=value):
            allowed = _is_number(value)
        case ast.Attribute(value=of):
            allowed = isinstance(of, ast.Name)
        case _:
            allowed = isinstance(node, _NODES)
    return None if allowed else _ALLOWED


def _names(node: ast.AST) -> list[str]:
    """The columns an expression names, dotted ones (task.T) whole."""
    match node:
        case ast.Attribute(value=ast.Name(id=section), attr=name):
            return [f"{section}.{name}"]
        case ast.Name(id=name):
            return [] if name in _FUNCTIONS else [name]
    return [name for child in ast.iter_child_nodes(node) for name in _names(child)]


_NODES = (ast.Attribute, ast.BinOp, ast.UnaryOp, ast.USub, ast.Call, ast.Name, ast.Load, ast.Constant, *_OPERATORS)


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300  # type: ignore[arg-type]


def _is_known_call(node: ast.Call) -> bool:
    known = isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS
    return known and len(node.args) == 1 and not node.keywords


def _evaluate(node: ast.expr, table: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return float(value)  # type: ignore[arg-type]
        case ast.Name() | ast.Attribute():
            return column(_names(node)[0], table)
        case ast.UnaryOp(operand=operand):
            return -_evaluate(operand, table)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_evaluate(left, table), _evaluate(right, table))
        case ast.Call(func=ast.Name(id=name), args=[argument]):
            return _FUNCTIONS[name](_evaluate(argument, table))
    raise AssertionError(f"{ast.dump(node)} passed the parser")


def column(name: str, table: Mapping[str, Any]) -> Array:
    """A column by its name; `task.T` also finds `T`, and `T` the one column that ends in `.T`."""
    names = [str(n) for n in table]
    found = [n for n in (name, name.rpartition(".")[2]) if n in names] or [n for n in names if n.endswith(f".{name}")]
    if not found:
        raise BadInput("formula", name, f"made of the table's columns: {some(names)}" + nearest(name, names))
    try:
        return np.asarray(table[found[0]], dtype=float)
    except (TypeError, ValueError) as e:
        raise BadInput(f"column {name!r}", "text", "numbers only") from e
