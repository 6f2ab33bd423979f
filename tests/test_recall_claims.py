"""What the recall figures say of runs, on made-up runs of which it is known what should be said."""

import math

import numpy as np
import pandas as pd
import pytest

from unstuck.papers.emergence import fig4_curves, fig4_law, fig4_layernorm, fig4_tuned, fig5_late, fig16
from unstuck.papers.emergence._recall import repetition_claims

STEPS = np.unique(np.round(np.concatenate([np.arange(0, 600, 25), 600 * 1.04 ** np.arange(83), [15_000]])))
STEPS = STEPS[STEPS <= 15_000]
NEVER = math.nan


def rise(at, low=0.125, high=0.97, width=60):
    return low + (high - low) / (1 + np.exp(np.clip(-(STEPS - at) / width, -50, 50)))


def flat(value):
    return np.full(len(STEPS), value)


def run(clean, half, like=None, *, B=1.0, p=0.0, seed=0):
    name = f"{B} {p} {seed}"
    sizes = {"run_id": name, "tokens": 64, "pairs": 8, "B": B, "p": p, "seed": seed, "step": STEPS}
    like = clean if like is None else like
    return pd.DataFrame({**sizes, "clean_accuracy": clean, "like_accuracy": like, "crossing_0.5": half})


def none(*halves):
    return [run(flat(0.125) if math.isnan(h) else rise(h), h, seed=i) for i, h in enumerate(halves)]


def said(parts, key="B"):
    claims = repetition_claims(pd.concat(parts), key, 1.0 if key == "B" else 0.0, "up to 4 times")
    return {claim.quantity.split(":")[0].split(" of ")[0]: claim for claim in claims}


def test_helpful_repetition_is_faster_and_neither_overfits_nor_comes_back_late():
    helpful = [run(rise(2300), 2300.0, rise(2000), p=0.5, seed=i) for i in (0, 1)]
    found = said([*none(6000.0, 6300.0), *helpful], "p")
    assert found["speed-up"].ours == "2.67 times with p = 0.5 (seed against seed 2.61 to 2.74)"
    assert found["speed-up"].verdict == "agrees"
    assert (found["overfits"].ours, found["comes back late"].ours) == ("none", "none")


def test_a_seed_that_never_got_there_is_shown_and_decides():
    parts = [run(rise(2000), 2000.0, rise(1500), B=2.0), run(flat(0.125), NEVER, rise(1500), B=2.0, seed=1)]
    found = said([*none(6000.0, 6000.0), *parts])
    assert found["steps to 50% on clean data, each seed"].ours == "B = 1: 6000, 6000; B = 2: 2000, >15000"
    assert found["speed-up"].verdict == "differs"
    assert found["overfits"].ours.startswith("B = 2 (1 of 2 seeds")


def test_a_speed_up_over_runs_that_never_got_there_is_a_bound():
    found = said([*none(NEVER, NEVER), *(run(rise(3000), 3000.0, B=2.0, seed=i) for i in (0, 1))])
    assert found["speed-up"].ours.startswith("at least 5.00 times")


def test_no_effect_agrees_with_nothing():
    found = said([*none(6000.0, 6400.0), *(run(rise(h), h, B=1.5, seed=i) for i, h in enumerate((6100.0, 6250.0)))])
    assert found["speed-up"].verdict == "beside"


def test_what_overfits_and_comes_back_is_named_with_its_seeds():
    late = [run(rise(12_000), 12_000.0, rise(800), B=4.0), run(flat(0.125), NEVER, rise(800), B=4.0, seed=1)]
    found = said([*none(6000.0, 6000.0), *late])
    assert found["comes back late"].ours == "B = 4 (1 of 2 seeds)"
    assert found["overfits"].ours.startswith("B = 4 (1 of 2 seeds")


def test_figure_16_counts_runs_that_never_got_there():
    slow = [run(flat(0.125), NEVER, flat(0.3), p=0.9)]
    claims = fig16.compare(pd.concat([*none(6000.0), *slow]))
    assert claims[1].ours.endswith("p = 0.9: >15000")
    assert claims[1].verdict == "differs"
    claims = fig16.compare(pd.concat([*none(NEVER), run(rise(3000), 3000.0, rise(1500), B=2.0)]))
    assert claims[0].verdict == "agrees"
    assert float(claims[2].ours) == pytest.approx(0.70, abs=0.02)


