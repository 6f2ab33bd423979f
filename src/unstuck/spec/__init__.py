"""What to run: typed and checked, from YAML and key=value."""

from .load import load_spec
from .run import OptimSpec, RunSpec, TrainSpec

__all__ = ["OptimSpec", "RunSpec", "TrainSpec", "load_spec"]
