"""`unstuck fit`: the law that the plateaus of runs follow."""

import json
import math
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from unstuck.errors import BadInput
from unstuck.laws import PowerLaw, compare_laws, fit_power_law, read_table
from unstuck.laws.tables import at_threshold, unscheduled
from unstuck.laws.tables import where as where_rows
from unstuck.view.law import explain_law
from unstuck.view.mixed import mixed_settings, mixed_thresholds

from .common import Json, named_options, real, say, warnings_as_sentences


def fit(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="A run store, or a .csv or .parquet table of runs.", show_default=False),
    ],
    formula: Annotated[
        str, typer.Argument(metavar="FORMULA", help='Terms joined by +, such as "d + T/B".', show_default=False)
    ],
    more: Annotated[list[str] | None, typer.Argument(metavar="NAME=NUMBER", hidden=True)] = None,
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
    """Fit a power law to the plateaus of runs, including runs that did not emerge.

    Each term gets one exponent; a term is an arithmetic expression of the table's columns, with sqrt and log.
    The table needs a column plateau_steps (empty where a run did not emerge) and may have status and steps, the
    last step of a run. A run that did not emerge counts as censored at its last step (log-normal failure times).

    [bold]Examples[/bold]

      unstuck fit results/fig1c.csv "T + d"

      unstuck fit results/fig2-right.csv "sqrt(d)*T / sqrt(p**2*d + (1-p)**2)"

      unstuck fit runs "d + T/B" --where layer_norm=false --where "T<=64"

      unstuck fit runs "d + T/B" --compare "d + T*log(T)/B" --compare "T/B" --predict d=64 T=256 B=1
    """
    covers = 0.9 if level is None else level
    with named_options({"level", "where", "threshold", "offset"}), warnings_as_sentences():
        table = _chosen_runs(source, where or [], threshold)
        if Path(source).is_dir():  # columns of a file may be anything
            _warn_of_other_settings(table, formula)
        begins: Any = "fit" if offset == "fit" else real(offset)
        law = fit_power_law(table, formula, level=0.95 if level is None else level, offset=begins)
        predictions = [_prediction(law, words, covers) for words in _joined(predict or [], more or [])]
        ranking = compare_laws(table, [formula, *compare], begins) if compare else None
    _warn_of_bias(law)
    _warn_of_extrapolation(predictions)
    if as_json:
        print(json.dumps(_answer(law, predictions, ranking)))
    else:
        explain_law(law, predictions, ranking)


def _chosen_runs(source: str, conditions: list[str], threshold: float | None) -> pd.DataFrame:
    """The runs that meet all conditions, without those under a diversity schedule, at one threshold."""
    found = where_rows(read_table(source), conditions)
    table = unscheduled(found)
    if scheduled := len(found) - len(table):
        say(f"{scheduled} runs under a diversity schedule are left out; --where schedule=adaptive fits them")
    if threshold is not None:
        return at_threshold(table, threshold)
    if several := sorted(mixed_thresholds(table)):
        shown = ", ".join(f"{x:g}" for x in several)
        raise BadInput("the runs' threshold", shown, "one and the same; choose with --threshold or --where")
    return table


def _warn_of_other_settings(table: pd.DataFrame, formula: str) -> None:
    """Runs that differ in settings that the formula does not name do not follow one law."""
    mixed = mixed_settings(table, formula)
    if mixed is not None:
        alike = " ".join(f"--where {condition}" for condition in mixed.conditions)
        say(f"warning: {mixed.sentence} The largest group: {alike}")


def _prediction(law: PowerLaw, words: str, level: float) -> dict[str, Any]:
    """The plateau of a new run whose sizes are given in words, with its interval."""
    sizes = _sizes(words)
    given = {name.rpartition(".")[2] for name in sizes}  # task.T and T are one
    columns = {c.rpartition(".")[2]: c for term in law.terms for c in term.columns}
    if lacks := [c for short, c in columns.items() if short not in given]:
        raise BadInput("--predict", words, f"a size for each column of the law, including {', '.join(lacks)}")
    if unknown := sorted(given - set(columns)):
        raise BadInput("--predict", words, f"sizes of the law, which has no {', '.join(unknown)}")
    return {**sizes, **law.predict_interval(sizes, level).iloc[0].to_dict(), "level": level}


def _warn_of_bias(law: PowerLaw) -> None:
    if law.censored > law.used:
        say(
            f"warning: {law.censored - law.used} of {law.n + law.censored} runs did not emerge and are left out, since "
            "their last step (column steps) is not known; this biases the law towards short plateaus."
        )


def _warn_of_extrapolation(predictions: list[dict[str, Any]]) -> None:
    for found in predictions:
        if found["beyond"]:
            say(f"warning: this size is outside the fitted runs (in {found['beyond']}); the interval assumes the law.")


def _answer(law: PowerLaw, predictions: list[dict[str, Any]], ranking: pd.DataFrame | None) -> dict[str, Any]:
    answer = law.as_json()
    if predictions:
        answer["predictions"] = [{k: v if v != math.inf else None for k, v in p.items()} for p in predictions]
    if ranking is not None:
        answer["laws"] = ranking.astype(object).where(ranking.notna(), None).to_dict("records")
    return answer


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
