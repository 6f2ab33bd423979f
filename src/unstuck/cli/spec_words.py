"""The words of a specification on the command line: SPEC, and KEY=VALUE."""

from typing import Annotated

import typer

from unstuck.config.load import shipped

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Such as task.T=32 seed=1; `unstuck keys SPEC` lists all with their meaning.",
        show_default=False,
    ),
]


def _shipped(incomplete: str) -> list[str]:
    """For the shell's completion."""
    return [name for name in shipped() if name.startswith(incomplete)]


Spec = Annotated[
    str,
    typer.Argument(
        metavar="SPEC",
        help=f"A shipped name ({', '.join(shipped())}), a YAML file, or a .py file with your own task.",
        show_default=False,
        autocompletion=_shipped,
    ),
]
