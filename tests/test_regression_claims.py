"""What the regression figures say of runs, on made-up tables: what agrees, what differs, what stays undecided."""

import itertools

import numpy as np
import pandas as pd
import pytest

from unstuck.papers.emergence import fig3_right, fig12, no_residual
from unstuck.papers.emergence._regression import cell_ratios, law_claims, of_paper_sizes
from unstuck.papers.emergence.heads import OWN, SHARED, WIDER
from unstuck.papers.figure import load
from unstuck.papers.lab import shortest_mean
from unstuck.papers.plateaus import fit_or_none


def plateaus(law, T=(16, 32, 64), d=(8, 16, 32), seeds=(0, 1), noise=0.0, **settings):
    rng = np.random.default_rng(0)
    rows = []
    for t, size, seed in itertools.product(T, d, seeds):
        steps = law(t, size) * np.exp(noise * rng.standard_normal())
        row = {"T": t, "d": size, "B": 1, "seed": seed, "status": "emerged", "plateau_steps": steps, "steps": steps}
        rows.append(row | settings)
    return pd.DataFrame(rows)


def verdict(table, d):
    return law_claims(fit_or_none(table, "d + T"), {"d": d, "T": 0.8}, decides="larger sizes")[0].verdict


def test_an_exponent_agrees_only_where_the_interval_could_tell():
    sure = plateaus(lambda T, d: d**1.3 * T**0.8, noise=0.03)
    assert (verdict(sure, 1.3), verdict(sure, 1.7)) == ("agrees", "differs")
    unsure = plateaus(lambda T, d: d**1.3 * T**0.8, T=(16, 32), d=(8, 12), noise=0.4)
    low, high = fit_or_none(unsure, "d + T").intervals["d"]
    assert high - low > 0.5
    assert verdict(unsure, (low + high) / 2) == "beside"  # inside, and so is nearly everything
    assert verdict(unsure, high + 1) == "differs"


def test_a_law_that_differs_says_what_would_decide():
    law = fit_or_none(plateaus(lambda T, d: d**1.3 * T**0.8, noise=0.03), "d + T")
    found = law_claims(law, {"d": 1.7, "T": 0.8}, decides="larger sizes", r2=1.5)
    assert {c.verdict: c.note for c in found if c.paper is not None} == {"differs": "larger sizes", "agrees": ""}


def repeated(gains, seeds=3):
    """Plateaus for p = 0 and 0.2: with p shorter by a factor for each d."""
    rows = []
    for d, gain in gains.items():
        for p, seed in itertools.product((0.0, 0.2), range(seeds)):
            steps = 100 * d / (gain if p else 1)
            rows.append(
                {"T": 64, "d": d, "p": p, "seed": seed, "lr": 3e-4, "status": "emerged", "plateau_steps": steps}
            )
    return pd.DataFrame(rows).assign(steps=lambda t: t["plateau_steps"])


@pytest.mark.parametrize(
    ("gains", "said"),
    [
        ({8: 1.1, 32: 1.3, 128: 1.6}, "agrees"),
        ({8: 1.6, 32: 1.3, 128: 1.1}, "differs"),
        ({8: 0.3, 32: 0.5, 128: 0.7}, "differs"),  # it grows, but repetition only hurts
        ({8: 1.6, 16: 1.3, 32: 1.1}, "beside"),  # sizes too small to tell
    ],
)
def test_repetition_helps_more_as_d_grows(gains, said):
    claim, *_ = fig3_right.compare(repeated(gains))
    assert (claim.verdict, bool(claim.note)) == (said, said != "agrees")
    assert fig3_right.compare(repeated(gains, seeds=2))[0].verdict == "beside"


def test_the_gain_by_repetition_is_also_taken_within_a_seed():
    """Seed 1 is slower by half in all its runs: no seed's gain is another, and plateaus differ by a factor of 1.5."""
    table = repeated({8: 1.1, 16: 1.3})
    table.loc[table["seed"] == 1, "plateau_steps"] *= 1.5
    claims = {c.quantity: c.ours for c in fig3_right.compare(table)}
    assert claims["best p over none, within each seed"] == "d = 8: 1.10/1.10/1.10, d = 16: 1.30/1.30/1.30"
    assert claims["slowest over fastest seed, at the p where most"] == "d = 8: 1.50, d = 16: 1.50"


