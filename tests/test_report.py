"""The report: one file, no network, what run files say is text."""

import base64
import json
import re

import numpy as np
import pandas as pd
import pytest

from refusals import names, refused, warned
from stores import a_store
from unstuck.cli import main
from unstuck.store.store import RunDirectory
from unstuck.view.report.page import write_report
from unstuck.view.report.runs import LEAST, POINTS, runs_of


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    out = tmp_path_factory.mktemp("figures")
    for name in ("fig1b", "progress-law"):
        assert main(["reproduce", name, "--out", str(out)]) == 0
    return out


def test_the_report_needs_nothing_but_itself(figures, capsys):
    assert main(["report", str(figures)]) == 0
    assert names(capsys.readouterr().out, figures / "report.html")
    html = (figures / "report.html").read_text()
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:image/png|#)""", html)
    assert "url(" not in html
    assert "<script" not in html  # figures alone need none
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
    with warned(UserWarning, tmp_path / "broken.json") as caught:
        html = write_report(tmp_path, tmp_path / "r.html").read_text()
    assert "fig1b" in html
    skipped = {path.stem for path in tmp_path.iterdir() for w in caught if names(str(w.message), path)}
    assert skipped == {"broken", "list", "bad-claims", "bad-provenance", "bad-title"}


def test_an_empty_directory_says_what_to_do(tmp_path):
    with refused("directory", str(tmp_path)):
        write_report(tmp_path, tmp_path / "r.html")
    with refused("directory", str(tmp_path / "none")):
        write_report(tmp_path / "none", tmp_path / "r.html")


def the_data(html):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)[1])


def test_a_store_is_shown_with_its_law(tmp_path):
    store = a_store(tmp_path / "runs", 40)
    html = write_report(store, tmp_path / "r.html").read_text()
    data = the_data(html)
    assert len(data["rows"]) == 40
    assert {"run_id", "d", "T", "seed", "status", "plateau_steps"} <= set(data["columns"])
    assert len(data["curves"]) == 40
    (law,) = data["laws"]
    assert law["formula"] == "d + T"
    assert [round(x[1], 3) for x in law["terms"]] == [1.0, 0.5]
    assert (law["n"], law["censored"]) == (36, 4)
    assert law["measured"] == pytest.approx(law["said"], rel=1e-3)
    assert data["marks"].keys() == {row[0] for row in data["rows"]}
    assert {(m["measure"], m["y"]) for marks in data["marks"].values() for m in marks} == {("test_loss", 0.1)}
    assert {"d", "T", "seed"} <= set(data["settings"])
    assert not re.search(r"""<(script|link|img|iframe)[^>]+(src|href)\s*=\s*["'](?!data:)""", html)
    (law,) = the_data(write_report(store, tmp_path / "r.html", "d*T").read_text())["laws"]
    assert law["formula"] == "d*T"
    with refused("formula", "nothing"):
        write_report(store, tmp_path / "r.html", "nothing")


@pytest.mark.parametrize("kind", ["trained", "watched"])
def test_a_run_directory_has_a_report_of_that_run_alone(tmp_path, kind, monkeypatch, capsys):
    store = a_store(tmp_path / "runs", 3)
    watched = RunDirectory(store / "watched-1")
    watched.path.mkdir()
    watched.write_curve(pd.DataFrame({"step": [0, 10, 20], "train_loss": [2.0, 1.5, 1.25], "attn_0_0": 0.1}))
    watched.write_watched("Tiny", 20, "mark")
    run = watched.path if kind == "watched" else store / f"{1:016x}"
    monkeypatch.chdir(run)
    assert main(["report", "."]) == 0
    assert not [line for line in capsys.readouterr().err.splitlines() if names(line, "status.json")]  # is no figure
    data = the_data((run / "report.html").read_text())
    assert list(data["curves"]) == [run.name]
    (row,) = data["rows"]
    assert row[data["columns"].index("run_id")] == run.name
    assert data["curves"][run.name]["step"] == pytest.approx(RunDirectory(run).curve().steps.tolist(), rel=1e-4)
    assert main(["report", str(run), "--out", str(tmp_path / "b.html")]) == 0
    assert the_data((tmp_path / "b.html").read_text())["curves"] == data["curves"]


def test_curves_are_thinned_and_it_says_so(tmp_path):
    few = runs_of(a_store(tmp_path / "few", 3, rows=150))
    assert few.thinned == ""
    assert len(few.curves["0" * 16]["step"]) == 150
    many = runs_of(a_store(tmp_path / "many", 30, rows=1000))
    shown = len(many.curves["0" * 16]["step"])
    assert shown < 1000
    assert f"thinned to {shown} points" in many.thinned
    assert many.curves["0" * 16]["step"][0] == 0
    assert many.curves["0" * 16]["step"][-1] == pytest.approx(3.0 * 4 * 8**0.5, rel=1e-3)  # first and last are kept
    assert 5000 * LEAST <= POINTS


def test_names_in_run_files_cannot_leave_the_data(tmp_path):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    html = write_report(a_store(tmp_path / "runs", 8, name=evil), tmp_path / "r.html").read_text()
    assert "<script>alert" not in html
    assert "<img src=x" not in html
    assert any(evil in law["name"] for law in the_data(html)["laws"])


def test_attention_is_kept_as_bytes(tmp_path):
    store = a_store(tmp_path / "runs", 2)
    directory = RunDirectory(store / ("0" * 16))
    weights = np.random.default_rng(0).dirichlet(np.ones(5), size=(2, 5))  # heads, rows, columns
    head, row, column = (x.ravel() for x in np.indices(weights.shape))
    table = pd.DataFrame({"layer": 0, "head": head, "row": row, "column": column, "weight": weights.ravel()})
    for step in (0, 60):
        directory.write_maps(table.assign(step=step))
    (found,) = runs_of(store).attention
    assert runs_of(store).unseen == ""
    assert (found["steps"], found["size"], len(found["heads"])) == ([0, 60], 5, 2)
    values = np.frombuffer(base64.b64decode(found["data"]), dtype=np.uint8).reshape(2, 2, 5, 5)
    assert values[1] / 255 == pytest.approx(weights, abs=0.003)


def test_five_hundred_runs_stay_small(tmp_path):
    report = write_report(a_store(tmp_path / "runs", 500, rows=300), tmp_path / "r.html")
    assert report.stat().st_size < 15e6
    assert "thinned" in report.read_text()
