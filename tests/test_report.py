"""The report: one file, no network, what run files say is text."""

import json
import re
from pathlib import Path

import pytest

from unstuck.cli import main
from unstuck.errors import BadInput
from unstuck.report.figures import write_report


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    out = tmp_path_factory.mktemp("figures")
    for name in ("fig1b", "progress-law"):
        assert main(["reproduce", name, "--out", str(out)]) == 0
    return out


def test_the_report_needs_nothing_but_itself(figures, capsys):
    assert main(["report", str(figures)]) == 0
    assert capsys.readouterr().out.startswith("report: ")
    html = (figures / "report.html").read_text()
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:image/png|#)""", html)
    assert "url(" not in html
    assert "<script" not in html
    assert html.count("data:image/png;base64,") == 2
    for claim in json.loads((figures / "fig1b.json").read_text())["claims"]:
        assert claim["verdict"] in html


def test_what_a_file_says_is_shown_as_text(figures, tmp_path):
    for path in figures.glob("fig1b.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    result = json.loads((tmp_path / "fig1b.json").read_text())
    result["title"] = "<script>alert(1)</script>"
    result["claims"][0]["ours"] = '"><img src=x onerror=alert(1)>'
    (tmp_path / "fig1b.json").write_text(json.dumps(result))
    html = write_report(tmp_path, tmp_path / "r.html").read_text()
    assert "<script>" not in html
    assert "<img src=x" not in html


def test_damaged_and_foreign_files_are_passed_over(figures, tmp_path):
    for path in figures.glob("fig1b.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "list.json").write_text("[1, 2]")
    for change in ({"claims": [{"quantity": "x"}]}, {"provenance": {}}, {"title": 3}):
        result = json.loads((tmp_path / "fig1b.json").read_text()) | change
        (tmp_path / f"bad-{next(iter(change))}.json").write_text(json.dumps(result))
        (tmp_path / f"bad-{next(iter(change))}.png").write_bytes(b"")
    with pytest.warns(UserWarning, match="passed over") as warned:
        html = write_report(tmp_path, tmp_path / "r.html").read_text()
    assert "fig1b" in html
    passed_over = {Path(str(w.message).split(" is passed")[0]).stem for w in warned}
    assert passed_over == {"broken", "list", "bad-claims", "bad-provenance", "bad-title"}


def test_an_empty_directory_says_what_to_do(tmp_path):
    with pytest.raises(BadInput, match="unstuck reproduce all"):
        write_report(tmp_path, tmp_path / "r.html")
