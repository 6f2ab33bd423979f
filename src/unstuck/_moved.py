"""Modules under their old names, with a warning, for one release."""

import importlib
import importlib.machinery
import importlib.util
import sys
import warnings
from types import ModuleType
from typing import Any

MOVED = {
    "api": "runner.api",
    "explain": "view.terminal",
    "observe": "probes",
    "observe.trackers": "attach.trackers",
    "report": "view.report",
    "runs": "store",
    "runs.columns": "view.columns",
    "runs.cost": "runner.cost",
    "runs.execute": "runner.execute",
    "runs.interrupts": "runner.interrupts",
    "runs.memory": "runner.memory",
    "runs.on_ray": "runner.on_ray",
    "runs.sweep": "runner.sweep",
    "serve": "view.dashboard",
    "spec": "config",
}


ATTRIBUTES = ("__spec__", "__loader__", "__package__", "__path__")  # that importing a module sets


def new_name(name: str) -> str | None:
    """Where a module of an old name is now: `unstuck.runs.store` is `unstuck.store.store`; None for any other."""
    package, _, old = name.partition(".")
    if package != "unstuck" or old.partition(".")[0] not in MOVED:
        return None
    if old in MOVED:
        return f"unstuck.{MOVED[old]}"
    parent, _, last = old.rpartition(".")
    return f"unstuck.{MOVED[parent]}.{last}" if parent in MOVED else None


class OldNames:
    """Finds a module by its old name and gives the new one. A finder and a loader by its methods: `importlib.abc` would
    be a third of the time that `import unstuck` takes."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        new = new_name(fullname)
        if new is None or importlib.util.find_spec(new) is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        new = new_name(spec.name)
        assert new is not None
        warnings.warn(f"{spec.name} is now {new}; the next release drops the old name", FutureWarning, stacklevel=2)
        module = importlib.import_module(new)
        self.own = {name: vars(module)[name] for name in ATTRIBUTES if name in vars(module)}
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is run again: the module gets back the attributes that importing it by another name has changed."""
        for name in ATTRIBUTES:
            if name in self.own:
                setattr(module, name, self.own[name])
            elif hasattr(module, name):
                delattr(module, name)


def install() -> None:
    """As the first finder: the finder for files would load a moved package's modules a second time."""
    if not any(isinstance(finder, OldNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, OldNames())
