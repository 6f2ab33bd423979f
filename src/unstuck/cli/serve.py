"""`unstuck serve`: the dashboard."""

from pathlib import Path
from typing import Annotated

import typer

from unstuck.errors import Impossible

from .common import app, say


@app.command()
def serve(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run store.")] = Path("runs"),
    host: Annotated[
        str, typer.Option("--host", metavar="NAME", help="Where to listen; any but this machine needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="INT", min=0, max=65535, help="0 takes a free one.")] = 8765,
) -> None:
    """Open a dashboard on the runs of DIR: theory with sliders, runs while they run, laws for any formula.

    It reads DIR and never writes there, loads nothing from elsewhere, and listens on this machine only, unless told
    otherwise; then it asks for the token that it prints.

    [bold]Examples[/bold]

      unstuck serve runs

      unstuck serve runs --host 0.0.0.0 --port 9000
    """
    try:
        import uvicorn

        from unstuck.serve.app import LOOPBACK, make_app, new_token
    except ImportError as e:
        raise Impossible("the dashboard is not installed; pip install 'unstuck[app]' brings it") from e

    token = None if host in LOOPBACK else new_token()
    application = make_app(directory, host=host, token=token)
    server = uvicorn.Server(uvicorn.Config(application, host=host, port=port, log_level="warning", access_log=False))
    sockets = [server.config.bind_socket()] if port == 0 else None
    where = f"http://{host}:{sockets[0].getsockname()[1] if sockets else port}/"
    say(f"unstuck: {where}{f'?token={token}' if token else ''}   (Ctrl-C ends it)")
    server.run(sockets=sockets)
