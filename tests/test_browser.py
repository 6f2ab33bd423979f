"""Dashboard and report in a real browser: Theory, a walk through all tabs, hostile files, the report."""

import json
import threading
from urllib.parse import urlencode

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import expect

from browsing import ROOT, column, needs_chromium, picture, rows, settled, too_wide
from dashboards import Server
from refusals import names
from stores import a_store, mixed_store
from unstuck.cli import main
from unstuck.store.store import RunDirectory
from unstuck.view.dashboard.runs import Reader
from unstuck.view.report.page import write_report

pytestmark = needs_chromium
EVIL = "</script><script>document.title = 'taken'</script><img src=x onerror=\"document.title='taken'\">"


def test_a_slider_gives_what_predict_prints(page, dashboard, capsys, screenshots):
    page.goto(f"{dashboard}/#theory")
    expect(page.locator("#plateau")).to_have_text("5,314")  # T = 512, d = 64
    settled(page)
    picture(page, screenshots / "dashboard-theory.png")
    seen = set()
    for slider, presses in (("T", 8), ("B", 4), ("p", 25), ("d", -6)):
        before = page.locator("#plateau").inner_text()
        page.locator(f"#{slider}").focus()
        for _ in range(abs(presses)):
            page.keyboard.press("ArrowRight" if presses > 0 else "ArrowLeft")
        page.wait_for_load_state("networkidle")
        expect(page.locator("#plateau")).not_to_have_text(before)
        expect(page.locator("#command")).to_contain_text(f"--{slider} {page.locator(f'#o{slider}').inner_text()}")
        capsys.readouterr()
        assert main(page.locator("#command").inner_text().split()[1:]) == 0
        shown = page.locator("#plateau").inner_text()
        assert names(capsys.readouterr().out, shown)
        seen.add(shown)
    assert len(seen) == 4
    for name in ("tloss", "w", "alpha"):
        expect(page.locator(f"#{name} .main-svg").first).to_be_visible()
    shown = page.locator("#plateau").inner_text()
    page.reload()  # the address has the sliders
    expect(page.locator("#plateau")).to_have_text(shown)
    assert all(url.startswith((dashboard, "data:", "blob:")) for url in page.asked)


# -- all tabs


TABS = {
    "live": ("#loss", "#heads", "#headlegend button"),
    "compare": ("#curve", "#curvelegend .entry", "#parallel polyline"),
    "laws": ("#fit", "#residuals", "#terms tr"),
    "theory": ("#tloss", "#w", "#alpha"),
}


@pytest.mark.parametrize("width", [1280, 390])
def test_a_walk_through_all_tabs(page, tmp_path, screenshots, width):
    """Nothing stands out of the window, plots are drawn, and the address names the tab."""
    store = mixed_store(tmp_path / "runs")
    held = RunDirectory(store / ("0" * 16))
    held.write_curve(pd.read_csv(ROOT / "examples" / "stuck-watched.csv"))
    held.write_status({"state": "running", "step": 873, "seconds": 8730.0})
    page.set_viewport_size({"width": width, "height": 844})
    with held.lock(), Server(store) as address:
        page.goto(address)
        for tab, parts in TABS.items():
            page.click(f"nav [data-tab={tab}]")
            for part in parts:
                expect(page.locator(part).first).to_be_visible()
            settled(page)
            assert page.evaluate("location.hash").startswith(f"#{tab}") or tab == "live"
            assert page.evaluate("document.documentElement.scrollWidth") == width
            if width == 390:
                assert too_wide(page) == []
            picture(page, screenshots / f"walk-{tab}-{width}.png", whole=True)
        page.go_back()
        expect(page.locator("#tab-laws")).to_be_visible()


def test_a_spinner_turns_while_it_works(page, dashboard, monkeypatch):
    held = threading.Event()
    answer = Reader.law
    monkeypatch.setattr(Reader, "law", lambda *words: held.wait(60) and answer(*words))
    page.goto(f"{dashboard}/#laws")
    expect(page.locator("#busy")).to_be_visible()
    held.set()
    expect(page.locator("#busy")).to_be_hidden()
    expect(page.locator("#terms tr")).to_have_count(2)