def test_counting_by_brute_force():
    """Two pairs, B = 2: both slots always hold the query; B = 1: one of two values."""
    assert fig16.counting(2, 8, 2.0) == 1.0
    assert fig16.counting(2, 8, 1.0) == pytest.approx(0.5)
    # Three pairs, B = 2: one slot for sure, the others each with 1/2: 1 copy (1/4): guess 1/3; 2 or 3 copies: right.
    assert fig16.counting(3, 9, 2.0) == pytest.approx(0.25 / 3 + 0.75, abs=0.02)


def race(true=(0.79, 2.0)):
    """Sizes whose best learning rate depends on them; the others are stopped at its plateau."""
    rows, rng = [], np.random.default_rng(0)
    for tokens in (64, 128, 256):
        for pairs in (8, 16, 32):
            best = 1e-4 if pairs < 32 else 3e-5
            for seed in (0, 1):
                plateau = 0.5 * tokens ** true[0] * pairs ** true[1] * math.exp(0.03 * rng.standard_normal())
                for lr in (1e-4, 3e-5):
                    won = lr == best
                    row = {"tokens": tokens, "pairs": pairs, "lr": lr, "seed": seed, "layer_norm": False}
                    row |= {"status": "emerged" if won else "censored", "plateau_steps": plateau if won else NEVER}
                    rows.append(row | {"steps": plateau, "crossing_0.5": row["plateau_steps"]})
    return pd.DataFrame(rows)


def test_laws_take_the_winners_of_a_race():
    for figure in (fig4_law, fig4_tuned):
        claims = {c.quantity: c for c in figure.compare(race())}
        assert float(str(claims["exponent of pairs, to 50%"].ours).split()[0]) == pytest.approx(2.0, abs=0.06)
        assert claims["runs fitted, to 50%"].ours.startswith("18 emerged, 0 censored")
        assert claims["exponent of pairs, to 50%"].verdict == "beside"  # the paper's is at 5%
    assert claims["learning rate chosen"].ours == "0.0001 in 6 sizes, 3e-05 in 3 sizes"
    nobody = race().assign(status="censored", plateau_steps=NEVER)
    assert {c.quantity: c for c in fig4_tuned.compare(nobody)}["learning rate chosen"].ours == ""


def test_layer_norm_is_compared_where_both_got_there():
    rows = []
    for pairs, norm, factor in ((4, False, 1.5), (4, True, 2.0), (8, False, 3.0), (8, True, NEVER)):
        steps = factor * fig4_layernorm.law(32, pairs)
        status = "censored" if math.isnan(steps) else "emerged"
        row = {"tokens": 32, "pairs": pairs, "layer_norm": norm, "seed": 0, "status": status, "steps": 30_000}
        rows.append(row | {"plateau_steps": steps, "crossing_0.5": steps, "crossing_0.05": steps})
    claims = {c.quantity: c.ours for c in fig4_layernorm.compare(pd.DataFrame(rows))}
    assert claims["closer to the paper"] == "without layer norm"
    assert claims["steps to 5% without layer norm over the paper's law"] == "1.50 times"
    assert claims["steps to 50% with layer norm over without"].endswith("1 pairs of runs)")


def test_curves_that_never_rise_are_later_than_all():
    def curve(pairs, half):
        values = flat(1 / pairs) if math.isnan(half) else rise(half)
        return pd.DataFrame({"tokens": 64, "pairs": pairs, "step": STEPS, "clean_accuracy": values})

    in_order = fig4_curves.compare(pd.concat([curve(4, 2000.0), curve(6, 6000.0), curve(8, NEVER)]))
    assert in_order[0].verdict == "agrees"
    assert in_order[0].ours.endswith("8 pairs: >15000")
    assert fig4_curves.compare(pd.concat([curve(4, 2000.0), curve(6, NEVER), curve(8, 6000.0)]))[0].verdict == "differs"


def test_late_generalisation_is_told_from_none():
    late = run(rise(12_000), 12_000.0, rise(800), B=4.0).assign(repetition="B = 4")
    never = run(flat(0.125), NEVER, rise(800), p=0.9).assign(repetition="p = 0.9")
    assert fig5_late.compare(pd.concat([late, never]))[0].verdict == "agrees"
    assert fig5_late.compare(never)[0].verdict == "beside"
