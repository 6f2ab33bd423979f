"""README and docs agree with the committed results and with the code."""

import json
import re
import sys
from pathlib import Path

import pandas as pd
import pytest

from unstuck.cli import main
from unstuck.papers.catalogue import available, entries
from unstuck.papers.figure import is_trained, load
from unstuck.store.store import Store

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
import generate_docs

ROOT = Path(__file__).resolve().parent.parent


def test_tables_in_the_pages_are_those_in_results():
    assert generate_docs.main(check=True) == 0  # prints which are not


WITH_RESULTS = [name for name in available() if (ROOT / "results" / f"{name}.json").is_file()]


def test_every_theory_figure_has_a_committed_result():
    assert set(available()) - set(WITH_RESULTS) <= {name for name in available() if is_trained(load(name))}


@pytest.mark.parametrize("name", WITH_RESULTS)
def test_committed_claims_follow_from_committed_tables(name):
    """A result's JSON says what its figure's file concludes from its CSV, today."""
    result = json.loads((ROOT / "results" / f"{name}.json").read_text())
    table = pd.read_csv(ROOT / "results" / f"{name}.csv")
    for claim, stored in zip(load(name).compare(table), result["claims"], strict=True):
        assert (claim.quantity, claim.verdict, claim.paper) == (stored["quantity"], stored["verdict"], stored["paper"])
        if isinstance(claim.ours, float):
            assert claim.ours == pytest.approx(stored["ours"], rel=1e-6)
        else:
            assert claim.ours == stored["ours"]
    assert result["provenance"]["commit"]
    assert "local changes" not in result["provenance"]["commit"]


def test_laws_of_others_on_text_are_counted_apart_from_the_papers_numbers(tmp_path, monkeypatch):
    """What does not hold on text must not count as a number of the two papers that differs."""
    monkeypatch.setattr(generate_docs, "RESULTS", tmp_path)
    stored = {"fig1c": ["agrees"] * 3 + ["differs"], "text-law": ["agrees"] * 5 + ["differs"] * 7 + ["beside"] * 2}
    for name, verdicts in stored.items():
        if name == "text-law":
            before = numbers(generate_docs.verdicts("all"))
            assert before[:4] == [3, 1, 0, 0]
            assert len(before) == 5  # how many figures are not run yet
        result = {"profile": "cpu", "claims": [{"verdict": v} for v in verdicts]}
        (tmp_path / f"{name}.json").write_text(json.dumps(result))
    papers, others = re.split(r"(?<=\.) ", generate_docs.verdicts("all"), maxsplit=1)
    assert numbers(papers) == [3, 1, 0, 0]
    on_text = [entry.name for entry in entries().values() if entry.on_text]
    assert {"text-law", "text-corpora", "context-at-equal-tokens"} <= set(on_text)
    assert not {"fig1c", "gpt2-induction", "incremental-fig1", "recall-benchmarks"} & set(on_text)
    assert numbers(others) == [1, len(on_text), 5, 7, 2]
    table = [numbers(row)[-4:] for row in generate_docs.verdicts("papers").splitlines()[2:]]
    assert [row[:2] for row in table] == [[3, 1], [0, 0], [0, 0], [5, 7]]


def numbers(text):
    return [int(x) for x in re.findall(r"\b\d+\b", text)]


def test_every_figure_has_a_section_in_an_appendix():
    pages = "".join((ROOT / "docs" / f"figures-{part}.md").read_text() for part in ("paper1", "paper2", "ours"))
    shown = re.findall(r"^## (\S+)$", pages, re.MULTILINE)
    assert sorted(shown) == sorted(set(shown))
    assert set(available()) <= set(shown)
    assert set(available()) <= set(re.findall(r"<!-- figure: (\S+) -->", pages))


def test_every_test_that_the_errata_name_exists():
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/errata.md").read_text()))
    there = {name for path in (ROOT / "tests").glob("*.py") for name in re.findall(r"def (test_\w+)", path.read_text())}
    assert named
    assert named <= there


def test_pictures_in_the_pages_exist():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text()):
            assert (page.parent / target).is_file(), (page.name, target)


@pytest.mark.parametrize(
    "page", ["README.md", "docs/api.md", "docs/laboratory.md", "docs/recall.md", "docs/incremental.md", "docs/stuck.md"]
)
def test_python_examples_in_the_pages_run(page):
    code = "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL))
    exec(compile(code, page, "exec"), {})


@pytest.mark.parametrize("name", ["stuck-loss", "stuck-watched"])
def test_the_example_of_a_stuck_run_says_what_the_page_says(name, capsys):
    """It is the beginning of a committed run, and the answer on the page is the command's."""
    table = pd.read_csv(ROOT / "examples" / f"{name}.csv")
    curve = Store(ROOT / "results" / "store").run("8437597ef94fce25").curve()
    pd.testing.assert_frame_equal(table, curve.truncate(900).to_frame()[list(table)], rtol=1e-5)
    assert main(["forecast", str(ROOT / "examples" / f"{name}.csv")]) == 0
    said = capsys.readouterr().out.strip()
    assert f"$ unstuck forecast examples/{name}.csv\n{said}\n" in (ROOT / "docs" / "stuck.md").read_text()