def test_what_run_files_say_is_harmless(page, tmp_path):
    """A run named like a script, a spec that points elsewhere: shown as text, in the dashboard and in the report."""
    (tmp_path / "secret.csv").write_text("step,test_loss\n1,0.123\n")
    store = a_store(tmp_path / "runs", 8, name=EVIL)
    named = "<img src=x onerror=alert(1)>"
    (store / ("0" * 16)).rename(store / named)
    for i, path in enumerate(("../../secret.csv", "../secret")):
        spec = RunDirectory(store / f"{i + 1:016x}").spec()
        spec |= {"task": spec["task"] | {"name": path}, "model": {"name": path, "source": path}}
        spec["train"] |= {"compare": [path]}
        (store / f"{i + 1:016x}" / "spec.yaml").write_text(json.dumps(spec))
    before = sorted((p, p.stat().st_mtime_ns) for p in tmp_path.rglob("*"))
    with Server(store) as address:
        for tab in ("theory", "laws", "live", "compare"):
            page.goto(f"{address}/#{tab}")
            page.reload()
            settled(page)
            assert page.title() == "runs · unstuck"
        expect(rows(page)).to_have_count(8)
        line = page.locator("#table tbody tr", has_text=named)
        line.click()
        page.goto(f"{address}/#live?{urlencode({'live': named})}")
        expect(page.locator("#livetitle")).to_contain_text(named)
        settled(page)
        assert page.locator("main img").count() == 0
        assert page.title() == "runs · unstuck"
        assert "0.123" not in page.content()
        assert all(url.startswith((address, "data:", "blob:")) for url in page.asked)
    assert sorted((p, p.stat().st_mtime_ns) for p in tmp_path.rglob("*")) == before
    page.goto(write_report(store, tmp_path / "report.html").as_uri())
    expect(rows(page)).to_have_count(8)
    assert page.title() == "unstuck: runs"
    assert page.locator("#table img, #curve img").count() == 0


def test_the_report_opens_from_disk(page, tmp_path):
    store = a_store(tmp_path / "runs", 30)
    weights = np.random.default_rng(0).dirichlet(np.ones(6), size=(2, 6))  # heads, rows, columns
    head, row, to = (x.ravel() for x in np.indices(weights.shape))
    table = pd.DataFrame({"layer": 0, "head": head, "row": row, "column": to, "weight": weights.ravel()})
    for step in (0, 10, 60):
        RunDirectory(store / ("0" * 16)).write_maps(table.assign(step=step))
    report = write_report(store, tmp_path / "report.html")
    page.goto(report.as_uri())
    expect(rows(page)).to_have_count(30)
    page.locator("#table th").nth(page.locator("#table th").all_text_contents().index("plateau_steps")).click()
    shown = [float(x) for x in column(page, "plateau_steps") if x != "–"]
    assert shown == sorted(shown)
    page.fill("#filter", "censored")
    expect(rows(page)).to_have_count(3)
    page.fill("#filter", "")
    page.fill("#filter", "T>16 emerged")
    assert set(column(page, "T")) == {"32"}
    page.fill("#filter", "")
    for plot in ("curve", "fit", "residuals", "map"):
        expect(page.locator(f"#{plot} .main-svg").first).to_be_visible()
    expect(page.locator("#lawtext")).to_contain_text("R²")
    page.locator("#astep").fill("0")
    expect(page.locator("#astepout")).to_have_text("step 0")
    assert all(url.startswith(("file:", "data:", "blob:")) for url in page.asked)


@pytest.mark.slow
def test_pictures_for_the_docs(page, screenshots, tmp_path):
    """Dashboard and report on the runs that come with the repository."""
    store = ROOT / "results" / "store"
    with Server(store) as address:
        wanted = "task=regression T=64 B=1 p=0 layers=2 heads=4 lr=0.0001 layer_norm=false optim=adam width=256"
        page.goto(f"{address}/#compare?{urlencode({'none': 1, 'seeds': 1, 'colour': 'd', 'filter': wanted})}")
        expect(rows(page).first).to_be_visible()
        page.click("#chooseall")
        expect(page.locator("#curvelegend .entry").nth(2)).to_be_visible()
        heads = [cell.rstrip(" ▲▼") for cell in page.locator("#table thead th").all_text_contents()]
        assert {"run_id", "T", "d", "plateau_steps"} <= set(heads)
        assert not {"tokens", "pairs", "tau"} & set(heads)  # of other tasks: none of these runs has them
        settled(page)
        page.fill("#filter", "task=regression T>=16 layers=2 heads=4 threshold=0.1")
        page.evaluate("document.querySelectorAll('*').forEach((e) => { e.scrollLeft = 0; })")
        picture(page, screenshots / "dashboard-runs.png", whole=True)
        page.goto(f"{address}/#laws")
        expect(page.locator("#comparable")).to_be_visible()
        settled(page)
        picture(page, screenshots / "dashboard-laws.png")
    report = write_report(store, tmp_path / "report.html").as_uri()
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(report)
    expect(page.locator("#map .main-svg").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.set_viewport_size({"width": 1280, "height": 960})
    page.goto(report)
    expect(page.locator("#curve .main-svg").first).to_be_visible()
    picture(page, screenshots / "dashboard-report.png")
