"""Published laws for the formation of induction heads, as exponents of a power law of the steps, and verdicts on them.

Sources: Aoyama, Wilcox and Schneider 2025 (arXiv 2511.16893): tokens ~ sqrt(batch context), so steps ~ 1/sqrt(batch
context). Musat et al. 2025 (arXiv 2511.01033): time ~ context². Zucchet et al. 2025: plateau ~ T^0.8 in Transformers
and T in theory, for a relevant token among T; in-context repetition B times: 1/B in theory, about 1/sqrt(B) in recall.
"""

from typing import NamedTuple

from unstuck.laws import PowerLaw
from unstuck.papers.figure import Claim
from unstuck.papers.plateaus import exponent_text

from ._runs import Event

NARROW = 0.2  # half of the width of a 95% interval that tells published exponents apart: they differ by 0.5 or more


class Published(NamedTuple):
    """An exponent of the steps to formation, or a range of them, and who says so."""

    who: str
    low: float
    high: float

    @property
    def text(self) -> str:
        return f"{self.low:g}" if self.low == self.high else f"{self.low:g} to {self.high:g}"


AOYAMA = Published("Aoyama et al. 2025", -0.5, -0.5)
MUSAT = Published("Musat et al. 2025", 2.0, 2.0)
ZUCCHET = Published("Zucchet et al. 2025", 0.8, 1.0)
EQUAL_TOKENS = Published("Aoyama et al. 2025", 0.0, 0.0)  # steps depend on batch x context alone
#: In-context repetition shortens the plateau as 1/B in theory; cross-sample repetition by sqrt(1 + p² (d - 1)), which
#: grows as p where p² d is large. Both give -1.
INVERSE = Published("Zucchet et al. 2025, theory: 1/B, or 1/p", -1.0, -1.0)
INVERSE_ROOT = Published("Zucchet et al. 2025, 1/sqrt(B)", -0.5, -0.5)


def verdicts(law: PowerLaw | None, term: str, published: list[Published], grid: str, event: Event) -> list[Claim]:
    """The exponent of a term in the steps to an event beside each published one: holds, holds with another exponent, or
    does not hold. None where the published one lies in the interval, and the interval is wider than the question."""
    if law is None:
        return [Claim(f"exponent of {term}, {event.name}", "too few runs yet")]
    low, high = law.intervals[term]
    claims = []
    for p in published:
        inside = low <= p.high and high >= p.low
        if inside and high - low > 2 * NARROW:
            agrees, says = None, "no verdict: the interval is too wide to tell"
        elif inside:
            agrees, says = True, "holds"
        elif (law.exponents[term] > 0) == (p.low > 0) and not low <= 0 <= high and p.low != 0:
            agrees, says = False, "holds with another exponent"
        else:
            agrees, says = False, "does not hold"
        what = f"exponent of {term} in the steps, {event.name}, beside {p.who}"
        claims.append(Claim(what, exponent_text(law, term), p.text, agrees, f"{says}; {grid}"))
    return claims
