"""Dashboard and report in a real browser: Chromium, headless. Skipped where there is none, but not in CI."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from playwright.sync_api import expect, sync_playwright

from dashboards import Server
from refusals import names
from stores import a_store
from unstuck.cli import main
from unstuck.config import load_spec
from unstuck.store.store import RunDirectory
from unstuck.view.report.page import write_report

ROOT = Path(__file__).parents[1]
CHROMIUM = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("CI"), reason="no Chromium; `apt-get install chromium` brings it"
)
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync")
EVIL = "</script><script>document.title = 'taken'</script><img src=x onerror=\"document.title='taken'\">"
WAIT = 60_000  # milliseconds: machines are noisy, and what is asked for is that it comes
expect.set_options(timeout=WAIT)


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as p:
        started = p.chromium.launch(
            executable_path=CHROMIUM, args=[*QUIET, "--no-first-run", "--disable-component-update"]
        )
        yield started
        started.close()


@pytest.fixture
def page(browser):
    """A page that records what it asks for and what goes wrong."""
    new = browser.new_page(viewport={"width": 1280, "height": 960}, device_scale_factor=1)
    new.set_default_timeout(WAIT)
    new.asked, new.wrong = [], []
    new.on("request", lambda r: new.asked.append(r.url))
    new.on("pageerror", lambda e: new.wrong.append(str(e)))
    new.on("dialog", lambda d: (new.wrong.append(d.message), d.dismiss()))
    yield new
    assert not new.wrong
    assert new.get_by_text("Share chart").count() == 0  # plotly's own, which would send it away
    new.close()


@pytest.fixture
def dashboard(tmp_path):
    with Server(a_store(tmp_path / "runs", 24)) as address:
        yield address


def rows(page):
    return page.locator("#table tbody tr")


def column(page, name):
    """The shown values of a column, from above."""
    at = [cell.rstrip(" ▲▼") for cell in page.locator("#table thead th").all_text_contents()].index(name)
    return [row.split("\t")[at] for row in page.locator("#table tbody").inner_text().splitlines()]


def picture(page, path):
    """A screenshot in a palette of 128 colours: a third of the size, and no difference to be seen."""
    page.screenshot(path=path)
    with Image.open(path) as image:
        image.convert("RGB").quantize(128).save(path, optimize=True)


def test_a_slider_gives_what_predict_prints(page, dashboard, capsys, screenshots):
    page.goto(dashboard)
    expect(page.locator("#plateau")).to_have_text("5,314")  # T = 512, d = 64
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
    for name in ("loss", "w", "alpha"):
        expect(page.locator(f"#{name} .main-svg").first).to_be_visible()
    assert all(url.startswith((dashboard, "data:", "blob:")) for url in page.asked)


def test_a_run_appears_while_it_runs_and_finishes(page, tmp_path):
    store = a_store(tmp_path / "runs", 4)
    words = ["train", "regression", "task.T=16", "task.d=8", "train.max_steps=4000", "--out", str(store)]
    spec = load_spec("regression", [w for w in words if "=" in w])
    with Server(store) as address:
        page.goto(f"{address}/#runs")
        expect(rows(page)).to_have_count(4)
        job = subprocess.Popen([sys.executable, "-m", "unstuck", *words], stdout=subprocess.DEVNULL)
        try:
            expect(page.locator(".running")).to_contain_text(spec.run_id)
            expect(page.locator(".running")).to_contain_text("step")
            expect(rows(page)).to_have_count(5)
            assert job.wait(300) == 0
        finally:
            job.kill()
        expect(page.locator(".running")).to_have_count(0)
        line = page.locator(f"tr[data-run='{spec.run_id}']")
        expect(line).to_contain_text("emerged")
        line.click()
        expect(page.locator("#curve .legendtext", has_text=spec.run_id)).to_be_visible()


def test_the_table_is_sorted_filtered_and_compared(page, dashboard):
    page.goto(f"{dashboard}/#runs")
    expect(rows(page)).to_have_count(24)
    headers = page.locator("#table th").all_text_contents()
    for click, wanted in ((1, sorted), (2, lambda x: sorted(x, reverse=True))):
        page.locator("#table th").nth(headers.index("d")).click()
        values = [float(x) for x in column(page, "d")]
        assert values == wanted(values), click
        assert len(set(values)) > 1
    page.fill("#filter", "T=8 emerged")
    expect(page.locator("#count")).to_contain_text("of 24 runs")
    assert set(column(page, "T")) == {"8"}
    assert set(column(page, "status")) == {"emerged"}


def test_rows_come_page_by_page_and_then_as_they_change(page, tmp_path, monkeypatch):
    monkeypatch.setattr("unstuck.view.dashboard.runs.PAGE", 5)
    store = a_store(tmp_path / "runs", 24)
    with Server(store) as address:
        page.goto(f"{address}/#runs")
        expect(rows(page)).to_have_count(24)
        assert column(page, "run_id") == [f"{i:016x}" for i in range(24)]
        directory = RunDirectory(store / f"{17:016x}")
        status = directory.status()
        directory.write_status(status | {"result": status["result"] | {"steps": 98765}})
        (store / f"{3:016x}").rename(store / "zz")
        expect(page.locator("tr[data-run='zz']")).to_be_visible()
        assert column(page, "run_id") == [*(f"{i:016x}" for i in range(24) if i != 3), "zz"]
        assert column(page, "steps")[16] == "98765"
    asked = [url for url in page.asked if "/api/runs" in url]
    assert sum("after=" in url for url in asked) == 4
    assert sum("?" not in url or url.endswith("?") for url in asked) == 1  # all others asked for changes


def test_a_law_is_fitted_and_predicts(page, dashboard):
    page.goto(f"{dashboard}/#laws")
    expect(page.locator("#terms tr")).to_have_count(2)
    page.fill("#formula", "d + T")
    page.fill("#sizes", "d=64 T=64")
    page.click("#fitnow")
    expect(page.locator("#prediction")).to_contain_text("1,536 steps")
    assert page.locator("#terms").inner_text().split()[1] == "1.000"
    page.fill("#formula", "nonsense")
    page.click("#fitnow")
    expect(page.locator("#lerror")).to_contain_text("nonsense")


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
        for tab in ("theory", "laws", "runs"):
            page.goto(f"{address}/#{tab}")
            page.reload()
            page.wait_for_load_state("networkidle")
            assert page.title() == "unstuck"
        expect(rows(page)).to_have_count(8)
        line = page.locator("#table tbody tr", has_text=named)
        line.click()
        expect(page.locator("#curve .legendtext", has_text=named)).to_be_visible()
        assert page.locator("#table img, #curve img").count() == 0
        assert page.title() == "unstuck"
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
        page.goto(f"{address}/#runs")
        expect(rows(page).first).to_be_visible()
        page.click("#clear")
        wanted = "single_location T=64 B=1 p=0 layers=2 heads=4 lr=0.0001 layer_norm=false optim=adam seed=0"
        page.fill("#filter", wanted)
        for size in ("16", "32", "64"):
            page.locator("#table tbody tr").nth(column(page, "d").index(size)).click()
        expect(page.locator("#curve .legendtext")).to_have_count(3)
        heads = [cell.rstrip(" ▲▼") for cell in page.locator("#table thead th").all_text_contents()]
        assert {"run_id", "T", "d", "plateau_steps"} <= set(heads)
        assert not {"tokens", "pairs", "tau"} & set(heads)  # of other tasks: none of these runs has them
        page.evaluate("document.querySelectorAll('*').forEach((e) => { e.scrollLeft = 0; })")
        picture(page, screenshots / "dashboard-runs.png")
        page.goto(f"{address}/#laws")
        page.fill("#where", "task=single_location layer_norm=false lr=0.0001 optim=adam")
        page.fill("#sizes", "d=64 T=128 B=1")
        page.click("#fitnow")
        expect(page.locator("#prediction")).to_contain_text("steps")
        page.wait_for_load_state("networkidle")
        picture(page, screenshots / "dashboard-laws.png")
    page.goto(write_report(store, tmp_path / "report.html").as_uri())
    expect(page.locator("#curve .main-svg").first).to_be_visible()
    picture(page, screenshots / "dashboard-report.png")
