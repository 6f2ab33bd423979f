"""What a task is called: one name for users, that of its preset; files and stored runs may have an older one."""

from typing import Any

_STORED = {"regression": "single_location"}  # part of the ids of stored runs, so that it stays
_SHOWN = {stored: shown for shown, stored in _STORED.items()}


def stored_name(name: Any) -> Any:
    """The name in files and run ids of a task that a user names; either name is understood.

    Examples:
        >>> stored_name("regression"), stored_name("recall")
        ('single_location', 'recall')
    """
    return _STORED.get(name, name) if isinstance(name, str) else name


def shown_name(name: Any) -> Any:
    """The name for users of a task by its stored one.

    Examples:
        >>> shown_name("single_location"), shown_name("my_task.py")
        ('regression', 'my_task.py')
    """
    return _SHOWN.get(name, name) if isinstance(name, str) else name
