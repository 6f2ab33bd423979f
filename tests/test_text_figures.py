"""Figures of runs on text: blind seeds, runs that are shared, both events, and verdicts on published laws."""

import math
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from unstuck.config import load_spec
from unstuck.config.run import LONGEST_WAIT
from unstuck.laws.induction import OurRuns, expected_formation
from unstuck.papers.figure import load
from unstuck.papers.reproduce import reproduce
from unstuck.papers.text._published import AOYAMA, EQUAL_TOKENS, MUSAT, ZUCCHET, verdicts
from unstuck.papers.text._runs import ALONE, IN_TEXT
from unstuck.papers.text.laws import EQUAL, FIGURES, between
from unstuck.papers.text.text_fleet import events
from unstuck.runner.budget import satisfies, truncate
from unstuck.runner.cost import predicted_cost
from unstuck.store.result import Result
from unstuck.store.store import Store
from unstuck.training.evaluator import Evaluator
from unstuck.training.loop import Run

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
import fit_induction
import results

NAMES = [*FIGURES, "text-corpora", "text-fleet", "text-layernorm"]
SEEN = {*range(10), 1000}  # of earlier forms of the event, and of pilot runs


def ids(name, **wanted):
    """The ids of a figure's runs that have these settings."""
    specs = [run.spec for run in load(name).runs("cpu")]
    return {s.run_id for s in specs if all(settings(s)[key] == value for key, value in wanted.items())}


def settings(spec):
    return {**vars(spec.task), **vars(spec.model), "batch": spec.train.batch}


# -- which runs


@pytest.mark.parametrize("profile", ["cpu", "paper"])
@pytest.mark.parametrize("name", NAMES)
def test_no_result_rests_on_a_seed_that_was_seen_before(name, profile):
    seeds = {run.spec.seed for run in load(name).runs(profile)}
    assert seeds
    assert not seeds & SEEN


def test_runs_with_the_same_settings_are_the_same_runs():
    usual = ids("context-at-equal-tokens", context=64, batch=32, lag="random")
    assert len(usual) == 5
    assert ids("text-layernorm", layer_norm=True, mlp=False) == usual
    fleet = ids("text-fleet", burst=0.25, layers=2)
    assert len(fleet) == 30
    assert usual < fleet
    assert ids("text-repetition", burst=0.25) < usual
    assert ids("text-size", heads=4, width=128) < usual
    assert ids("text-law", context=64, batch=32) == ids("text-repetition", burst=0.5)
    natural = ids("text-repetition", burst=0.0)
    assert ids("text-natural", context=64, batch=32) < natural
    assert ids("text-corpora", corpus="sotu") == natural


def test_where_context_varies_runs_wait_for_both_events():
    for name in ("context-at-equal-tokens", "text-law"):
        assert {run.spec.train.until for run in load(name).runs("cpu")} == {"copy_advantage_in_text"}


# -- going on until copying in text


def text_run(words, monkeypatch, copying, in_text):
    """A run whose copying advantages are functions of the step."""
    small = ["task.vocabulary=256", "task.context=32", "model.width=16", "model.heads=2", "train.batch=2"]
    spec = load_spec("text", [*small, "train.probe_every=5", "train.max_steps=200", *words])
    run = Run(spec)

    def measures(self, *, full):
        found = {"test_loss": 1.0, "clean_loss": 1.0, "like_loss": 1.0, "evaluated": 64}
        return found, {"copy_advantage": copying(run.step), "copy_advantage_in_text": in_text(run.step)}

    monkeypatch.setattr(Evaluator, "all", measures)
    return run


def test_a_run_goes_on_until_copying_in_text_has_come(monkeypatch):
    def result(*words):
        return text_run(words, monkeypatch, lambda s: s / 10, lambda s: s / 16).advance()

    plain, both = result(), result("train.until=copy_advantage_in_text")
    assert plain.crossings == both.crossings == {"1": 10.0, "2": 20.0}
    assert plain.steps == 25  # two measurements
    assert plain.crossings_in_text == {"1": 16.0}
    assert both.crossings_in_text == {"1": 16.0, "2": 32.0}
    assert both.steps == 40
    assert (both.status, both.plateau_steps) == ("emerged", 20.0)


