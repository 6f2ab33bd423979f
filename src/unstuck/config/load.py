"""Make a run's specification from a shipped name, a YAML file or a user's .py, and key=value overrides."""

import dataclasses
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from unstuck.config.names import shown_name, stored_name
from unstuck.config.plain_yaml import LARGEST, NotPlain, plain_yaml
from unstuck.config.run import OptimSpec, RunSpec, ScheduleSpec, TrainSpec
from unstuck.errors import BadInput, InvalidCombination, brief, nearest
from unstuck.tasks._repeating import repeating

#: What pydantic says less plainly.
PLAINLY = {
    **dict.fromkeys(("float_parsing", "float_type"), "a number"),
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "a whole number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "true or false"),
    **dict.fromkeys(("tuple_type", "list_type"), "a list, such as [1, 2]"),
}
SECTIONS = ("task", "model", "optim", "train", "schedule", "seed")
PACKAGES = {"task": "unstuck.tasks", "model": "unstuck.models"}  # of ours, and groups of entry points


def shipped() -> list[str]:
    """The names of the specifications that come with the package."""
    return sorted(p.name.removesuffix(".yaml") for p in _presets().iterdir() if p.name.endswith(".yaml"))


def _presets() -> Traversable:
    return files("unstuck.config") / "presets"


def load_spec(source: str, overrides: Iterable[str] = ()) -> RunSpec:
    """The checked specification that `source` and `overrides` ("task.T=32", "seed=1") name."""
    return build_spec(merge(read_source(source), parse_overrides(overrides)))


def read_source(source: str) -> dict[str, Any]:
    """A specification as plain nested values, not yet checked."""
    if source in shipped():  # whose names are all our own
        return _yaml(_presets().joinpath(f"{source}.yaml").read_text(encoding="utf-8"), source)
    path = Path(source)
    if path.suffix in (".yaml", ".yml") and path.is_file():
        raw = _yaml(_text(path), source)
        for section in ("task", "model", "optim"):
            name = raw[section].get("name") if isinstance(raw.get(section), dict) else None
            if isinstance(name, str) and name.endswith(".py"):  # somebody else's file must not choose what is run
                wanted = f"a name; to run that file of code, say so yourself: {section}.name={name}"
                raise BadInput(f"{section}.name in {source}", name, wanted)
        return raw
    if path.suffix == ".py" and path.is_file():
        return {"task": {"name": str(path)}}
    allowed = f"a shipped name ({', '.join(shipped())}), a YAML file or a .py file that exists"
    raise BadInput("SPEC", source, allowed + nearest(source, shipped()))


def _text(path: Path) -> str:
    """What a file says, or more than `plain_yaml` takes."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(LARGEST + 1)
    except UnicodeDecodeError as e:
        raise BadInput("SPEC", str(path), "readable YAML, in UTF-8") from e


def _yaml(text: str, source: str) -> dict[str, Any]:
    try:
        value = plain_yaml(text)
    except NotPlain as e:
        field, value = ("SPEC", source) if e.value is None else (f"a value in {source}", e.value)
        raise BadInput(field, value, e.allowed) from e
    if not isinstance(value, dict):
        raise BadInput("SPEC", source, "YAML with the sections task, model, optim, train, schedule and seed")
    return value


def parse_overrides(words: Iterable[str]) -> dict[str, Any]:
    """["task.T=32", "seed=1"] -> {"task": {"T": 32}, "seed": 1}; values are read as YAML."""
    out: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise BadInput("override", word, "of the form key=value, such as task.T=32")
        try:
            value = plain_yaml(text)
        except NotPlain as e:
            raise BadInput(key, text, e.allowed) from e
        if isinstance(value, str):
            value = _number(value)
        section, dot, name = key.partition(".")
        if section not in SECTIONS or (section == "seed") == bool(dot) or "." in name:
            raise BadInput("override", key, _keys_hint(key))
        if dot:
            out.setdefault(section, {})[name] = value
        else:
            out[section] = value
    return out


def _number(text: str) -> Any:
    try:  # YAML 1.1 reads 1e-4 as text
        return float(text)
    except ValueError:
        return text


def _keys_hint(key: str) -> str:
    sections = [section for section in SECTIONS if section != "seed"]
    names = [*(f"{s}.{n}" for s in sections for n in _known_names(s)), "seed"]
    known = next((name for name in names if name.endswith(f".{key}")), None)  # just its section is missing
    meant = nearest(key, names) if known is None else f"; did you mean {known!r}?"
    return f"{', '.join(f'{s}.KEY' for s in sections)} or seed{meant}"


def _known_names(section: str) -> list[str]:
    """The settings of a section; of task and model those of all that come with the package."""
    kinds: dict[str, type] = {"optim": OptimSpec, "train": TrainSpec, "schedule": ScheduleSpec}
    classes: list[Any] = [kinds[section]] if section in kinds else [find_class(section, n) for n in _own_names(section)]
    return list(dict.fromkeys(f.name for kind in classes for f in dataclasses.fields(kind)))


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes` laid over it, section by section; another name leaves the old one's settings behind."""
    out = dict(base)
    for key, value in changes.items():
        old = out.get(key)
        out[key] = value
        if isinstance(old, dict) and isinstance(value, dict):
            same = key == "optim" or stored_name(value.get("name", old.get("name"))) == stored_name(old.get("name"))
            out[key] = {**old, **value} if same else value
    return out


