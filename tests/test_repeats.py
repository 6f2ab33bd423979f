"""What a text repeats, against loops over positions and against texts whose answer is known."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from refusals import refused
from unstuck.corpus.repeats import (
    advantage,
    count_repeats,
    cut,
    distances,
    equivalent_burst,
    maximise,
    missing_burst,
    previous,
    repeated,
    with_burst,
)
from unstuck.tasks.text import Text


@st.composite
def windows(draw, vocabulary=5):
    shape = draw(st.tuples(st.integers(1, 4), st.integers(3, 20)))
    return draw(arrays(np.uint16, shape, elements=st.integers(0, vocabulary - 1)))


def loop(rows):
    """(distance, correct) of each matched position."""
    found = []
    for row in rows.tolist():
        for t in range(len(row) - 1):
            earlier = [s for s in range(t) if row[s] == row[t]]
            if earlier:
                s = earlier[-1]
                found.append((t - s, row[s + 1] == row[t + 1]))
    return found


@given(rows=windows())
def test_counts_are_those_of_a_loop(rows):
    context = rows.shape[1] - 1
    found, wanted = count_repeats(rows), loop(rows)
    assert found.positions == len(rows) * context
    for (low, high), matched, correct in zip(distances(context), found.matched, found.correct, strict=True):
        assert matched == sum(low <= d <= high for d, _ in wanted)
        assert correct == sum(low <= d <= high and c for d, c in wanted)
    assert found.repeat_rate == pytest.approx(len(wanted) / found.positions)
    assert found.predictable == pytest.approx(sum(c for _, c in wanted) / found.positions)
    if wanted:
        assert found.repeat_rate * found.reliability == pytest.approx(found.predictable)
    else:
        assert math.isnan(found.reliability)


@given(rows=windows())
def test_the_previous_position_holds_the_same_token_and_none_between_does(rows):
    for row, before in zip(rows.tolist(), previous(rows).tolist(), strict=True):
        for t, s in enumerate(before):
            assert row[t] not in row[s + 1 : t]
            assert s == -1 or row[s] == row[t]


@given(context=st.integers(2, 300))
def test_bins_hold_every_distance_once(context):
    assert [d for low, high in distances(context) for d in range(low, high + 1)] == list(range(1, context))


@given(length=st.integers(3, 200), context=st.integers(2, 20))
def test_windows_are_consecutive_and_share_one_token(length, context):
    text = np.arange(length)
    if length <= context:
        with refused("context", context):
            cut(text, context)
        return
    found = cut(text, context)
    assert found[:, 1:].ravel().tolist() == list(range(1, 1 + len(found) * context))  # each token once as a target
    assert length - 1 - len(found) * context < context  # and none left that would fill a window


def test_of_a_long_text_windows_come_from_all_of_it():
    found = cut(np.arange(100_001), 10, most=1000)
    assert found.shape == (100, 11)
    assert (found[0, 0], found[-1, -1]) == (0, 100_000)
    assert (found[:, 0] % 10 == 0).all()


def test_sequences_repeat_as_those_of_the_task():
    """With burst 1 and task.lag=half the task draws what `repeated` makes."""
    rows = np.random.default_rng(0).integers(0, 1000, (8, 65))
    task = Text(context=64, burst=1.0, lag="half")
    theirs = task._repeated(torch.from_numpy(rows), torch.Generator().manual_seed(0))
    np.testing.assert_array_equal(repeated(rows), theirs.numpy())


def test_independent_tokens_offer_nothing_beyond_bigrams():
    rng = np.random.default_rng(0)
    text = rng.choice(20, size=60_001, p=np.arange(1, 21) / 210)
    found = advantage(cut(text[:40_001], 50), cut(text[40_000:], 50), 20)
    entropy = -sum(p * math.log(p) for p in np.arange(1, 21) / 210)
    assert found.bigram_loss == pytest.approx(entropy, rel=0.01)
    assert 0 <= found.nats < 1e-3
    assert found.weight < 0.01


def test_copies_of_random_tokens_offer_the_entropy_of_a_token():
    """In half of the positions the next token, uniform among V, is known: log(V) / 2 nats."""
    rng = np.random.default_rng(0)
    rows = repeated(rng.integers(0, 5000, (600, 65)))
    found = advantage(rows[:300], rows[300:], 5000)
    assert found.bigram_loss == pytest.approx(math.log(5000), rel=0.03)
    assert found.nats == pytest.approx(math.log(5000) / 2, rel=0.06)
    assert found.weight > 0.95
    assert found.bigram_reliability < 0.02


def test_in_a_text_of_bigrams_the_reliability_is_that_of_bigrams():
    rng = np.random.default_rng(0)
    chain = rng.dirichlet(np.full(12, 0.3), size=12)
    text = [0]
    for x in rng.random(60_000):
        text.append(min(int(np.searchsorted(chain[text[-1]].cumsum(), x)), 11))
    rows = cut(np.array(text), 40)
    found = advantage(rows[:1000], rows[1000:], 12)
    assert found.nats < 1e-3
    assert found.bigram_reliability == pytest.approx(count_repeats(rows[1000:]).reliability, abs=0.02)


@given(rows=windows(), seed=st.integers(0, 5))
def test_the_advantage_is_the_largest_mean_of_log_ratios(rows, seed):
    train = np.random.default_rng(seed).integers(0, 5, (10, 8))
    found = advantage(train, rows, 5)
    firsts, pairs = train[:, :-1].ravel().tolist(), list(zip(train[:, :-1].ravel(), train[:, 1:].ravel(), strict=True))

    def q(a, b):
        share = (firsts.count(b) + 1) / (len(firsts) + 5)
        return (pairs.count((a, b)) + found.smoothing * share) / (firsts.count(a) + found.smoothing)

    def gain(weight):
        total = 0.0
        for row in rows.tolist():
            for t in range(len(row) - 1):
                known = q(row[t], row[t + 1])
                if row[t] in row[:t]:
                    s = max(s for s in range(t) if row[s] == row[t])
                    total += math.log((1 - weight) * known + weight * (row[s + 1] == row[t + 1])) - math.log(known)
        return total / (len(rows) * (rows.shape[1] - 1))

    assert all(sum(q(a, b) for b in range(5)) == pytest.approx(1) for a in range(5))
    assert found.nats == pytest.approx(gain(found.weight), abs=1e-9)
    assert all(found.nats >= gain(w) - 1e-9 for w in (0, 0.01, 0.1, 0.3, 0.6, 0.9, 0.99))
    losses = [-math.log(q(a, b)) for row in rows.tolist() for a, b in pairwise(row)]
    assert found.bigram_loss == pytest.approx(np.mean(losses))


@given(natural=st.floats(0, 1), copied=st.floats(0, 1), level=st.floats(0, 1))
def test_the_missing_burst_reaches_the_level(natural, copied, level):
    burst = missing_burst(natural, copied, level)
    if burst is None:
        assert max(natural, copied) < level
    elif burst == 0:
        assert natural >= level or level - natural < 1e-300
    else:
        assert 0 < burst <= 1
        assert with_burst(natural, copied, burst) == pytest.approx(level)


@given(top=st.floats(-2, 3))
def test_the_maximum_of_a_parabola(top):
    where, value = maximise(lambda x: -((x - top) ** 2), -1.0, 2.0)
    assert where == pytest.approx(min(max(top, -1), 2), abs=1e-6)
    assert value == pytest.approx(-((where - top) ** 2))


def test_the_equivalent_burst_offers_what_the_text_offers():
    """Of random tokens a known share of the windows are copies: the gain of the mixture is that of this share."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 5000, (2000, 65))
    train, held_out = rows[:1000], rows[1000:]
    copies = rng.random(1000) < 0.2
    mixed = np.where(copies[:, None], repeated(held_out), held_out)
    gain, copied = (advantage(train, windows, 5000).nats for windows in (mixed, repeated(held_out)))
    assert equivalent_burst(gain, copied) == pytest.approx(0.2, rel=0.25)
    assert (equivalent_burst(0.0, 1.0), equivalent_burst(3.0, 1.0), equivalent_burst(0.0, 0.0)) == (0.0, 1.0, None)
