"""README and docs agree with the committed results and with the code."""

import importlib
import json
import re
import sys
from pathlib import Path

import pandas as pd
import pytest
from markdown.extensions.toc import slugify

from unstuck.cli import main
from unstuck.papers.catalogue import available, entries
from unstuck.papers.figure import in_one_go, is_trained, load, title
from unstuck.papers.lab import settings_of
from unstuck.papers.reproduce import settings_of_figure
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


@pytest.mark.parametrize("name", WITH_RESULTS)
def test_committed_titles_and_settings_are_those_of_the_code(name):
    """Of a figure of trained runs the settings are those of its runs, which may be older than a setting."""
    result, figure = json.loads((ROOT / "results" / f"{name}.json").read_text()), load(name)
    assert result["title"] == title(figure)
    if is_trained(figure):
        assert set(result["spec"]) <= set(settings_of(figure.runs(result["profile"])))
    elif in_one_go(figure):
        assert set(result["spec"]) <= set(settings_of_figure(figure))
    else:
        assert set(result["spec"]) == set(settings_of_figure(figure))


@pytest.mark.parametrize("name", WITH_RESULTS)
def test_what_differs_says_why_or_what_would_decide(name):
    claims = json.loads((ROOT / "results" / f"{name}.json").read_text())["claims"]
    assert [claim["quantity"] for claim in claims if claim["verdict"] == "differs" and not claim["note"]] == []


def test_every_figure_that_differs_has_a_row_in_what_differs():
    """Of those with the papers' numbers; and a row has a figure that differs."""
    page = (ROOT / "docs" / "figures.md").read_text()
    section = page.partition("## What differs")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([\w, -]+) \|", section, re.MULTILINE)[1:]
    named = {name for row in rows for name in row.split(", ")}
    on_text = {entry.name for entry in entries().values() if entry.on_text}
    assert named == {name for name in set(WITH_RESULTS) - on_text if generate_docs.stored_verdicts(name)["differs"]}


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


def test_every_figure_has_a_page_and_a_place_in_one_gallery():
    pages = {path.stem: path.read_text() for path in (ROOT / "docs" / "figures").glob("*.md")}
    assert set(available()) <= set(pages)
    for name, page in pages.items():
        assert page.startswith(f"# {name}\n")
        assert re.findall(r"<!-- (figure|about): (\S+) -->", page) == [("about", name), ("figure", name)]
    galleries = [(ROOT / "docs" / page).read_text() for page, _ in generate_docs.GALLERIES.values()]
    rows = re.findall(r"^\| \[([\w-]+)\]\(figures/\1\.md\)", "".join(galleries), re.MULTILINE)
    assert sorted(rows) == sorted(available())
    pictures = re.findall(r"!\[([\w-]+)\]\(\.\./results/\1\.png\)\]\(figures/\1\.md\)", "".join(galleries))
    assert sorted(pictures) == sorted(name for name in available() if (ROOT / "results" / f"{name}.png").is_file())


def test_links_of_a_block_are_relative_to_the_page():
    block = "![a](../results/a.png) [b](figures/b.md#x) [c](https://c.org/d) [e](#e)"
    moved = {
        page: generate_docs.from_page(block, ROOT / page) for page in ("README.md", "docs/a.md", "docs/figures/a.md")
    }
    assert moved["docs/a.md"] == block
    assert moved["README.md"] == "![a](results/a.png) [b](docs/figures/b.md#x) [c](https://c.org/d) [e](#e)"
    assert moved["docs/figures/a.md"] == "![a](../../results/a.png) [b](b.md#x) [c](https://c.org/d) [e](#e)"


def test_every_test_that_the_errata_name_exists():
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/errata.md").read_text()))
    there = {name for path in (ROOT / "tests").glob("*.py") for name in re.findall(r"def (test_\w+)", path.read_text())}
    assert named
    assert named <= there


PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def without_code(text):
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE))