def test_it_waits_no_longer_than_as_long_again(monkeypatch):
    run = text_run(["train.until=copy_advantage_in_text"], monkeypatch, lambda s: s / 10, lambda s: 1.5 * (s > 7))
    result = run.advance()
    assert (result.status, result.steps) == ("emerged", LONGEST_WAIT * 20)
    assert set(result.crossings_in_text) == {"1"}


def test_it_goes_on_from_a_checkpoint_with_what_it_had_seen(monkeypatch):
    words = ["train.until=copy_advantage_in_text"]
    run = text_run(words, monkeypatch, lambda s: s / 10, lambda s: s / 16)
    run.advance(stop=lambda: run.step >= 28)
    again = Run(run.spec, run.checkpoint())
    monkeypatch.setattr(
        Evaluator,
        "all",
        lambda self, *, full: (
            {"test_loss": 1.0, "evaluated": 64},
            {"copy_advantage": again.step / 10, "copy_advantage_in_text": again.step / 16},
        ),
    )
    result = again.advance()
    assert (result.resumed_from, result.steps) == (28, 40)
    assert result.crossings_in_text == {"1": 16.0, "2": 32.0}


def test_a_stored_run_that_did_not_wait_does_not_answer():
    spec = load_spec("text", ["train.until=copy_advantage_in_text"])
    plain = load_spec("text", [])
    common = {"status": "emerged", "plateau_steps": 1000.0, "threshold": 2.0, "crossings": {"1": 900.0, "2": 1000.0}}
    common |= {"watched": [1.0, 2.0], "final": {}, "seconds": 1.0}
    short = Result(**common, steps=1100, crossings_in_text={"1": 1050.0})
    assert satisfies(short, plain)
    assert not satisfies(short, spec)
    reached = Result(**common, steps=1300, crossings_in_text={"1": 1050.0, "2": 1250.0})
    waited = Result(**common, steps=2000, crossings_in_text={"1": 1050.0})
    older = Result(**common, steps=1500)
    assert [satisfies(r, spec) for r in (reached, waited, older)] == [True, True, False]
    assert reached.crossing_columns == {
        "crossing_1": 900.0,
        "crossing_2": 1000.0,
        "crossing_in_text_1": 1050.0,
        "crossing_in_text_2": 1250.0,
    }
    assert "crossings_in_text" not in older.model_dump()
    shorter = truncate(reached, load_spec("text", ["train.max_steps=1200"]))
    assert shorter.crossings_in_text == {"1": 1050.0}
    assert shorter.status == "emerged"


def test_the_larger_of_two_budgets_waits():
    spec, plain = load_spec("text", ["train.until=copy_advantage_in_text"]), load_spec("text", [])
    assert spec.run_id == plain.run_id
    assert plain.with_budget_of(spec).train.until == spec.with_budget_of(plain).train.until == spec.train.until
    burst = ["task.burst=0.25"]
    assert (
        predicted_cost(load_spec("text", [*burst, "train.until=copy_advantage_in_text"])).steps
        > predicted_cost(load_spec("text", burst)).steps
    )


# -- both events in the figures


def equal_table(alone=0.6, in_text=1.4, spread=0.02):
    """Runs of context-at-equal-tokens by a made-up law for each event; copying in text is never reached at a fixed
    distance."""
    rng = np.random.default_rng(0)
    rows = []
    for lag in ("random", "half"):
        for context, batch in EQUAL:
            for seed in range(10, 15):
                first, second = (
                    1000 * (context / 32) ** x * math.exp(spread * rng.standard_normal()) for x in (alone, in_text)
                )
                found = {"crossing_2": first, "crossing_in_text_2": second if lag == "random" else math.nan}
                rows.append({"run_id": f"{lag}{context}{seed}", "lag": lag, "context": context, "batch": batch} | found)
                rows[-1] |= {"seed": seed, "burst": 0.25, "status": "emerged", "plateau_steps": first}
                rows[-1] |= {"steps": max(2 * first, second), "thresholds": "[1.0, 2.0]", "wanted": 30}
    return pd.DataFrame(rows)


