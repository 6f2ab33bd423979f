"""`unstuck serve`: the dashboard."""

import socket
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
import uvicorn

from unstuck.errors import BadInput, InvalidCombination
from unstuck.view.dashboard.app import KEEP, LOOPBACK, make_app, new_token

from .common import say


def serve(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run store.")] = Path("runs"),
    host: Annotated[
        str, typer.Option("--host", metavar="NAME", help="Where to listen; any other than this machine needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="INT", min=0, max=65535, help="0 takes a free one.")] = 8765,
) -> None:
    """Open a dashboard on the runs of a store.

    It shows runs while they train with their expected exits, curves side by side, laws for any formula, and theory with
    sliders. It reads DIR and never writes there, loads nothing from other sites, and listens on this machine only. With
    another --host it asks for a token, which it prints.

    [bold]Examples[/bold]

      unstuck serve runs

      unstuck serve runs --host 0.0.0.0 --port 9000
    """
    token = None if host in LOOPBACK else new_token()
    application = make_app(directory, host=host, token=token)
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (socket.gaierror, UnicodeError, TypeError) as e:  # the last where a name cannot be encoded
        raise BadInput("--host", host, "a name or address of this machine") from e
    except OSError as e:
        raise InvalidCombination(f"{host} port {port} is taken ({e.strerror}); --port 0 chooses a free one") from e
    name = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, f"[{host}]" if ":" in host else host)
    where = f"http://{name}:{listening.getsockname()[1]}/"
    say(f"unstuck: {where}{f'?token={token}' if token else ''}   (Ctrl-C ends it)")
    config = uvicorn.Config(application, log_level="warning", access_log=False, timeout_keep_alive=KEEP)
    server = uvicorn.Server(config)
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listening])
