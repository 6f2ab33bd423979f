"""All that `unstuck data` measures on a text: what it offers to induction heads at a vocabulary and a context."""

import math
from typing import Any

from . import repeats
from .tokens import Indices, Tokens

SHORTEST = 2  # tokens of a context


def offer(tokens: Indices, vocabulary: int, context: int) -> dict[str, Any]:
    """Frequency and reliability of repeats, what an induction head gains over bigrams, and what it would gain if every
    sequence repeated itself; ready for JSON."""
    parts = Tokens.split(tokens, vocabulary)
    parts.check_context("context", context, SHORTEST)  # as task text does
    windows = repeats.cut(tokens, context)
    found = repeats.count_repeats(windows)
    train, held_out = repeats.cut(parts.train, context, repeats.MOST_COUNTED), repeats.cut(parts.held_out, context)
    gain = repeats.advantage(train, held_out, vocabulary)
    copied = repeats.advantage(train, repeats.repeated(held_out), vocabulary)
    by_distance = zip(
        repeats.distances(context), found.frequencies, found.reliabilities, gain.bigram_reliabilities, strict=True
    )
    return {
        "tokens": len(tokens),
        "repeat_rate": found.repeat_rate,
        "reliability": _number(found.reliability),
        "bigram_reliability": _number(gain.bigram_reliability),
        "predictable": found.predictable,
        "copied_predictable": repeats.count_repeats(repeats.repeated(windows)).predictable,
        "advantage": gain.nats,
        "copied_advantage": copied.nats,
        "equivalent_burst": repeats.equivalent_burst(gain.nats, copied.nats),
        "weight": gain.weight,
        "bigram_loss": gain.bigram_loss,
        "distances": [
            {
                "from": low,
                "to": high,
                "frequency": float(f),
                "reliability": _number(r),
                "bigram_reliability": _number(b),
            }
            for (low, high), f, r, b in by_distance
        ],
    }


def _number(value: float) -> float | None:
    """For JSON, which has no NaN."""
    return None if math.isnan(value) else float(value)