def test_each_event_has_its_exponent_and_its_verdicts():
    figure = FIGURES["context-at-equal-tokens"]
    table = equal_table()
    laws = figure.laws(table)
    assert laws[ALONE].exponents["context"] == pytest.approx(0.6, abs=0.05)
    assert laws[IN_TEXT].exponents["context"] == pytest.approx(1.4, abs=0.05)
    claims = figure.compare(table)
    judged = {(event, p.who): None for event in (ALONE, IN_TEXT) for p in (EQUAL_TOKENS, ZUCCHET, MUSAT)}
    for event, who in judged:
        (judged[event, who],) = [
            c.agrees for c in claims if event.name in c.quantity and c.quantity.endswith(f"beside {who}")
        ]
    assert set(judged.values()) == {False}  # 0, 0.8 to 1 and 2 are outside both intervals
    fixed = [c for c in claims if c.quantity.startswith("exponent of") and "half of the context" in c.quantity]
    assert [c.verdict for c in fixed] == ["new", "new"]
    assert float(str(fixed[0].ours).split()[0]) == pytest.approx(0.6, abs=0.05)
    assert len({c.quantity for c in claims}) == len(claims)
    ends = {c.quantity: str(c.ours) for c in claims if c.quantity.startswith("exponent from the shortest")}
    assert len(ends) == 4
    alone, in_text = (text for quantity, text in ends.items() if quantity.endswith("a random distance"))
    assert float(alone.split()[0]) == pytest.approx(0.6, abs=0.05)
    assert float(in_text.split()[0]) == pytest.approx(1.4, abs=0.05)
    assert len(figure.draw(table).axes) == 2


def test_the_exponent_between_the_ends_covers_the_truth_as_often_as_it_says():
    """95% of made-up grids, whose seeds spread by a quarter; nothing where a run at an end did not form."""
    covered = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        table = pd.DataFrame([(c, s) for c, _ in EQUAL for s in range(5)], columns=["context", "seed"])
        steps = 1000 * (table["context"] / 32) ** 0.9 * np.exp(0.25 * rng.standard_normal(len(table)))
        table = table.assign(plateau_steps=steps, status="emerged")
        low, high = map(float, between(table).split("(")[1].rstrip(")").split(" to "))
        covered += low <= 0.9 <= high
    assert 0.9 < covered / 200 < 0.99
    table.loc[0, "status"] = "censored"
    assert "(" not in between(table)


def test_what_is_not_reached_by_the_last_row_is_censored():
    table = equal_table()
    late = table["context"] == 128
    table.loc[late, "crossing_in_text_2"] = math.nan
    (law,) = [law for event, law in FIGURES["context-at-equal-tokens"].laws(table).items() if event is IN_TEXT]
    fitted = table["lag"] == "random"
    assert (law.n, law.censored) == ((fitted & ~late).sum(), (fitted & late).sum()) == (20, 5)
    reached = table["crossing_in_text_2"].notna()
    assert (IN_TEXT.of(table)["status"] == "emerged").tolist() == reached.tolist()
    assert ALONE.of(table) is table
    table["status"] = "diverged"
    assert set(IN_TEXT.of(table)["status"]) == {"diverged"}


