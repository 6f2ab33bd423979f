"""The command `unstuck`. A command imports what it needs when it runs: `predict` never waits for torch or pandas."""

import io
import signal
import sys
from typing import Annotated

import typer

from unstuck import __version__
from unstuck.errors import BadInput

# ruff: isort: off
from . import theory, lab, forecast, figures, serve  # noqa: F401  (they add their commands, in this order)

# ruff: isort: on
from .common import app, say

START = """\
unstuck: how long a Transformer sits on a plateau, why, and how to get it off sooner.

Start with
  unstuck predict --T 512 --d 64                               how long will the plateau be? (theory, at once)
  unstuck train regression task.T=16 task.d=8                  train one; it emerges within half a minute
  unstuck sweep regression task.T=8,16 task.d=4,6,8,12         eight of them, one on each core
  unstuck fit runs "d + T"                                     the law they follow
  unstuck report runs                                          one page about all of it: runs/report.html

All commands: unstuck --help      A run of your own is stuck: unstuck forecast --help"""


@app.callback(invoke_without_command=True)
def _main(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(START)


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code: 0 done, 2 bad input (one sentence on stderr), 1 anything else."""
    command = typer.main.get_command(app)
    words = sys.argv[1:] if arguments is None else arguments
    try:
        code = command.main(args=words, prog_name="unstuck", standalone_mode=False)
        if code == 130:  # how the parser reports an interrupt
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except BadInput as e:
        say(f"unstuck: {e}")
        return 2
    except KeyboardInterrupt:
        say("unstuck: stopped; what was finished stays, and the same command goes on from here.")
        return 1
    except (MemoryError, RuntimeError) as e:
        if isinstance(e, RuntimeError) and "can't allocate memory" not in str(e):
            raise
        say("unstuck: not enough memory for a run of this size.")
        return 1
    except OSError as e:
        say(f"unstuck: {e.strerror or e}{f' ({e.filename})' if e.filename else ''}.")
        return 1
    except Exception as e:
        usage = _usage_sentence(e)
        if usage is None:
            raise
        say(f"unstuck: {usage}")
        return 2


def _usage_sentence(error: Exception) -> str | None:
    """One sentence for what the parser refuses: an unknown option or command, a missing or unreadable value."""
    message = getattr(error, "format_message", None)
    if message is None or getattr(error, "exit_code", None) != 2:
        return None
    text = " ".join(str(message()).split()).rstrip(".")
    context = getattr(error, "ctx", None)
    see = " See" if text.endswith("?") else "; see"
    return f"{text}{see} `{context.command_path if context else 'unstuck'} --help`."


def entry() -> None:
    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot show √ shows ? instead
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a request to end stops as Ctrl-C does
    sys.exit(main())
