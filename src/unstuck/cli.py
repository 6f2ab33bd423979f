"""The command `unstuck`. Only what a command needs is imported, inside it: `predict` never waits for torch or
pandas."""

import io
import json
import math
import os
import sys
import warnings
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import __version__
from .errors import BadInput, nearest

if TYPE_CHECKING:
    from .papers.figure import Profile, Progress

app = typer.Typer(
    name="unstuck",
    help="How long a Transformer sits on a plateau, why, and how to get it off sooner.",
    epilog="Start with: unstuck predict --T 512 --d 64",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else there.")]


# What is not a number is passed on as text: the check that knows what is allowed refuses it, in one sentence.
def _whole(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return text


def _real(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


@app.callback(invoke_without_command=True)
def _main(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


@contextmanager
def _options(names: Container[str]) -> Iterator[None]:
    """Name a refused value by the option it was given with."""
    try:
        yield
    except BadInput as e:
        if e.field not in names:
            raise
        raise BadInput(f"--{e.field}", e.value, e.allowed) from e


@app.command()
def predict(
    T: Annotated[int, typer.Option("--T", parser=_whole, metavar="INT", help="Sequence length, at least 2.")],
    d: Annotated[int, typer.Option("--d", parser=_whole, metavar="INT", help="Dimension of a token, at least 1.")],
    B: Annotated[
        int,
        typer.Option(
            "--B", parser=_whole, metavar="INT", help="Copies of the relevant token in the context, 1 to T - 1."
        ),
    ] = 1,
    p: Annotated[
        float,
        typer.Option(
            "--p",
            parser=_real,
            metavar="NUMBER",
            help="Chance that the relevant token is the one frequent token, 0 to 1.",
        ),
    ] = 0.0,
    flow: Annotated[
        str, typer.Option("--flow", metavar="exact|reduced", help="The toy model's own flow, or the paper's reduction.")
    ] = "exact",
    threshold: Annotated[
        float,
        typer.Option(
            "--threshold", parser=_real, metavar="NUMBER", help="Test loss that ends the plateau; it starts at 0.5."
        ),
    ] = 0.1,
    as_json: Json = False,
) -> None:
    """How long will the plateau be? The theory's answer, before training, by integrating the flow.

    The problem is single-location regression (Zucchet et al. 2025): the target depends on one of T tokens, and
    the toy model y = W sum softmax(a) x has to find which one. Times are training times: steps times learning
    rate.

    [bold]Examples[/bold]

      unstuck predict --T 512 --d 64

      unstuck predict --T 4096 --d 64 --B 8 --flow reduced --json

      unstuck predict --T 4096 --d 256 --p 0.1
    """
    from .theory import Flow, blow_up_time, escape_time, finish_time, plateau_estimate, rate
    from .theory.setting import check_threshold

    with _options({"T", "d", "B", "p", "flow", "threshold"}):
        setting = Flow(T, d, B, p, flow)  # type: ignore[arg-type]
        eps = 1 - 2 * check_threshold(threshold)
    plateau = setting.plateau(threshold)
    estimate = plateau_estimate(setting, threshold)
    answer = {
        "plateau": plateau.time,
        "escape_time": escape_time(setting, eps),
        "rate": rate(setting),
        "flow": flow,
        "blow_up_time": blow_up_time(setting),
        "estimate": estimate if math.isfinite(estimate) else None,
        "threshold": threshold,
        "T": T,
        "d": d,
        "B": B,
        "p": p,
        "reason": plateau.reason,
    }
    if as_json:
        print(json.dumps(answer))
        return
    from .explain import explain_prediction

    explain_prediction(setting, answer, never=plateau.never, finish=finish_time(setting, threshold))


@app.command()
def fit(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="A run store, or a .csv or .parquet table of runs.", show_default=False),
    ],
    formula: Annotated[
        str, typer.Argument(metavar="FORMULA", help='Terms joined by +, such as "d + T/B".', show_default=False)
    ],
    level: Annotated[
        float, typer.Option("--level", parser=_real, metavar="NUMBER", help="Coverage of the intervals.")
    ] = 0.95,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", metavar="CONDITION", help="Keep rows such as T=64 or 'd<=32'; may be repeated."),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold", metavar="NUMBER", help="Fit the crossing of this threshold, if the runs recorded it."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Fit a power law to the plateaus of finished runs, by least squares on logarithms.

    Each term gets one exponent; a term is an arithmetic expression of the table's columns, with sqrt and log.
    The table needs a column plateau_steps (empty where a run did not emerge) and may have status and steps.

    [bold]Examples[/bold]

      unstuck fit results/fig1c.csv "T + d"

      unstuck fit results/fig2-right.csv "sqrt(d)*T / sqrt(p**2*d + (1-p)**2)"

      unstuck fit runs "d + T/B" --where layer_norm=false --where "T<=64"
    """
    from .laws import fit_power_law, read_table
    from .laws.tables import at_threshold
    from .laws.tables import where as where_rows

    with _options({"level", "where", "threshold"}), _warnings_as_sentences():
        table = where_rows(read_table(source), where or [])
        if threshold is not None:
            table = at_threshold(table, threshold)
        law = fit_power_law(table, formula, level=level)
    if law.censored:
        _say(
            f"warning: {law.censored} of {law.n + law.censored} runs did not emerge and are left out, "
            "which biases the law towards short plateaus."
        )
    if as_json:
        print(json.dumps(law.as_json()))
        return
    from .explain import explain_law

    explain_law(law)


Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Such as task.T=32 seed=1.", show_default=False)
]
Spec = Annotated[
    str,
    typer.Argument(
        metavar="SPEC",
        help="A shipped name (regression), a YAML file, or a .py with a task of yours.",
        show_default=False,
    ),
]


@app.command()
def train(
    spec: Spec,
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The run store.")] = Path("runs"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say how many steps and hours it would take, and stop.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the last checkpoint of a run that emerged.")] = False,
    tensorboard: Annotated[
        Path | None, typer.Option("--tensorboard", metavar="DIR", help="Also write the curve for TensorBoard.")
    ] = None,
    wandb: Annotated[
        str | None, typer.Option("--wandb", metavar="PROJECT", help="Also log the curve to Weights & Biases.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train one run: until it emerges, or until train.max_steps. Asked for again, it prints its stored result.

    [bold]Examples[/bold]

      unstuck train regression task.T=32 task.d=16 seed=0

      unstuck train regression task.T=16 task.d=8 optim.name=sgd optim.lr=5e-3 train.max_steps=20000
    """
    from .spec import load_spec

    run = load_spec(spec, overrides or [])
    if dry_run:
        _print_run_costs([run], as_json)
        return
    from .explain import explain_run, live
    from .runs.execute import execute
    from .runs.store import Store

    trackers = _trackers(run, tensorboard, wandb)
    try:
        with _warnings_as_sentences(), live(run) as show:

            def on_row(run: Any) -> None:
                for observer in (show, *trackers):
                    observer(run)

            result = execute(run, Store(out), on_row=on_row, keep=keep)
    finally:
        for tracker in trackers:
            tracker.close()
    if result["status"] == "busy":
        _say(f"unstuck: another process is at this run ({result['run_id']}).")
        raise typer.Exit(1)
    if as_json:
        print(json.dumps(result))
        return
    explain_run(run, result, out)


def _trackers(run: Any, tensorboard: Path | None, wandb: str | None) -> list[Any]:
    from .observe.trackers import TensorBoardTracker, WandbTracker

    trackers: list[Any] = [TensorBoardTracker(tensorboard, run)] if tensorboard else []
    return [*trackers, WandbTracker(wandb, run)] if wandb else trackers


@app.command()
def sweep(
    spec: Spec,
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The run store.")] = Path("runs"),
    workers: Annotated[
        int, typer.Option("--workers", parser=_whole, metavar="INT", help="Processes; 0 means one for each core.")
    ] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List every run with its predicted steps and hours, and stop.")
    ] = False,
    checkpoint: Annotated[
        float, typer.Option("--checkpoint", parser=_real, metavar="SECONDS", help="Time between checkpoints.")
    ] = 20.0,
    as_json: Json = False,
) -> None:
    """Run the product of lists: task.T=16,32 task.d=8,16 is four runs. What is finished is not run again.

    [bold]Example[/bold]

      unstuck sweep regression task.T=16,32,64 task.d=8,16,32 seed=0,1,2 --workers 2 --out runs/
    """
    from .runs.sweep import expand, run_sweep

    if not isinstance(workers, int) or not 0 <= workers <= 1024:
        raise BadInput("--workers", workers, "a whole number from 0 to 1024")
    if not isinstance(checkpoint, float) or not 0 < checkpoint < 1e6:
        raise BadInput("--checkpoint", checkpoint, "a number of seconds above 0")
    specs = expand(spec, overrides or [])
    if dry_run:
        _print_run_costs(specs, as_json)
        return
    from .runs.store import Store

    with _warnings_as_sentences(), _work_bar() as progress:
        done = run_sweep(
            specs, Store(out), workers=workers or os.cpu_count() or 1, checkpoint_seconds=checkpoint, progress=progress
        )
    for run_id, message in done.failed.items():
        _say(f"warning: run {run_id} failed: {message}")
    if as_json:
        print(json.dumps(done.as_json()))
        return
    counts = done.as_json()
    print(", ".join(f"{n} {name}" for name, n in counts.items() if n) + f"; see: unstuck runs {out}")


@app.command()
def runs(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run store.", show_default=False)],
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the table as CSV.")] = False,
    as_json: Json = False,
) -> None:
    """Show the table of runs in a store."""
    from .runs.store import Store

    if not directory.is_dir():
        raise BadInput("DIR", str(directory), "a directory; `unstuck train` or `unstuck sweep` make one with --out")
    with _warnings_as_sentences():
        table = Store(directory).table()
    if as_json:
        print(json.dumps({"runs": json.loads(table.to_json(orient="records"))}))
    elif as_csv:
        print(table.to_csv(index=False), end="")
    else:
        from .explain import explain_runs

        explain_runs(table, directory)


def _print_run_costs(specs: list[Any], as_json: bool) -> None:
    from .runs.cost import predicted_cost

    rows = [
        {"run_id": s.run_id, "steps": (c := predicted_cost(s)).steps, "hours": c.seconds / 3600, "spec": s.as_dict()}
        for s in specs
    ]
    total = sum(row["hours"] for row in rows)
    if as_json:
        print(json.dumps({"runs": rows, "hours": total}))
        return
    from .explain import explain_run_costs

    explain_run_costs(rows, total)


@contextmanager
def _work_bar() -> Iterator[Any]:
    """One bar for a sweep; its time to finish is what is left of the predicted work at the speed so far."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f}%"), TimeElapsedColumn())
    with Progress(
        *columns, TimeRemainingColumn(elapsed_when_finished=True), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda done, of, text: bar.update(task, completed=done, total=of, description=text)


@app.command()
def reproduce(
    figure: Annotated[
        str, typer.Argument(metavar="FIGURE", help="A name that `unstuck figures` lists, or all.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the files go.")] = Path("figures"),
    profile: Annotated[
        str,
        typer.Option(
            "--profile",
            metavar="quick|cpu|paper",
            help="Minutes, hours on two cores, or the paper's own grid. Theory figures run in full.",
        ),
    ] = "cpu",
    workers: Annotated[
        int,
        typer.Option("--workers", parser=_whole, metavar="INT", help="Processes for `all`; 0 means one for each core."),
    ] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would run and how long it takes, and stop.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Reproduce a figure: its data (CSV), picture (PNG, PDF) and a JSON with ours beside the paper's.

    [bold]Examples[/bold]

      unstuck reproduce fig1c

      unstuck reproduce theory --out figures && unstuck report figures

      unstuck reproduce fig3-left --profile cpu --dry-run
    """
    from .papers.catalogue import available
    from .papers.figure import PROFILES, is_trained, load, overall, plan
    from .papers.reproduce import reproduce as run
    from .papers.reproduce import reproduce_all

    if profile not in PROFILES:
        raise BadInput("--profile", profile, "one of " + ", ".join(PROFILES) + nearest(profile, PROFILES))
    chosen: Profile = profile
    if not isinstance(workers, int) or not 0 <= workers <= 1024:
        raise BadInput("--workers", workers, "a whole number from 0 to 1024")
    processes = workers or os.cpu_count() or 1
    names = available() if figure in ("all", "theory") else [figure]
    modules = {name: load(name) for name in names}
    theory = [name for name in names if not is_trained(modules[name])]
    if figure == "theory":
        names = theory
    if dry_run:
        _print_plan({name: plan(modules[name], chosen) for name in names}, chosen, as_json)
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise BadInput("--out", str(out), f"a directory, or a path where one can be made ({e.strerror})") from e
    results = []
    if len(names) > 1:
        with _bar("theory figures") as progress:
            results = reproduce_all(theory, chosen, out, processes, progress)
    for name in names if len(names) == 1 else [n for n in names if n not in theory]:
        with _bar(name) as progress:
            results.append(run(name, chosen, out, progress, workers=processes))
    results = [r for r in results if r]
    if len(names) == 1:
        result = results[0]
    else:
        result = {
            "figure": figure,
            "ours": {r["figure"]: r["ours"] for r in results},
            "paper": {r["figure"]: r["paper"] for r in results},
            "verdict": overall(r["verdict"] for r in results),
            "verdicts": {r["figure"]: r["verdict"] for r in results},
            "profile": chosen,
            "out": str(out),
        }
    if as_json:
        print(json.dumps(result))
        return
    from .explain import explain_figures

    explain_figures(results, out)


def _print_plan(plans: dict[str, Any], profile: str, as_json: bool) -> None:
    rows = [
        {"figure": name, "what": job.what, "count": job.count, "steps": job.steps, "hours": job.seconds / 3600}
        for name, jobs in plans.items()
        for job in jobs
    ]
    total = sum(row["hours"] for row in rows)
    if as_json:
        print(json.dumps({"profile": profile, "jobs": rows, "hours": total}))
        return
    from .explain import explain_plan

    explain_plan(rows, total)


@app.command()
def figures(
    results: Annotated[
        Path, typer.Option("--results", metavar="DIR", help="Where to look for what has been run.")
    ] = Path("results"),
    as_json: Json = False,
) -> None:
    """List every figure of both papers: what it shows and needs, what it costs, what has been run."""
    from .papers.catalogue import entries, is_available
    from .papers.figure import PROFILES, load, plan

    rows = []
    for entry in entries().values():
        ready = is_available(entry.name)
        cost = {p: sum(job.seconds for job in plan(load(entry.name), p)) / 3600 for p in PROFILES} if ready else None
        rows.append(
            {
                "figure": entry.name,
                "paper": None if entry.ours else entry.paper,
                "shows": entry.shows,
                "needs": entry.needs,
                "available": ready,
                "hours": cost,
                "run": _has_run(results / f"{entry.name}.json"),
            }
        )
    if as_json:
        print(json.dumps({"figures": rows}))
        return
    from .explain import explain_catalogue

    explain_catalogue(rows)


def _has_run(path: Path) -> str | None:
    """Profile and date of a figure's stored result, None where there is none."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        return f"{result['profile']}, {result['provenance']['date']}"
    except (OSError, ValueError, KeyError, TypeError):
        return None


@app.command()
def report(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="What `unstuck reproduce --out DIR` wrote.", show_default=False)
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The HTML file; DIR/report.html unless told.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write one HTML file with all figures of a directory, ours beside the paper's. It opens from disk, without
    a network."""
    from .report.figures import write_report

    with _warnings_as_sentences():
        target = write_report(directory, out or directory / "report.html")
    print(json.dumps({"report": str(target)}) if as_json else f"report: {target}")


@contextmanager
def _bar(name: str) -> Iterator["Progress"]:
    """A progress bar on stderr, gone when the work is done; silent where stderr is not a terminal."""
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import TimeElapsedColumn, TimeRemainingColumn

    bar = Bar(
        *Bar.get_default_columns()[:-1],
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(name, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


@contextmanager
def _warnings_as_sentences() -> Iterator[None]:
    """What a part of the package warns of, as a line on stderr."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for w in caught:
        _say(f"warning: {w.message}")


def _say(text: str) -> None:
    print(text, file=sys.stderr)


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
        _say(f"unstuck: {e}")
        return 2
    except KeyboardInterrupt:
        _say("unstuck: stopped; what was finished stays, and the same command goes on from here.")
        return 1
    except OSError as e:
        _say(f"unstuck: {e.strerror or e}{f' ({e.filename})' if e.filename else ''}.")
        return 1
    except Exception as e:
        usage = _usage_sentence(e)
        if usage is None:
            raise
        _say(f"unstuck: {usage}")
        return 2


def _usage_sentence(error: Exception) -> str | None:
    """One sentence for what the parser refuses: an unknown option or command, a missing or unreadable value."""
    message = getattr(error, "format_message", None)
    if message is None or getattr(error, "exit_code", None) != 2:
        return None
    text = " ".join(str(message()).split()).rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{text}; see `{context.command_path if context else 'unstuck'} --help`."


def entry() -> None:
    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot show √ shows ? instead
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    sys.exit(main())
