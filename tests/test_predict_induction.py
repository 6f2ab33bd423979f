"""`unstuck predict induction`: published numbers, ratios from a measured run, and the law of our own runs."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from refusals import names, refused_command
from unstuck.cli import SUBCOMMANDS, load, main
from unstuck.laws import fit_power_law, induction
from unstuck.laws.induction import OurRuns, Setting, predictions

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
import fit_induction

CONSTANT, BATCH, CONTEXT, BURST = 12.0, -0.3, 0.9, -0.6


@pytest.fixture
def unmeasured(monkeypatch, tmp_path):
    monkeypatch.setattr(induction, "FILE", tmp_path / "none.json")


def table_of_runs(spread=0.0, natural=4):
    """Runs of a made-up law on a grid, with `natural` runs without repetition, none of which formed."""
    rng = np.random.default_rng(0)
    rows = [(b, c, r, s) for b in (8, 16, 32) for c in (32, 64, 128) for r in (0.1, 0.25, 0.5) for s in (0, 1)]
    table = pd.DataFrame(rows, columns=["batch", "context", "burst", "seed"])
    law = CONSTANT * table.batch**BATCH * table.context**CONTEXT * table.burst**BURST
    table["crossing_2"] = law * np.exp(spread * rng.standard_normal(len(table)))
    late = pd.DataFrame({"batch": 32, "context": 64, "burst": 0.0, "seed": range(natural), "crossing_2": math.nan})
    table = pd.concat([table, late], ignore_index=True)
    formed = table["crossing_2"].notna()
    return table.assign(
        run_id=[f"{i:016x}" for i in range(len(table))],
        thresholds="[1.0, 2.0]",
        status=np.where(formed, "emerged", "censored"),
        plateau_steps=table["crossing_2"],
        steps=table["crossing_2"].fillna(6000.0),
        **{"corpus": "sotu", "vocabulary": 1024, "layers": 2, "heads": 4, "lr": 2e-3},
    )


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """A law file made by the tool from runs without any spread."""
    return written(monkeypatch, tmp_path, table_of_runs())


def written(monkeypatch, tmp_path, *tables):
    files = [tmp_path / f"{i}.csv" for i in range(len(tables))]
    for file, table in zip(files, tables, strict=True):
        table.to_csv(file, index=False)
    path = tmp_path / "law.json"
    monkeypatch.setattr(induction, "FILE", path)
    monkeypatch.setattr(fit_induction, "FILE", path)
    monkeypatch.setattr(sys, "argv", ["fit_induction.py", *map(str, files)])
    assert fit_induction.main() == 0
    return path


def answer(capsys, *words):
    capsys.readouterr()
    code = main(["predict", "induction", *map(str, words), "--json"])
    out, err = capsys.readouterr()
    assert (code, err, out.count("\n")) == (0, "", 1)
    return json.loads(out)


def by_name(found, name):
    (law,) = [law for law in found["laws"] if law["law"].startswith(name)]
    return law


# -- published laws


@pytest.mark.parametrize(("batch", "context", "steps"), [(16, 128, 11_100), (1, 4, 250_000), (512, 1024, 692)])
def test_aoyamas_law_gives_the_published_number(capsys, unmeasured, batch, context, steps):
    law = by_name(answer(capsys, "--batch", batch, "--context", context), "Aoyama")
    assert law["steps"] == pytest.approx(steps, rel=0.005)
    assert law["tokens"] == pytest.approx(10**5.7 * math.sqrt(batch * context))
    assert law["applies"]


def test_it_is_stated_for_natural_text_only(capsys, unmeasured):
    law = by_name(answer(capsys, "--batch", 16, "--context", 128, "--burst", 0.1), "Aoyama")
    assert not law["applies"]
    assert law["steps"] == pytest.approx(11_075, rel=0.001)


def test_without_a_measured_run_the_others_give_ratios(capsys, unmeasured):
    found = answer(capsys, "--batch", 32, "--context", 256)
    musat, zucchet, ours = (by_name(found, name) for name in ("Musat", "Zucchet", "ours"))
    assert (musat["ratio"], musat["steps"], musat["anchored"]) == (16, None, False)
    assert zucchet["ratio"] == pytest.approx(4**0.8)
    assert (ours["steps"], ours["tokens"], ours["interval"], ours["note"]) == (None, None, None, "not measured yet")


def test_with_a_measured_run_the_ratios_start_from_it(capsys, measured):
    found = answer(capsys, "--batch", 16, "--context", 512, "--burst", 0.25)
    start = CONSTANT * 16**BATCH * 64**CONTEXT * 0.25**BURST
    musat, zucchet = by_name(found, "Musat"), by_name(found, "Zucchet")
    assert musat["anchored"]
    assert zucchet["anchored"]
    assert names(musat["reference"], "batch 16", "context 64", "burst 0.25")
    assert musat["steps"] == pytest.approx(start * 64)
    assert musat["tokens"] == pytest.approx(start * 64 * 16 * 512)
    assert zucchet["steps"] == pytest.approx(start * 8**0.8)
    assert zucchet["interval"] == pytest.approx([start * 8**0.8, start * 8])


def test_repetition_shortens_the_plateau_of_paper_1_by_its_exponents(measured):
    ours = OurRuns.read(measured)
    zucchet = predictions(Setting(32, 64, 1.0), ours)[2]
    start = CONSTANT * 32**BATCH * 64**CONTEXT * 0.5**BURST
    assert zucchet.steps == pytest.approx(start * 2**-0.8)
    assert zucchet.interval == pytest.approx((start / 2, start / math.sqrt(2)))


def test_a_law_says_what_it_does_not_cover(capsys, measured):
    found = answer(capsys, "--batch", 64, "--context", 64, "--burst", 1)
    assert names(by_name(found, "Musat")["note"], "batch 64", 32, "burst 1", 0.5)
    assert not names(by_name(found, "Zucchet")["note"], "burst 1")


# -- ours


def test_ours_recovers_the_law_that_the_runs_were_made_with(capsys, measured):
    for batch, context, burst in [(16, 64, 0.25), (8, 100, 0.3)]:
        ours = by_name(answer(capsys, "--batch", batch, "--context", context, "--burst", burst), "ours")
        steps = CONSTANT * batch**BATCH * context**CONTEXT * burst**BURST
        assert ours["steps"] == pytest.approx(steps, rel=1e-3)
        assert ours["tokens"] == pytest.approx(steps * batch * context, rel=1e-3)
        assert ours["interval"] == pytest.approx([steps, steps], rel=0.01)
        assert ours["applies"]


def test_its_interval_is_that_of_the_fitted_power_law(monkeypatch, tmp_path, capsys):
    table = table_of_runs(spread=0.3)
    table.loc[table["plateau_steps"] > 1500, ["plateau_steps", "crossing_2"]] = math.nan
    table.loc[table["plateau_steps"].isna(), ["status", "steps"]] = ["censored", 1500.0]
    written(monkeypatch, tmp_path, table)
    law = fit_power_law(table[table["burst"] > 0], "batch + context + burst")
    assert law.used > 0
    for batch, context, burst in [(16, 64, 0.25), (256, 512, 0.05)]:
        expected = law.predict_interval({"batch": batch, "context": context, "burst": burst}, 0.9).iloc[0]
        ours = by_name(answer(capsys, "--batch", batch, "--context", context, "--burst", burst), "ours")
        assert ours["steps"] == pytest.approx(expected["plateau"])
        assert ours["interval"] == pytest.approx([expected["low"], expected["high"]])


def test_outside_the_measured_grid_it_says_so(capsys, measured):
    ours = by_name(answer(capsys, "--batch", 64, "--context", 64, "--burst", 0.25), "ours")
    assert not ours["applies"]
    assert names(ours["note"], "batch 64", 8, 32)
    assert not names(ours["note"], "context 64")


def test_without_a_law_of_natural_text_it_says_what_was_measured(capsys, measured):
    ours = by_name(answer(capsys, "--batch", 32, "--context", 64), "ours")
    assert (ours["steps"], ours["applies"]) == (None, False)
    assert names(ours["note"], "0 of 4", "6,000")


def test_runs_in_both_tables_count_once_and_those_of_another_setting_do_not(monkeypatch, tmp_path):
    table = table_of_runs()
    other = table.assign(run_id=[f"other {i}" for i in range(len(table))], lr=1e-3, crossing_2=1.0)[:10]
    law = OurRuns.read(written(monkeypatch, tmp_path, table, table[:20], other)).laws["repeated"]
    assert (law.runs, law.censored) == (54, 0)
    assert law.constant == pytest.approx(CONSTANT, rel=1e-3)
    assert law.exponents == pytest.approx({"batch": BATCH, "context": CONTEXT, "burst": BURST}, abs=1e-3)


def test_a_size_is_known_if_half_of_its_runs_formed(monkeypatch, tmp_path):
    table = table_of_runs()
    one = (table["batch"] == 8) & (table["context"] == 32) & (table["burst"] == 0.1)
    table.loc[one & (table["seed"] == 1), ["status", "crossing_2", "plateau_steps"]] = ["censored", math.nan, math.nan]
    cells = OurRuns.read(written(monkeypatch, tmp_path, table)).cells
    assert len(cells) == 28
    (cell,) = [c for c in cells if (c.batch, c.context, c.burst) == (8, 32, 0.1)]
    assert (cell.runs, cell.formed, cell.steps) == (2, 1, None)


# -- the command


def test_json_has_the_contracts_keys(capsys, measured):
    found = answer(capsys, "--batch", 32, "--context", 128, "--burst", 0.1)
    keys = {"law", "source", "tokens", "steps", "interval", "applies", "note", "anchored"}
    assert [keys - law.keys() for law in found["laws"]] == [set()] * 4
    assert (found["batch"], found["context"], found["burst"]) == (32, 128, 0.1)


@pytest.mark.parametrize("burst", [0, 0.1])
def test_in_words_there_is_one_line_a_law(capsys, measured, burst):
    assert main(["predict", "induction", "--batch", "16", "--context", "128", "--burst", str(burst)]) == 0
    table = capsys.readouterr().out.split("\n\n")[-3].splitlines()
    assert len(table) == 5
    assert names(table[1], "11,075")


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["inductoin"], ["'induction'"]),
        (["induction", "--batch", "32"], ["--context"]),
        (["induction", "--context", "32"], ["--batch"]),
        (["induction", "--batch", "0", "--context", "64"], ["--batch", 0]),
        (["induction", "--batch", "3.5", "--context", "64"], ["--batch", "'3.5'"]),
        (["induction", "--batch", "32", "--context", "1"], ["--context", 1]),
        (["induction", "--batch", "32", "--context", "64", "--burst", "1.5"], ["--burst", 1.5]),
        (["induction", "--batch", "32", "--context", "64", "--burst", "nan"], ["--burst", "nan"]),
        (["induction", "--batch", "32", "--context", "64", "--bust", "0.1"], ["--burst"]),
        (["induction", "--batch", "32", "--context", "64", "more"], ["more"]),
        (["--T", "8", "--d", "4", "induction"], ["induction"]),
    ],
)
def test_a_mistake_gets_one_sentence(capsys, words, facts):
    refused_command(capsys, "predict", *words, says=facts)


def test_help_teaches_both(capsys):
    assert main(["predict", "--help"]) == 0
    out = capsys.readouterr().out
    assert "unstuck predict --T 512 --d 64" in out
    assert "unstuck predict induction --batch 32 --context 128" in out
    assert main(["predict", "induction", "--help"]) == 0
    assert "--burst" in capsys.readouterr().out


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_the_summary_is_the_first_line_of_the_help(name):
    assert load(name).help.splitlines()[0] == SUBCOMMANDS[name].summary
