"""What to run: typed and checked, from YAML and key=value. Its parts are loaded when used: `config.plain_yaml`, which
reading a store needs, builds no typed settings."""

from typing import TYPE_CHECKING

from unstuck.extras import loaded_when_used

if TYPE_CHECKING:
    from unstuck.config.load import load_spec
    from unstuck.config.run import OptimSpec, RunSpec, TrainSpec

__all__ = ["OptimSpec", "RunSpec", "TrainSpec", "load_spec"]

__getattr__ = loaded_when_used(
    __name__,
    {
        "OptimSpec": "unstuck.config.run",
        "RunSpec": "unstuck.config.run",
        "TrainSpec": "unstuck.config.run",
        "load_spec": "unstuck.config.load",
    },
)
