"""`unstuck predict` and `unstuck fit`: plateaus before training, laws after it."""

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from unstuck.errors import BadInput

from .common import Json, app, named_options, real, say, warnings_as_sentences, whole


@app.command()
def predict(
    T: Annotated[int, typer.Option("--T", parser=whole, metavar="INT", help="Sequence length, at least 2.")],
    d: Annotated[int, typer.Option("--d", parser=whole, metavar="INT", help="Dimension of a token, at least 1.")],
    B: Annotated[
        int,
        typer.Option(
            "--B", parser=whole, metavar="INT", help="Copies of the relevant token in the context, 1 to T - 1."
        ),
    ] = 1,
    p: Annotated[
        float,
        typer.Option(
            "--p",
            parser=real,
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
            "--threshold", parser=real, metavar="NUMBER", help="Test loss that ends the plateau; it starts at 0.5."
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
    from unstuck.theory import Flow, blow_up_time, escape_time, finish_time, plateau_estimate, rate
    from unstuck.theory.setting import check_threshold

    with named_options({"T", "d", "B", "p", "flow", "threshold"}):
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
    from unstuck.view.terminal import explain_prediction

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
    more: Annotated[list[str] | None, typer.Argument(metavar="", hidden=True)] = None,
    level: Annotated[
        float | None,
        typer.Option(
            "--level",
            parser=real,
            metavar="NUMBER",
            help="Coverage of the intervals; if not given, 0.95 for exponents, 0.9 for predictions.",
            show_default=False,
        ),
    ] = None,
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
    offset: Annotated[
        str,
        typer.Option("--offset", metavar="NUMBER|fit", help="Steps before the law begins; fit takes the most likely."),
    ] = "0",
    predict: Annotated[
        list[str] | None,
        typer.Option(
            "--predict",
            metavar="SIZES",
            help="Predict the plateau of a new run: d=64 T=256 B=1; may be repeated, quoted.",
        ),
    ] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option(
            "--compare", metavar="FORMULA", help="Another law to compare with, over the same runs; may be repeated."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Fit a power law to the plateaus of runs, those that did not emerge included.

    Each term gets one exponent; a term is an arithmetic expression of the table's columns, with sqrt and log.
    The table needs a column plateau_steps (empty where a run did not emerge) and may have status and steps, the
    last step of a run: a run that had not emerged by then is used as just that (a log-normal law of failure times).

    [bold]Examples[/bold]

      unstuck fit results/fig1c.csv "T + d"

      unstuck fit results/fig2-right.csv "sqrt(d)*T / sqrt(p**2*d + (1-p)**2)"

      unstuck fit runs "d + T/B" --where layer_norm=false --where "T<=64"

      unstuck fit runs "d + T/B" --compare "d + T*log(T)/B" --compare "T/B" --predict d=64 T=256 B=1
    """
    from unstuck.forecast.prior import differing
    from unstuck.laws import compare_laws, fit_power_law, read_table
    from unstuck.laws.tables import at_threshold, unscheduled
    from unstuck.laws.tables import where as where_rows

    with named_options({"level", "where", "threshold", "offset"}), warnings_as_sentences():
        found = where_rows(read_table(source), where or [])
        table = unscheduled(found)
        if len(table) < len(found):
            out = len(found) - len(table)
            say(f"{out} runs under a diversity schedule are left out; --where schedule=adaptive fits them")
        if threshold is not None:
            table = at_threshold(table, threshold)
        elif "threshold" in table and table["threshold"].nunique() > 1:
            several = ", ".join(f"{x:g}" for x in sorted(table["threshold"].dropna().unique()))
            raise BadInput("the runs' threshold", several, "one and the same; choose with --threshold or --where")
        if Path(source).is_dir() and (also := differing(table, formula)):  # columns of a file may be anything
            shown = "; ".join(f"{name}: {', '.join(values[:4])}" for name, values in also.items())
            alike = " ".join(f"--where {name}={values[0]}" for name, values in also.items() if values[0] != "nan")
            say(f"warning: runs that the formula takes for alike differ in {shown}. Those most alike: {alike}")
        begins: Any = "fit" if offset == "fit" else real(offset)
        law = fit_power_law(table, formula, level=0.95 if level is None else level, offset=begins)
        covers = 0.9 if level is None else level
        predictions = []
        for words in _joined(predict or [], more or []):
            sizes = _sizes(words)
            given = {name.rpartition(".")[2] for name in sizes}  # task.T and T are one
            lacks = {c: None for term in law.terms for c in term.columns if c.rpartition(".")[2] not in given}
            if lacks:
                raise BadInput("--predict", words, f"a size for each column of the law, {', '.join(lacks)} too")
            columns = {c.rpartition(".")[2] for term in law.terms for c in term.columns}
            if unknown := sorted(given - columns):
                raise BadInput("--predict", words, f"sizes of the law, which has no {', '.join(unknown)}")
            predictions.append({**sizes, **law.predict_interval(sizes, covers).iloc[0].to_dict(), "level": covers})
        ranking = compare_laws(table, [formula, *compare], begins) if compare else None
    if law.censored > law.used:
        say(
            f"warning: {law.censored - law.used} of {law.n + law.censored} runs did not emerge and, as their last step "
            "is not known (column steps), are left out, which biases the law towards short plateaus."
        )
    for found in predictions:
        if found["beyond"]:
            say(
                f"warning: this size lies beyond the runs of the law (in {found['beyond']}); the interval takes it "
                "to hold there."
            )
    if as_json:
        answer = law.as_json()
        if predictions:
            finite = [{k: v if v != math.inf else None for k, v in found.items()} for found in predictions]
            answer["predictions"] = finite
        if ranking is not None:
            answer["laws"] = ranking.astype(object).where(ranking.notna(), None).to_dict("records")
        print(json.dumps(answer))
        return
    from unstuck.view.terminal import explain_law

    explain_law(law, predictions, ranking)


def _joined(predict: list[str], more: list[str]) -> list[str]:
    """The sizes after --predict need no quotes: words that follow it belong to it."""
    if more and not predict:
        raise BadInput(
            "argument", more[0], "given after --predict, as sizes of a new run, or part of the quoted formula"
        )
    return [*predict[:-1], " ".join([predict[-1], *more])] if predict else []


def _sizes(words: str) -> dict[str, float]:
    """`d=64 T=256` as numbers."""
    out: dict[str, float] = {}
    for word in words.replace(",", " ").split():
        name, equals, value = word.partition("=")
        if not equals:
            raise BadInput("--predict", words, "sizes such as 'd=64 T=256 B=1'")
        if name in out:
            raise BadInput("--predict", words, f"one size for {name}; give --predict again for another run")
        try:
            out[name] = float(value)
        except ValueError:
            out[name] = math.nan
        if not 0 <= out[name] < math.inf:
            raise BadInput("--predict", word, "a size, such as T=256: a number that is not negative")
    return out
