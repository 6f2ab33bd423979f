"""Old names of functions, for one release."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any


def old_names(module: str, names: Mapping[str, Any]) -> Callable[[str], Any]:
    """A `__getattr__` for a module: what is asked for by an old name, with a warning that gives the new one."""

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        new = f"{names[name].__module__}.{names[name].__name__}"
        message = f"{module}.{name} is now {new}; the old name goes with the next release"
        warnings.warn(message, FutureWarning, stacklevel=2)
        return names[name]

    return find