def test_a_size_that_lost_a_seed_makes_no_gain():
    table = repeated({8: 1.1, 16: 1.3, 128: 1.6})
    lost = (table["d"] == 128) & (table["p"] > 0) & (table["seed"] == 1)
    table.loc[lost, ["status", "plateau_steps"]] = ["censored", np.nan]
    claim, *_ = fig3_right.compare(table)
    assert (claim.verdict, "128" in claim.ours) == ("beside", False)


def rates(**steps):
    """Runs of one size at two learning rates, a list of plateaus for each; None did not emerge."""
    rows = [
        {"d": 8, "p": 0.1, "lr": lr, "seed": seed, "plateau_steps": x, "status": "emerged" if x else "censored"}
        for lr, plateaus in zip((1e-4, 3e-4), steps.values(), strict=True)
        for seed, x in enumerate(plateaus)
    ]
    return pd.DataFrame(rows).astype({"plateau_steps": float})


@pytest.mark.parametrize(
    ("low", "high", "taken"),
    [
        ([1000, 1100], [900, 1300], 1e-4),  # the shortest mean, not the one that won a seed
        ([1000, 1300], [900, 1100], 3e-4),
        ([5000, 6000], [900, None], 1e-4),  # a rate with a run that did not emerge has no mean
        ([5000, None], [None, None], 1e-4),  # where none has a mean, most seeds
    ],
)
def test_the_rate_with_the_shortest_mean_is_taken(low, high, taken):
    assert set(shortest_mean(rates(low=low, high=high), ["p", "d"])["lr"]) == {taken}


def test_figure_3_right_runs_both_rates_in_full():
    runs = fig3_right.runs("cpu")
    assert (len(runs), {run.race for run in runs}, {run.tier for run in runs}) == (60, {""}, {1})
    assert {run.spec.optim.lr for run in runs} == {1e-4, 3e-4}


def readings(**exponents):
    """Plateaus d^1.27 T^0.7 H^x of three readings of Figure 13, with 1 and 2 layers."""
    parts = []
    names = (OWN, WIDER, SHARED)
    for (name, x), heads, layers in itertools.product(
        zip(names, exponents.values(), strict=True), (1, 2, 4, 8), (1, 2)
    ):
        law = plateaus(lambda T, d, x=x, heads=heads: d**1.27 * T**0.7 * heads**x, T=(16, 32), d=(8, 16), noise=0.02)
        parts.append(law.assign(reading=name, heads=heads, layers=layers))
    return pd.concat(parts, ignore_index=True)


def test_the_reading_whose_exponent_is_nearest_is_named():
    claims = {c.quantity: c for c in load("fig13-width").compare(readings(own=0.16, wider=-0.2, shared=0.4))}
    assert claims["reading nearest to the paper's"].ours == OWN
    claims = {c.quantity: c for c in load("fig13-width").compare(readings(own=0.5, wider=-0.2, shared=0.2))}
    assert claims["reading nearest to the paper's"].ours == SHARED
    alone = readings(own=0.15, wider=0, shared=0).query("reading == @OWN")
    assert "reading nearest to the paper's" not in {c.quantity for c in load("fig13-width").compare(alone)}


def test_one_reading_of_figure_13_alone_can_agree_or_differ():
    table = readings(own=0.5, wider=0.5, shared=0.5)
    for name, reading in (("fig13", WIDER), ("fig13-split", SHARED), ("fig13-width", OWN)):
        part = table if name == "fig13-width" else table[table["reading"] == reading]
        found = {c.verdict for c in load(name).compare(part)}
        assert found == ({"agrees", "differs", "new"} if name == "fig13" else {"beside", "new"})


def test_large_sizes_have_a_law_of_their_own():
    """Exponents of the small sizes are 1 and 0.5, those of the large ones the paper's."""
    small = plateaus(lambda T, d: 3 * d * T**0.5, T=(16, 32), d=(8, 16), noise=0.02)
    large = plateaus(lambda T, d: 0.76 * d**1.29 * T**0.8, T=(64, 128), d=(32, 64), noise=0.02)
    claims = {c.quantity: c for c in load("fig3-large").compare(pd.concat([small, large], ignore_index=True))}
    where = ", T from 64 and d from 32 on"
    assert claims[f"exponent of d{where}"].verdict == claims[f"exponent of T{where}"].verdict == "agrees"
    assert claims["exponent of d between neighbouring sizes"].ours.startswith("1.0")


