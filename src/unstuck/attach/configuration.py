"""Sizes that a model's configuration states."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from unstuck.scalars import is_whole


def configured(model: nn.Module, names: tuple[str, ...]) -> Iterator[int]:
    """The sizes that the configurations of a model have under these names."""
    for config in _configurations(model):
        for name in names:
            found: Any = config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
            if is_whole(found) and found > 0:
                yield int(found)


def _configurations(model: nn.Module) -> Iterator[Any]:
    """The model's configuration, that of its text part, and the model itself."""
    config = getattr(model, "config", getattr(model, "cfg", None))
    if config is not None:
        yield config
        if (text := getattr(config, "text_config", None)) is not None:
            yield text
    yield model