def build_spec(raw: Mapping[str, Any]) -> RunSpec:
    """Check plain nested values and make the specification; the first thing wrong is named by its key."""
    for section in raw:
        if section not in SECTIONS:
            raise BadInput("section", section, f"one of {', '.join(SECTIONS)}" + nearest(str(section), SECTIONS))
    parts: dict[str, Any] = {}
    for section in ("task", "model"):
        given = _section(raw, section)
        default = {"task": "single_location", "model": "transformer"}[section]
        name = given.pop("name", default)
        parts[f"{section}_name"] = name = stored_name(name) if section == "task" else name
        parts[section] = check(find_class(section, name), given, section)
    for section, kind in (("optim", OptimSpec), ("train", TrainSpec), ("schedule", ScheduleSpec)):
        parts[section] = check(kind, _section(raw, section), section)
    parts["train"] = _on_known_device(parts["train"])
    idle = _section(raw, "schedule")
    if idle and "name" not in idle:
        raise BadInput("schedule.name", "not given", f"adaptive, for schedule.{next(iter(idle))} to have an effect")
    spec = RunSpec(**parts, seed=_seed(raw.get("seed", 0)))
    if spec.schedule.name != "none":
        repeating(spec.task, spec.schedule.key, spec.schedule.most)  # is there such a task?
    if spec.task.decides == "accuracy" and any(x > 1 for x in spec.thresholds):
        raise BadInput("train.thresholds", list(spec.thresholds), "accuracies, from 0 to 1")
    return spec


