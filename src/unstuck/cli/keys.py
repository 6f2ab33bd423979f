"""`unstuck keys`: the settings of a preset."""

import json
from typing import Annotated

import typer

from unstuck.config import load_spec
from unstuck.config.load import SECTIONS
from unstuck.config.settings import settings_of
from unstuck.errors import BadInput, nearest
from unstuck.view.keys import explain_keys

from .common import Json
from .spec_words import Overrides, Spec


def keys(
    spec: Spec,
    overrides: Overrides = None,
    section: Annotated[
        str, typer.Option("--section", metavar="NAME", help="Only task, model, optim, train or schedule.")
    ] = "",
    as_json: Json = False,
) -> None:
    """List the settings of a preset: name, default, meaning, what is allowed.

    [bold]Examples[/bold]

      unstuck keys regression

      unstuck keys regression optim.name=sgd --section optim
    """
    if section and section not in SECTIONS:
        raise BadInput("--section", section, f"one of {', '.join(SECTIONS)}" + nearest(section, SECTIONS))
    found = [s for s in settings_of(load_spec(spec, overrides or [])) if s.name.startswith(section)]
    if as_json:
        print(json.dumps({"spec": spec, "keys": [setting._asdict() for setting in found]}))
        return
    explain_keys(found)
