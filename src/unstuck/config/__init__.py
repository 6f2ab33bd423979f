"""What to run: typed and checked, from YAML and key=value."""

from unstuck.config.load import load_spec
from unstuck.config.run import OptimSpec, RunSpec, TrainSpec

__all__ = ["OptimSpec", "RunSpec", "TrainSpec", "load_spec"]