def test_a_law_of_batch_and_context_is_judged_for_both_events():
    rng = np.random.default_rng(0)
    rows = [(b, c, s) for b in (8, 32, 128) for c in (32, 64, 128) for s in (10, 11, 12)]
    table = pd.DataFrame(rows, columns=["batch", "context", "seed"])
    law = 9e4 * (table["batch"] * table["context"]) ** -0.5 * np.exp(0.03 * rng.standard_normal(len(table)))
    table = table.assign(run_id=[str(i) for i in range(len(table))], status="emerged", plateau_steps=law, steps=2 * law)
    table = table.assign(crossing_in_text_2=law * (table["context"] / 32) ** 0.5, burst=0.5, wanted=27)
    claims = {c.quantity: c.agrees for c in FIGURES["text-law"].compare(table)}
    aoyama = [agrees for quantity, agrees in claims.items() if quantity.endswith(AOYAMA.who)]
    assert aoyama == [True, True, True, False]  # batch and context alone; batch and context in text
    assert len(FIGURES["text-law"].draw(table).axes) == 2


def test_a_wide_interval_gives_no_verdict():
    table = equal_table(spread=1.5)
    law = FIGURES["context-at-equal-tokens"].laws(table)[ALONE]
    low, high = law.intervals["context"]
    assert high - low > 0.4
    inside = [p for p in (EQUAL_TOKENS, ZUCCHET, MUSAT) if low <= p.high and high >= p.low]
    assert inside
    assert {c.agrees for c in verdicts(law, "context", inside, "", ALONE)} == {None}


# -- the fleet's rules


def fleet_run(run_id, kind, previous, score, event=math.inf, last=2000):
    steps = np.arange(0.0, last + 1, 50)
    table = pd.DataFrame({"step": steps, "previous_token": previous(steps), "in_context_score": score(steps)})
    formed = math.isfinite(event)
    table = table.assign(run_id=run_id, kind=kind, seed=10, copy_advantage=0.0, induction=0.0, wanted=4)
    return table.assign(status="emerged" if formed else "censored", plateau_steps=event if formed else math.nan)


def test_the_combined_rule_asks_for_a_gain_in_context_too():
    """A head that attends to the previous token where the context is worth nothing: the bare rule fires, not this."""

    def rises(s):
        return 0.3 + np.maximum(s - 900, 0) / 1000

    useful = [fleet_run(f"p{i}", "repeating text", lambda s, i=i: s / (5000 + i), rises, 1500 + i) for i in range(3)]
    needed = fleet_run("t", "trigram language", lambda s: s / 5000, lambda s: 0 * s + 0.3)
    table = pd.concat([*useful, needed])
    found = events(table).set_index("run_id")
    assert found["alarm"].tolist() == pytest.approx([500.0, 500.1, 500.2, 500.0])
    assert found.loc["t", "both"] == math.inf
    for run in ("p0", "p1", "p2"):
        assert 900 < found.loc[run, "both"] < 1500
    claims = {c.quantity: (c.ours, c.paper) for c in load("text-fleet").compare(table)}
    trigram = [value for quantity, value in claims.items() if quantity.startswith("trigram language: runs with the")]
    assert trigram[:2] == [("1 of 1", "10 of 10"), ("0 of 1", "none of 10")]
    assert claims["runs in which the combined sign came before formation"] == ("3 of 3", None)
    assert claims["runs in which the sign came before formation"] == ("3 of 3", "all")


def test_both_must_hold_at_the_same_row():
    never_together = fleet_run(
        "x", "one layer", lambda s: np.where(s < 600, 0.5, 0.0), lambda s: np.where(s < 1000, 0.0, 1.0)
    )
    found = events(never_together).iloc[0]
    assert found["alarm"] == 0.0
    assert found["both"] == math.inf


# -- corpora