def anchors(path):
    """Of the headings of a page, as Python-Markdown names them."""
    text = re.sub(r"^ *```.*?^ *```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    return {slugify(re.sub(r"[`*]", "", title), "-") for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def test_every_relative_link_leads_somewhere():
    broken, links = [], 0
    for page in PAGES:
        for target in re.findall(r"\]\((?!\w+:)([^)\s]+)\)", without_code(page.read_text())):
            name, _, anchor = target.partition("#")
            there = page.parent / name if name else page
            links += 1
            if not there.exists() or (anchor and anchor not in anchors(there)):
                broken.append((str(page.relative_to(ROOT)), target))
    assert broken == []
    assert links > 500  # the pattern finds links at all


def test_no_page_is_longer_than_five_screens():
    """About 1,500 words of prose. Generated tables do not count, nor do references and galleries, which are lists."""
    for page in (ROOT / "docs").rglob("*.md"):
        if page.name not in ("commands.md", "api.md"):
            prose = generate_docs.BLOCK.sub("", page.read_text())
            assert len(prose.split()) <= 1500, page.name


def test_mathematics_becomes_mathml():
    tex = '<span class="arithmatex">\\(a &lt; b\\)</span>', '<div class="arithmatex">\\[\n\\frac{1}{2}\n\\]</div>'
    mathml = import_hooks().on_page_content(f"<p>x{tex[0]}</p>{tex[1]}<img src='a'>")
    inline, block = re.findall(r"<math.*?</math>", mathml)
    assert re.findall(r"<m(?:i|o)>(.*?)</m(?:i|o)>", inline) == ["a", "&#x0003C;", "b"]
    assert "<mfrac><mrow><mn>1</mn></mrow><mrow><mn>2</mn></mrow></mfrac>" in block
    assert ('display="block"' in block, 'display="block"' in inline) == (True, False)
    assert "arithmatex" not in mathml
    assert '<img loading="lazy" ' in mathml


def test_every_formula_of_the_docs_can_be_drawn():
    """No TeX command or tabulator is left as text in the MathML."""
    convert = pytest.importorskip("latex2mathml.converter").convert
    formulas = 0
    for page in PAGES:
        text = without_code(page.read_text())
        for tex in re.findall(r"\$\$(.+?)\$\$|(?<![\\$])\$(?![\s$])([^$\n]+?)\$", text, re.DOTALL):
            drawn = convert("".join(tex).strip())
            assert not re.search(r"\\|>&<|&amp;|&#x00026;", drawn), (page.name, tex)
            formulas += 1
    assert formulas > 150


def import_hooks():
    pytest.importorskip("mkdocs")
    pytest.importorskip("latex2mathml")
    return importlib.import_module("mkdocs_hooks")


@pytest.mark.parametrize(
    "page",
    ["README.md", "api", "laboratory", "sweep", "recall", "incremental", "watch", "schedule"],
)
def test_python_examples_in_the_pages_run(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    path = ROOT / page if page == "README.md" else ROOT / "docs" / f"{page}.md"
    code = "\n".join(re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL))
    exec(compile(code, page, "exec"), {})


@pytest.mark.parametrize(("name", "page"), [("stuck-loss", "stuck.md"), ("stuck-watched", "forecast.md")])
def test_the_example_of_a_stuck_run_says_what_the_page_says(name, page, capsys):
    """It is the beginning of a committed run, and the answer on the page is the command's."""
    table = pd.read_csv(ROOT / "examples" / f"{name}.csv")
    curve = Store(ROOT / "results" / "store").run("8437597ef94fce25").curve()
    pd.testing.assert_frame_equal(table, curve.truncate(900).to_frame()[list(table)], rtol=1e-5)
    assert main(["forecast", str(ROOT / "examples" / f"{name}.csv")]) == 0
    said = capsys.readouterr().out.strip()
    assert f"$ unstuck forecast examples/{name}.csv\n{said}\n" in (ROOT / "docs" / page).read_text()
