"""The settings of a specification: name, value, meaning and what is allowed, read from the classes that check them.

A setting means what the comment at its field says: behind it, or above it after `#:`.
"""

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from unstuck.config.names import shown_name
from unstuck.config.run import RunSpec

KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", NoneType: "null"}
BOUNDS = {Ge: ("ge", "at least"), Gt: ("gt", "above"), Le: ("le", "at most"), Lt: ("lt", "below")}


class Setting(NamedTuple):
    """One key of a specification."""

    name: str  # task.T
    default: Any  # what the specification has
    meaning: str
    allowed: str


def settings_of(spec: RunSpec) -> list[Setting]:
    """All keys of a specification, in the order of its sections."""
    found = [
        Setting("task.name", shown_name(spec.task_name), "what is learnt", "a task, or a .py file with your own"),
        *_section("task", spec.task),
        Setting("model.name", spec.model_name, "what learns", "a model, or a .py file with your own"),
        *_section("model", spec.model),
    ]
    for section in ("optim", "train", "schedule"):
        found += _section(section, getattr(spec, section))
    return [*found, Setting("seed", spec.seed, "of weights and data", "a whole number from 0 to 4,294,967,295")]


def _section(section: str, values: Any) -> Iterator[Setting]:
    kind = type(values)
    meanings, hints = field_comments(kind), get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        if field.init:
            value = getattr(values, field.name)
            plain = list(value) if isinstance(value, tuple) else value
            yield Setting(f"{section}.{field.name}", plain, meanings.get(field.name, ""), allowed(hints[field.name]))


def field_comments(kind: type) -> dict[str, str]:
    """The comment at each field of a class and of those it is made from."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if dataclasses.is_dataclass(base):
            found |= {name: comment for name, comment in _own_comments(base).items() if comment}
    return found


def _own_comments(kind: type) -> dict[str, str]:
    try:
        lines = textwrap.dedent(inspect.getsource(kind)).splitlines()
    except (OSError, TypeError):  # a class of a notebook, or of a program without its source
        return {}
    (body,) = ast.parse("\n".join(lines)).body
    assert isinstance(body, ast.ClassDef)
    fields = [node for node in body.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]
    return {node.target.id: _comment(lines, node) for node in fields}  # type: ignore[union-attr]


def _comment(lines: list[str], field: ast.AnnAssign) -> str:
    """Behind a field, or in the lines above it that begin with `#:`."""
    assert field.end_lineno is not None
    assert field.end_col_offset is not None
    behind = lines[field.end_lineno - 1].encode()[field.end_col_offset :].decode().strip()
    if behind.startswith("#"):
        return behind.lstrip("#: ")
    above: list[str] = []
    for line in reversed(lines[: field.lineno - 1]):
        if not line.strip().startswith("#:"):
            break
        above.insert(0, line.strip().lstrip("#: "))
    return " ".join(above)


def allowed(hint: Any) -> str:
    """What a type allows, in words.

    Examples:
        >>> allowed(Literal["random", "last"]), allowed(int | None), allowed(Annotated[int, Ge(2), Le(9)])
        ('random or last', 'a whole number or null', 'a whole number from 2 to 9')
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _bounded(inner[0], inner[1:])
    if origin is Literal:
        return _either([str(value) or "nothing" for value in inner])
    if origin in (Union, UnionType):
        return _either(list(dict.fromkeys(map(allowed, inner))))
    if origin in (tuple, list):
        return f"a list, each {allowed(inner[0])}"
    return KINDS.get(hint, getattr(hint, "__name__", str(hint)))


def _either(words: list[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def _bounded(kind: Any, about: tuple[Any, ...]) -> str:
    described = [one.description for one in about if isinstance(one, FieldInfo) and one.description]
    if described:
        return str(described[0])
    rules = [rule for one in about for rule in (one.metadata if isinstance(one, FieldInfo) else [one])]
    limits = {
        word: getattr(rule, name) for rule in rules for sort, (name, word) in BOUNDS.items() if isinstance(rule, sort)
    }
    if {"at least", "at most"} <= limits.keys():
        limits = {"from": limits["at least"], "to": limits["at most"]}
    joined = " " if "from" in limits else " and "
    return f"{allowed(kind)} {joined.join(f'{word} {limit:,}' for word, limit in limits.items())}".rstrip()