def corpora_table(steps):
    """Three runs for each corpus; None: not formed."""
    rows = []
    for i, (corpus, middle) in enumerate(steps.items()):
        for seed in (10, 11, 12):
            formed = middle is not None
            rows.append({"corpus": corpus, "seed": seed, "run_id": f"{corpus}{seed}", "wanted": 12})
            rows[-1] |= {"status": "emerged" if formed else "censored", "steps": 20_000}
            rows[-1] |= {"plateau_steps": middle * (1 + 0.01 * seed) if formed else math.nan}
            rows[-1] |= {"equivalent_burst": 0.01 * 2**i, "advantage": 0.02 * 2**i, "predictable": 0.1 - 0.01 * i}
            rows[-1] |= {"repeat_rate": 0.2, "reliability": 0.3, "expected_steps": 9e3, "expected_by": "published"}
    return pd.DataFrame(rows)


def test_corpora_are_ranked_by_what_they_offer():
    figure = load("text-corpora")
    names = figure.CORPORA
    table = corpora_table(dict(zip(names, (9000, 7000, 3000, 800), strict=True)))
    ranks = [str(c.ours) for c in figure.compare(table) if c.quantity.startswith("rank correlation")]
    assert [float(text.split()[0]) for text in ranks] == [-1.0, 1.0]
    late = corpora_table(dict(zip(names, (None, None, 3000, 800), strict=True)))
    tied = [str(c.ours) for c in figure.compare(late) if c.quantity.startswith("rank correlation")]
    assert float(tied[0].split()[0]) == pytest.approx(-0.9487, abs=0.006)  # two of four tie
    assert figure.by_corpus(late)["formed"].to_dict() == dict(zip(names, (0, 0, 3, 3), strict=True))
    none = corpora_table(dict.fromkeys(names))
    assert not any("(" in str(c.ours) for c in figure.compare(none) if c.quantity.startswith("rank correlation"))
    assert len(figure.draw(late).axes) == 1


def test_the_table_of_corpora_has_what_each_text_offers(tmp_path):
    done = SimpleNamespace(runs=[0, 0], results=corpora_table({"font-metrics": 500}).iloc[:1, :7])
    done.results = done.results.assign(vocabulary=256, context=64, batch=32)
    (row,) = load("text-corpora").data(done).to_dict("records")
    assert row["expected_by"] in ("ours", "published")
    assert 0 < row["equivalent_burst"] < 1
    assert row["predictable"] == pytest.approx(row["repeat_rate"] * row["reliability"])
    assert load("text-corpora").data(SimpleNamespace(runs=[], results=pd.DataFrame())).empty


# -- from a store to tables, claims, pictures and the law, with made-up runs

ALONE_LAW = {"batch": -0.4, "context": 0.8, "burst": -0.6}
LATER = 1.3  # copying in text over copying alone


