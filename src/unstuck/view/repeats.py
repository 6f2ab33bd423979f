"""What `unstuck data` prints."""

from typing import Any

from rich.text import Text

from unstuck.corpus.repeats import REFERENCE, REFERENCE_BURST
from unstuck.view.console import console, new_table

SMALL = 0.01  # nats a token; below it, an induction head adds next to nothing to a bigram model


def explain_repeats(answer: dict[str, Any]) -> None:
    out = console()
    units = "bytes" if answer["vocabulary"] == 256 else f"tokens of a vocabulary of {answer['vocabulary']:,}"
    size = f": {answer['tokens']:,} {units}, context {answer['context']}\n"
    out.print(Text.assemble((answer["file"], "bold"), size))
    table = new_table("distance", "frequency", "reliability", "of bigrams")
    for row in answer["distances"]:
        where = f"{row['from']}" if row["from"] == row["to"] else f"{row['from']} to {row['to']}"
        table.add_row(where, *(_percent(row[key]) for key in ("frequency", "reliability", "bigram_reliability")))
    total = (answer["repeat_rate"], answer["reliability"], answer["bigram_reliability"])
    table.add_row("all", *map(_percent, total), style="bold")
    out.print(table)
    out.print(
        "\nfrequency: tokens that stand earlier in the context, most recently at this distance; reliability: of"
        " these, those followed by the same token as last time; of bigrams: the reliability that a bigram model of the"
        " text would give.\n",
        style="dim",
    )
    for sentence in (_offer(answer), _gain(answer), _formation(answer), _repetition(answer)):
        out.print(sentence)


def _offer(answer: dict[str, Any]) -> Text:
    share = f"An induction head could predict {_percent(answer['predictable'])} of the tokens"
    why = ": none repeats within the context."
    if answer["reliability"] is not None:
        why = (
            f": {_percent(answer['repeat_rate'])} repeat within the context, and what followed them last time"
            f" follows again in {_percent(answer['reliability'])} of the cases."
        )
    return Text.assemble((share, "bold"), why)


def _gain(answer: dict[str, Any]) -> str:
    gain = f"It would lower the loss of a bigram model, {answer['bigram_loss']:.2f} nats a token, by"
    if answer["advantage"] >= SMALL:
        return f"{gain} {answer['advantage']:.3f}."
    return f"{gain} less than {SMALL}: bigrams explain nearly all of these repeats."


def _formation(answer: dict[str, Any]) -> Text:
    """When, by which law, and what that law assumes."""
    passes = (
        f"{answer['expected_passes']:.3g}" if answer["expected_passes"] < 100 else f"{answer['expected_passes']:,.0f}"
    )
    when = Text.assemble(
        "Induction heads are expected at ",
        (f"step {answer['expected_steps']:,.0f}", "bold"),
        f" with batch {answer['batch']:,}, after {answer['expected_tokens']:,.0f} tokens or {passes} passes over this"
        " text",
    )
    law = "10^5.7 √(batch × context) tokens, arXiv 2511.16893"
    burst = answer["equivalent_burst"]
    offers = "" if burst is None else f" The text offers as much as a burst of {burst:.2g}."
    if answer["expected_by"] == "published":
        doubt = " With so little to gain, they may form later or not at all." if answer["advantage"] < SMALL else ""
        return when + Text(f" ({law}; for natural text that repeats enough: {answer['expected_note']}).{offers}{doubt}")
    low, high = answer["expected_interval"]
    outside = f" Caution: {answer['expected_note']}." if answer["expected_note"] else ""
    return when + Text(
        f" ({low:,.0f} to {high:,.0f}; law of our runs).{offers} Assumed, not tested: text with the same gain a"
        f" token takes as long.{outside} The published law, the same for every text, says step"
        f" {answer['published_steps']:,.0f} ({law})."
    )


def _repetition(answer: dict[str, Any]) -> str | Text:
    burst, level = answer["missing_burst"], answer["reference_predictable"]
    if level is None:
        return "Missing repetition: not known."
    reference = f"{_percent(level)}, the level of {REFERENCE} with task.burst={REFERENCE_BURST:g}"
    if burst is None:
        return f"Missing repetition: no burst reaches {reference}."
    if not burst:
        bigrams = ", but its repeats are bigrams; try a larger --vocabulary" if answer["advantage"] < SMALL else ""
        return f"Missing repetition: none; the text exceeds {reference}{bigrams}."
    raises = f" raises the predictable share to {reference}."
    return Text.assemble("Missing repetition: ", (f"task.burst={burst:.2g}", "bold"), raises)


def _percent(share: float | None) -> str:
    if share is None:
        return "–"
    return f"{share:.1%}" if share < 0.0995 else f"{share:.0%}"
