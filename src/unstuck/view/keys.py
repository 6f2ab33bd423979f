"""What `unstuck keys` prints: a table of settings."""

import json
from typing import Any

from unstuck.config.settings import Setting
from unstuck.view.console import console, new_table


def explain_keys(settings: list[Setting]) -> None:
    table = new_table("key", "default", "meaning", "allowed")
    for setting in settings:
        table.add_row(setting.name, as_typed(setting.default), setting.meaning, setting.allowed)
    console(stderr=False).print(table, soft_wrap=False)


def as_typed(value: Any) -> str:
    """A value as it stands after the = of an override."""
    return value if isinstance(value, str) and value else json.dumps(value)