def made_up(store, runs):
    """Finished runs that follow a law, with curves of what figures read. Without repetition none forms."""
    rng = np.random.default_rng(0)
    for spec in {run.spec.run_id: run.spec for run in runs}.values():
        size = {"batch": spec.train.batch, "context": spec.task.context, "burst": spec.task.burst}
        formed = spec.task.burst > 0 and spec.model.layers > 1
        step = 200 * math.exp(0.05 * rng.standard_normal())
        for name, power in ALONE_LAW.items() if formed else ():
            step *= (size[name] / {"batch": 32, "context": 64, "burst": 0.25}[name]) ** power
        second = LATER * step
        last = max(spec.train.last_step(step, until_reached=True), second + 20, 6000.0) if formed else 8000.0
        result = {"status": "emerged" if formed else "censored", "threshold": 2.0, "watched": [1.0, 2.0]}
        result |= {"plateau_steps": step if formed else None, "seconds": 1.0, "final": {}}
        result |= {"steps": int(last) if formed else spec.train.max_steps}
        result |= {"crossings": {"1": 0.9 * step, "2": step} if formed else {}}
        result |= {"crossings_in_text": {"1": 0.9 * second, "2": second} if formed else {}}
        steps = np.linspace(0, result["steps"], 60)
        curve = {"step": steps, "clean_loss": 3.0, "like_loss": 3.0, "in_context_score": steps / step / 10}
        for layer in range(spec.model.layers):
            curve |= {f"previous_token_{layer}_0": steps / step / 5, f"induction_{layer}_0": steps / step / 5}
        curve["copy_advantage"] = 2 * steps / step
        directory = store.run(spec.run_id)
        directory.path.mkdir(parents=True, exist_ok=True)
        directory.write_spec(spec)
        directory.write_status({"state": "finished", "step": result["steps"], "result": result})
        directory.write_curve(pd.DataFrame(curve))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Every figure on text from made-up runs, and the law that follows."""
    path = tmp_path_factory.mktemp("results")
    store = Store(path / "store")
    names = [name for name in NAMES if name != "text-corpora"]
    made_up(store, [run for name in names for run in load(name).runs("cpu")])
    return path, {name: reproduce(name, "cpu", path, store=store.path, run=False) for name in names}


def test_every_figure_can_be_written_once_its_runs_are_there(written):
    path, results = written
    for name, result in results.items():
        assert result["runs"]["finished"] == result["runs"]["wanted"] > 0
        assert (path / f"{name}.png").stat().st_size > 5000
    equal = results["context-at-equal-tokens"]["ours"]
    both = [text for quantity, text in equal.items() if quantity.startswith("exponent of context in the steps")]
    assert len(both) == 6
    # Equal tokens a step: batch falls as context grows.
    for text in both:
        assert float(text.split()[0]) == pytest.approx(ALONE_LAW["context"] - ALONE_LAW["batch"], abs=0.1)
    assert set(results["text-law"]["paper"].values()) >= {"-0.5", "2", "0.8 to 1"}


def test_our_law_follows_from_the_figures_tables(written, monkeypatch, tmp_path):
    path, _ = written
    file = tmp_path / "law.json"
    monkeypatch.setattr(fit_induction, "FILE", file)
    tables = [path / "text-law.csv", path / "text-repetition.csv", path / "not-there.csv"]
    assert fit_induction.refit(tables)
    ours = OurRuns.read(file)
    law = ours.laws["repeated"]
    assert law.exponents == pytest.approx(ALONE_LAW, abs=0.05)
    assert law.ranges == {"batch": [8, 128], "context": [32, 128], "burst": [0.02, 0.5]}
    assert law.runs == 27 + 15 - 3  # text-law and text-repetition share three runs
    assert "natural" not in ours.laws
    assert not fit_induction.refit(tables)  # nothing is new
    steps = 200 * (0.1 / 0.25) ** ALONE_LAW["burst"]
    assert expected_formation(32, 64, 0.1, ours).steps == pytest.approx(steps, rel=0.05)
    assert not expected_formation(32, 64, 0.0, ours).depends_on_text
    outside = expected_formation(32, 64, 0.01, ours)
    assert outside.depends_on_text
    assert outside.note
    assert not fit_induction.refit([path / "not-there.csv"])


def test_make_results_fits_the_law_and_rewrites_what_rests_on_it(written, monkeypatch, tmp_path):
    path, _ = written
    figures = {name: load(name).runs("cpu") for name in ("text-repetition", "text-corpora")}
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr(results, "in_one_go_lines", list)
    monkeypatch.setattr(fit_induction, "FILE", tmp_path / "law.json")
    monkeypatch.setattr(fit_induction.refit, "__defaults__", ((tmp_path / "text-repetition.csv",),))
    made = []
    monkeypatch.setattr(results, "left", lambda runs, store: [])
    monkeypatch.setattr(results, "reproduce", lambda name, *_, **__: made.append(name))
    shutil.copy(path / "text-repetition.csv", tmp_path)
    results.write_results(figures, Store(tmp_path / "store"), None)
    assert made == ["text-repetition", "text-corpora", "text-corpora"]
    assert OurRuns.read(tmp_path / "law.json").laws["repeated"].exponents.keys() == {"burst"}
    made.clear()
    results.write_results(figures, Store(tmp_path / "store"), None)
    assert made == ["text-repetition", "text-corpora"]  # the law is the same