def _seed(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**32:
        raise BadInput("seed", value, "a whole number from 0 to 4294967295")
    return value


def _on_known_device(train: TrainSpec) -> TrainSpec:
    """`auto` becomes the device that this machine has, so that a run's id says where it ran."""
    if train.device != "auto":
        return train
    import torch

    return dataclasses.replace(train, device="cuda" if torch.cuda.is_available() else "cpu")


def _section(raw: Mapping[str, Any], section: str) -> dict[str, Any]:
    given = raw.get(section, {})
    if not isinstance(given, dict) or not all(isinstance(k, str) for k in given):
        raise BadInput(section, given, "a mapping of names to values")
    return dict(given)


def check(kind: type, values: Mapping[str, Any], section: str) -> Any:
    """`values` as an instance of `kind`, or the first thing wrong with them, in one sentence."""
    _check_names(kind, values, section)
    for name, value in values.items():
        if isinstance(value, bool) and not _may_be_bool(get_type_hints(kind).get(name, bool)):
            raise BadInput(f"{section}.{name}", value, "a number or a word, not true or false")
    try:
        return TypeAdapter(kind).validate_python(dict(values))
    except ValidationError as e:
        errors = e.errors()
        first = errors[0]
        where = ".".join(str(x) for x in first["loc"])
        if isinstance(kind, type) and len(first["loc"]) > 1 and _is_union(kind, str(first["loc"][0])):
            name = str(first["loc"][0])
            said = [x for x in errors if x["loc"][0] == name]
            if inside := [x for x in said if len(x["loc"]) > 2]:  # the right type, but not all that it holds is right
                place = ".".join(str(x) for x in inside[0]["loc"][2:])
                raise BadInput(f"{section}.{name}.{place}", inside[0].get("input"), _allowed(inside[0])) from e
            allowed = " or ".join(dict.fromkeys(map(_allowed, said)))
            raise BadInput(f"{section}.{name}", first.get("input"), allowed) from e
        field, value = (f"{section}.{where}" if where else section), first.get("input")
        if isinstance(first.get("ctx", {}).get("error"), BadInput):
            raise first["ctx"]["error"] from e
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "value_error":
            raise InvalidCombination(message) from e
        raise BadInput(field, value, _allowed(first)) from e


def _allowed(error: Mapping[str, Any]) -> str:
    """What an error of pydantic says is allowed."""
    message = str(error["msg"]).removeprefix("Input should be ").removeprefix("a valid ")
    return PLAINLY.get(error["type"]) or message[0].lower() + message[1:]


def _check_names(kind: Any, values: Mapping[str, Any], section: str) -> None:
    """Refuse a key that a dataclass, or one inside it, does not have: most would pass over it without a word."""
    if not dataclasses.is_dataclass(kind):
        return
    names = [f.name for f in dataclasses.fields(kind) if f.init]
    hints = get_type_hints(kind)
    for name, value in values.items():
        if name not in names:
            keys = f"one of {section}'s keys: {', '.join(names)}" if names else f"left out: {section} has no keys"
            raise BadInput(f"{section}.{name}", value, keys + nearest(name, names))
        inner = [kind for kind in (hints[name], *get_args(hints[name])) if dataclasses.is_dataclass(kind)]
        if isinstance(value, dict) and len(inner) == 1:
            _check_names(inner[0], value, f"{section}.{name}")


def _may_be_bool(hint: Any) -> bool:
    """Is true or false meant by a type, or by one of those it is made of? As a number they would be 1 and 0."""
    return hint in (bool, Any) or any(map(_may_be_bool, get_args(hint)))


def _is_union(kind: type, name: str) -> bool:
    """Does a field take one of several types? Then each of them has said why not."""
    hint = get_type_hints(kind).get(name)
    return get_origin(hint) in (Union, UnionType)


def find_class(section: str, name: Any) -> type:
    """The task or model class called `name`: by its file, by entry point, or, for a path that ends in .py, from
    that file.

    A user's file is run because the user names it; opening a stored run never comes here.
    """
    if not isinstance(name, str):
        raise BadInput(f"{section}.name", name, "a name")
    package = PACKAGES[section]
    if name.endswith(".py"):
        what = "subclass of Task" if section == "task" else "class with a method `build`"
        return from_file(section, Path(name), lambda value: _is_kind(section, value), what)
    if (own := own_class(section, name)) is not None:
        return own
    names = _own_names(section)
    for point in entry_points(group=package):
        if point.name == name:
            return point.load()
    shown = sorted(map(shown_name, names))
    raise BadInput(f"{section}.name", name, f"one of {', '.join(shown)}" + nearest(name, shown))


def own_class(section: str, name: Any) -> type | None:
    """The task or model of that name that comes with the package; None for any other, so that a stored name runs
    nobody's code."""
    name = stored_name(name) if section == "task" else name
    if name not in _own_names(section):
        return None
    module = importlib.import_module(f"{PACKAGES[section]}.{name}")
    wanted = name.replace("_", "")
    found = (v for v in vars(module).values() if isinstance(v, type) and v.__name__.lower() == wanted)
    return next((value for value in found if _is_kind(section, value)), None)


@cache
def _own_names(section: str) -> list[str]:
    """The tasks or models that come with the package, by the names of their files; those that begin with _ help."""
    found = {p.name.removesuffix(".py") for p in files(PACKAGES[section]).iterdir() if p.name.endswith(".py")}
    return sorted(name for name in found if not name.startswith("_") and name != section)


def _is_kind(section: str, value: type) -> bool:
    """Is it a task, or a model: a class that can `build` a module?"""
    from unstuck.tasks.task import Task

    return issubclass(value, Task) if section == "task" else hasattr(value, "build")


def from_file(section: str, path: Path, is_kind: Callable[[type], bool], what: str) -> type:
    """The one class of a kind that a user's file defines; the file is run."""
    if not path.is_file():
        raise BadInput(f"{section}.name", str(path), "a .py file that exists")
    module_name = f"unstuck_user_{path.stem}"
    loader = importlib.util.spec_from_file_location(module_name, path)
    assert loader is not None
    assert loader.loader is not None
    module = importlib.util.module_from_spec(loader)
    sys.modules[module_name] = module
    try:
        loader.loader.exec_module(module)
    except (Exception, SystemExit) as e:
        raise InvalidCombination(f"{path} cannot be read as Python{line_of(e, path)}: {brief(e)}") from e
    found = [v for v in vars(module).values() if isinstance(v, type) and v.__module__ == module_name and is_kind(v)]
    if len(found) != 1:
        raise BadInput(f"{section}.name", str(path), f"a file that defines one {what}; it defines {len(found)}")
    if not dataclasses.is_dataclass(found[0]) and section != "optim":
        raise InvalidCombination(f"{found[0].__name__} in {path} needs the decorator @config (from unstuck.tasks.task)")
    return found[0]


def line_of(error: BaseException, path: Path) -> str:
    """` in line 7`: the last line of a user's file that an error has come through, or nothing."""
    frames, names = traceback.extract_tb(error.__traceback__), (str(path), str(path.absolute()))
    line = next((frame.lineno for frame in reversed(frames) if frame.filename in names), None)
    return "" if line is None else f" in line {line}"
