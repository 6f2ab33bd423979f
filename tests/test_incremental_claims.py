"""What the figures of paper 2 say of runs, on made-up runs and on our null controls: what must not be said of them."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from unstuck.papers.incremental import fig1, fig4, fig5, fig10
from unstuck.papers.incremental._climb import ladder_claims, passing_claims

RESULTS = Path(__file__).parent.parent / "results"
STEPS = np.arange(0, 801, 10.0)


def away(at, top=3.0, low=0.1, width=120.0):
    """KL to a rung that the run comes near at a step, and leaves again; never further than `top`."""
    return np.minimum(top, low + (top - low) * ((STEPS - at) / width).clip(-9, 9) ** 2 / 4)


def run(minima=(100, 300, 800), heads=None, main="near", name="a"):
    """A run that comes nearest to rungs 1, 2, 3 at these steps, and whose heads attend the groups as `heads` says: a
    function of the fraction of the run that gives (heads, groups)."""
    kl = {f"kl_{i + 1}": away(at) for i, at in enumerate(minima)}
    if heads is None:
        heads = parting
    shares = np.array([heads(t / STEPS[-1]) for t in STEPS])  # (rows, heads, groups)
    groups = {f"group{g + 1}_0_{h}": 0.9 * shares[:, h, g] for h in range(3) for g in range(3)}
    settings = {"run_id": name, "importance": main, "step": STEPS, "specialisation": 0.0}
    return pd.DataFrame({**settings, **kl, **groups})


def parting(t, first=0):
    """All heads turn to one group, then each to its own."""
    together = np.full((3, 3), 0.2)
    together[:, first] = 0.6
    start, end = np.full((3, 3), 1 / 3), 0.95 * np.eye(3) + 0.025 * (1 - np.eye(3))
    return start + (together - start) * min(1, 20 * t) if t < 0.3 else end


def verdicts(table, **options):
    found = {c.quantity.split(" at ")[0].split(",")[0]: c for c in ladder_claims(table, **options)}
    return {
        "order": found["nearest to rungs 1"].verdict,
        "compete": next(c.verdict for c in ladder_claims(table) if c.quantity.endswith("7.5% of the run")),
        "attend": found["attention on the most important group"].verdict,
        "end": ladder_claims(table, **options)[-2].verdict,
    }


def test_a_run_as_the_paper_has_it_agrees():
    assert set(verdicts(run()).values()) == {"agrees"}
    far = run(heads=lambda t: parting(t, first=2), main="far")
    assert verdicts(far)["attend"] == "agrees"


def test_heads_that_first_attend_another_group_differ():
    assert verdicts(run(heads=lambda t: parting(t, first=1)))["attend"] == "differs"


def test_of_heads_that_have_not_moved_nothing_is_said():
    uniform = run(heads=lambda t: np.full((3, 3), 1 / 3))
    found = verdicts(uniform)
    assert (found["compete"], found["attend"]) == ("beside", "beside")
    assert found["end"] == "differs"  # on the last rung, and never apart


def test_heads_that_are_apart_from_the_start_do_not_compete():
    assert verdicts(run(heads=lambda t: 0.95 * np.eye(3) + 0.025 * (1 - np.eye(3))))["compete"] == "differs"


def test_rungs_in_another_order_differ_and_a_run_that_is_not_there_yet_says_nothing():
    assert verdicts(run(minima=(300, 100, 800)))["order"] == "differs"
    early = run()
    early = early[early["step"] <= 400]
    assert {verdicts(early)[k] for k in ("order", "end")} == {"beside"}
    assert "not reached" in ladder_claims(early)[1].ours


def test_a_rung_that_was_never_approached_is_not_in_order():
    table = run()
    table["kl_1"] = 3.0 - 0.2 * (STEPS == 100)
    assert verdicts(table)["order"] == "differs"


def test_groups_that_overlap_cannot_be_told_apart():
    half = run(heads=lambda t: np.full((3, 3), 0.2) + 0.4 * np.eye(3))
    assert verdicts(half)["end"] == "differs"
    assert verdicts(half, apart=False)["end"] == "beside"


def test_one_seed_that_differs_decides():
    both = pd.concat([run(), run(minima=(300, 100, 800), name="b")])
    assert verdicts(both)["order"] == "differs"


@pytest.fixture(scope="module")
def figure_4():
    return pd.read_csv(RESULTS / "incremental-fig4.csv")


def test_our_null_controls_do_not_agree(figure_4):
    """Queries that start at 0 never leave the first rung; with m = 1 no group is more important than another."""
    zero = figure_4[figure_4["query"].astype(str).isin(["0.0", "0"])]
    equal = figure_4[figure_4["m"] == 1]
    assert zero["run_id"].nunique() == equal["run_id"].nunique() == 1
    assert ladder_claims(zero)[0].verdict == "beside"
    assert ladder_claims(equal)[0].verdict == "differs"


def test_figure_4_counts_what_never_happened(figure_4):
    claims = {c.quantity: c for c in fig4.compare(figure_4)}
    first = "cooperation begins at step, by start of the queries"
    assert claims[first].verdict == "agrees"
    never = figure_4.copy()
    largest = never["query"].astype(str) == "0.001"
    never.loc[largest, "specialisation"] = 0.0
    assert fig4.compare(never)[0].verdict == "beside"  # from the largest start nothing is known
    never = figure_4.copy()
    never.loc[never["query"].astype(str) == "1e-06", "specialisation"] = 0.0
    assert fig4.compare(never)[0].verdict == "differs"  # never is later than the smallest start's
    without = figure_4[~figure_4["query"].astype(str).isin(["0.0", "0"])]
    assert "queries that start at exactly 0 never specialise" not in {c.quantity for c in fig4.compare(without)}
    one = figure_4[(figure_4["query"].astype(str) != "xavier") | (figure_4["m"] == 1.7)]
    stays = {c.quantity: c for c in fig4.compare(one)}["steps for which rung 2 is the nearest"]
    assert stays.verdict == "beside"


def test_figure_5_knows_models_that_are_near_no_rung():
    table = pd.read_csv(RESULTS / "incremental-fig5.csv")
    claim = fig5.compare(table)[0]
    assert claim.verdict == "agrees"
    assert claim.ours.startswith("100: 0 (KL 2.4")
    same = table[table["sequences"] == 9000]
    assert fig5.compare(same)[0].verdict == "beside"
    upside_down = table.assign(sequences=10_000 - table["sequences"])
    assert fig5.compare(upside_down)[0].verdict == "differs"


def test_figure_10_orders_patterns_by_their_own_loss():
    t = np.geomspace(1, 1e5, 200)
    settings = {"q": 1, "t": t, **{f"s_{k}_{j}": float(k == j) for k in range(3) for j in range(3)}}
    settings |= {f"stage_{j}": float(10**j) for j in (1, 2, 3)}

    def said(times):
        losses = {f"loss_{j}": 1 / (1 + (t / at) ** 4) for j, at in enumerate(times)}
        table = pd.concat([pd.DataFrame({**settings, **losses}).assign(q=q) for q in (1, 2)])
        return {c.quantity: c for c in fig10.compare(table)}["patterns learnt at, strongest first, q = 1"]

    assert said((10, 100, 1000)).verdict == "agrees"
    assert said((100, 10, 1000)).verdict == "differs"
    assert said((10, 12, 1000)).verdict == "differs"  # together
    assert said((10, 100, 1e9)).ours.endswith("never")
    assert said((10, 100, 1e9)).verdict == "differs"


def test_models_of_restricted_context_are_passed_one_after_the_other():
    def table(*minima):
        return pd.DataFrame({"step": STEPS, **{f"context_{4 * (i + 1)}": away(at) for i, at in enumerate(minima)}})

    assert passing_claims(table(100, 300, 800))[0].verdict == "agrees"
    assert passing_claims(table(300, 100, 800))[0].verdict == "differs"
    assert passing_claims(table(800, 800, 800))[0].verdict == "differs"
    passed = table(100, 300, 800)
    passed["context_8"] += 4.0
    (claim,) = passing_claims(passed)
    assert (claim.verdict, claim.note) == ("beside", "never the nearest: context 8")


def test_the_reference_stands_beside_runs_that_are_long_enough():
    table = pd.read_csv(RESULTS / "incremental-fig1.csv")
    assert [c.verdict for c in fig1.compare(table)[-3:]] == ["beside"] * 3
    assert len(fig1.compare(table[table["step"] < 300])) == len(fig1.compare(table)) - 3
    assert not math.isnan(float(fig1.compare(table)[-2].paper))
