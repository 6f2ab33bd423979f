"""All that `unstuck data` measures on a text: what it offers to induction heads at a vocabulary and a context."""

import math
from typing import Any

from unstuck.errors import BadInput

from . import repeats
from .tokens import Indices, Tokens


def offer(tokens: Indices, vocabulary: int, context: int) -> dict[str, Any]:
    """Frequency and reliability of repeats, what an induction head gains over bigrams, and what it would gain if every
    sequence repeated itself; ready for JSON."""
    parts = Tokens.split(tokens, vocabulary)
    if len(parts.held_out) <= context + 1:  # as task text refuses it
        most = len(parts.held_out) - 2
        wanted = f"at most {most}: the held-out tenth of the text has {len(parts.held_out)} tokens"
        raise BadInput("context", context, wanted if most >= 2 else "shorter than the text; take a longer text")
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