def test_plateaus_without_residual_connections_are_compared_with_those_with_them():
    parts = [
        plateaus(lambda T, d, x=x: d**x * T**0.6, noise=0.02, skip=skip) for skip, x in ((False, 1.5), (True, 1.1))
    ]
    table = pd.concat(parts, ignore_index=True)
    claims = {c.quantity: c.ours for c in no_residual.compare(table)}
    without, with_them = claims["regression: exponent of d"].split(", with ")
    assert float(without.split()[1]) == pytest.approx(1.5, abs=0.05)
    assert float(with_them.split()[0]) == pytest.approx(1.1, abs=0.05)
    assert claims["regression: plateau without residual connections over with"].startswith("3.0")


def test_small_sizes_leave_the_law_once_the_papers_are_there():
    table = plateaus(lambda T, d: d**1.3 * T**0.6 if d > 8 else 1e4, d=(8, 16, 32, 64))
    assert set(of_paper_sizes(table)["d"]) == {16, 32, 64}
    assert set(of_paper_sizes(table[table["d"] < 64])["d"]) == {8, 16, 32}


def curves(**steps):
    """Loss curves that cross 0.4 at these steps, for p = 0, 0.1, ... in turn."""
    rows = []
    for i, at in enumerate(steps.values()):
        step = np.arange(0, 2001, 20.0)
        loss = 0.55 - 0.3 / (1 + np.exp(-(step - at) / 20))
        rows.append(pd.DataFrame({"p": i / 10, "step": step, "clean_loss": loss}))
    return pd.concat(rows)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ({"none": 1000, "a": 700, "b": 800, "c": 900}, "agrees"),
        ({"none": 1000, "a": 950, "b": 1040, "c": 1010}, "beside"),  # the best of three is faster by chance
        ({"none": 1000, "a": 1100, "b": 1200, "c": 1300}, "differs"),
        ({"none": 9999, "a": 900, "b": 1000, "c": 1100}, "agrees"),  # without repetition not in 2,000 steps
        ({"none": 9999, "a": 9999, "b": 9999, "c": 9999}, "beside"),
    ],
)
def test_figure_12_wants_more_than_luck(steps, said):
    (claim,) = fig12.compare(curves(**steps))
    assert claim.verdict == said
    assert (">2000" in claim.ours) == (9999 in steps.values())


def test_cells_with_a_censored_seed_are_left_out_and_counted():
    slow, fast = plateaus(lambda T, d: 2.0 * d), plateaus(lambda T, d: 1.0 * d)
    slow.loc[0, ["status", "plateau_steps"]] = ["censored", np.nan]
    ratio, left_out = cell_ratios(slow, fast)
    assert (len(ratio), left_out) == (8, 1)
    assert np.allclose(ratio, 2.0)


def test_a_law_with_layer_norm_neither_agrees_nor_differs():
    table = pd.concat([plateaus(lambda T, d: d**1.29 * T**0.8, layer_norm=norm, noise=0.02) for norm in (True, False)])
    assert {c.verdict for c in load("fig3-layernorm").compare(table)} == {"beside", "new"}


def test_figure_14_compares_position_and_flag():
    def table(flagged, plain):
        parts = [plateaus(lambda T, d: d**1.3 * T**0.5, feature=True, position="random", noise=0.02)]
        parts.append(plateaus(flagged, feature=True, position="fixed", noise=0.02))
        return pd.concat([*parts, plateaus(plain, feature=False, position="fixed", noise=0.02)])

    def same(T, d):
        return 0.5 * d**1.3 * T**0.5

    assert [c.verdict for c in load("fig14").compare(table(same, same))[-3:]] == ["agrees"] * 3
    other = load("fig14").compare(table(lambda T, d: 2 * same(T, d) * 1.2, lambda T, d: same(T, d) * d**-0.5))
    assert [c.verdict for c in other[-3:]] == ["differs", "agrees", "differs"]
