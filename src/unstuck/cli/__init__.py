"""The command `unstuck`. A command's module is imported when the command is called, so that `unstuck --help` and
`unstuck predict` wait neither for torch nor for pandas."""

import gc
import io
import re
import signal
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from unstuck import __version__
from unstuck.errors import BadInput, nearest, printable
from unstuck.extras import require


class Command(NamedTuple):
    module: str  # has a function of the command's name, or of its last word
    summary: str  # the first line of that function's docstring
    extra: str = ""  # that must be installed


COMMANDS = {
    "predict": Command("unstuck.cli.predict", "Predict the length of the plateau from theory, before training."),
    "data": Command("unstuck.cli.data", "Measure what a text offers to induction heads, before training."),
    "fit": Command("unstuck.cli.fit", "Fit a power law to the plateaus of runs, including runs that did not emerge."),
    "train": Command("unstuck.cli.lab", "Train one run until it emerges, or until train.max_steps."),
    "sweep": Command("unstuck.cli.lab", "Run every combination of lists: task.T=16,32 task.d=8,16 is four runs."),
    "keys": Command("unstuck.cli.keys", "List the settings of a preset: name, default, meaning, what is allowed."),
    "runs": Command("unstuck.cli.runs", "Show the table of runs in a store."),
    "forecast": Command(
        "unstuck.cli.forecast",
        "Predict when a run will leave its plateau, from the attention of its heads while the loss is still flat.",
    ),
    "watch-checkpoints": Command(
        "unstuck.cli.watch_checkpoints",
        "Measure the heads of a series of checkpoints: one curve, in the order of their steps.",
    ),
    "bench": Command("unstuck.cli.bench", "Compare forecasters on all runs of a store: unstuck bench forecast."),
    "reproduce": Command("unstuck.cli.reproduce", "Reproduce a figure: data, picture, comparison.", extra="papers"),
    "figures": Command("unstuck.cli.figures", "List the figures of both papers, their state and cost.", extra="papers"),
    "report": Command("unstuck.cli.report", "Write one HTML file about runs and figures.", extra="papers"),
    "serve": Command("unstuck.cli.serve", "Open a dashboard on the runs of a store.", extra="app"),
}

#: Words after a command that make it another one, such as `unstuck predict induction`.
SUBCOMMANDS = {
    "predict induction": Command(
        "unstuck.cli.predict_induction",
        "Predict when induction heads form in a language model, by each published law and by ours.",
    ),
    "bench forecast": Command("unstuck.cli.bench", "Compare forecasters on all runs of a store."),
}

WITH_KEYS = {"train", "sweep", "keys"}  # commands that take KEY=VALUE
KEY = re.compile(r"--(?P<key>(task|model|optim|train|schedule)\.\w+|seed)(=(?P<value>.*))?", re.DOTALL)

START = """\
unstuck: how long a Transformer sits on a plateau, why, and how to get it off sooner.

Start with
  unstuck predict --T 512 --d 64                               how long will the plateau be? (theory, at once)
  unstuck train regression task.T=16 task.d=8                  train one; it emerges within half a minute
  unstuck sweep regression task.T=8,16 task.d=4,6,8,12         eight of them, one on each core
  unstuck fit runs "d + T"                                     the law they follow
  unstuck report runs                                          one page about all of it: runs/report.html

All commands: unstuck --help      All settings: unstuck keys regression
A run of your own is stuck: unstuck forecast --help"""


def _without_flag_types(params: list[Any]) -> list[Any]:
    """Options for the help: a flag takes no value, so that `<bool>` behind it says nothing."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.display_type_rich = lambda **_: None
    return params


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))


app = typer.Typer(
    name="unstuck",
    cls=_Group,
    help="How long a Transformer sits on a plateau, why, and how to get it off sooner.",
    epilog="Start with: unstuck predict --T 512 --d 64",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _main(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(START)


class OnDemand(TyperCommand):
    """A command that is known by its name and summary until it is called or asked for its own help."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        name, more = str(self.name), words_after(str(self.name))
        if more and args and not args[0].startswith("-"):
            word, *args = args
            if word not in more:
                allowed = f"{' or '.join(more)}, or an option{nearest(word, more)}"
                raise BadInput(f"the word after `unstuck {name}`", word, allowed)
            name = info_name = f"{name} {word}"
        if name in WITH_KEYS:
            args = list(as_keys(args))
        return load(name).make_context(info_name, args, parent, **extra)


def as_keys(words: list[str]) -> Iterator[str]:
    """--task.T=16 and --task.T 16 as task.T=16; all other words as they are."""
    rest = iter(words)
    for word in rest:
        found = KEY.fullmatch(word)
        if found is None:
            yield word
        elif found["value"] is None:
            yield f"{found['key']}={next(rest, '')}"
        else:
            yield word.removeprefix("--")


def words_after(name: str) -> list[str]:
    """The words that may follow a command."""
    return [words.removeprefix(f"{name} ") for words in SUBCOMMANDS if words.startswith(f"{name} ")]


def load(name: str) -> Any:
    """The whole command, from its module."""
    module, _, extra = (COMMANDS | SUBCOMMANDS)[name]
    if extra:
        require(extra, f"unstuck {name}")
    usage = " | ".join(["[OPTIONS]", *(f"{word} [OPTIONS]" for word in words_after(name))])
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    function = getattr(import_module(module), name.rpartition(" ")[2].replace("-", "_"))
    alone.command(name, cls=_Command, options_metavar=usage)(function)
    return typer.main.get_command(alone)


def group() -> TyperGroup:
    """`unstuck` with all of its commands."""
    commands = typer.main.get_command(app)
    assert isinstance(commands, TyperGroup)
    for name, command in COMMANDS.items():
        commands.add_command(OnDemand(name, help=command.summary))
    return commands


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code: 0 done, 2 bad input (one sentence on stderr), 1 anything else."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        code = group().main(args=words, prog_name="unstuck", standalone_mode=False)
        if code == 130:  # how the parser reports an interrupt
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except BadInput as e:
        return _ended(2, str(e))
    except KeyboardInterrupt:
        return _ended(1, "stopped; finished runs are kept, and the same command continues from here.")
    except (MemoryError, RuntimeError) as e:
        if isinstance(e, RuntimeError) and "can't allocate memory" not in str(e):
            raise
        return _ended(1, "not enough memory for a run of this size.")
    except OSError as e:
        return _ended(1, f"{e.strerror or e}{f' ({e.filename})' if e.filename else ''}.")
    except Exception as e:
        usage = _usage_sentence(e)
        if usage is None:
            raise
        return _ended(2, usage)


def _ended(code: int, sentence: str) -> int:
    print(f"unstuck: {printable(sentence, breaks=False)}", file=sys.stderr)
    return code


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
    for name in ("SIGTERM", "SIGHUP"):  # these stop as Ctrl-C does, unless they are ignored, as by nohup
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    code = main()
    gc.freeze()  # all ends with the process: a last collection would go through every module for nothing (0.2 s)
    sys.exit(code)
