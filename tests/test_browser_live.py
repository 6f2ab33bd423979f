"""Runs in training, in a real browser: cards, loss and heads on one axis, attention maps."""

import re
import subprocess
import sys

import numpy as np
import pytest
from playwright.sync_api import expect

from browsing import ROOT, needs_chromium, picture, settled
from dashboards import Server
from refusals import names
from stores import a_live_store, a_store
from unstuck.config import load_spec
from unstuck.forecast import Forecaster

pytestmark = needs_chromium
RECALL = "8d2874c549e56ba7"  # 16 heads, with maps; and two regressions of one size
REGRESSIONS = ("72e2d49c8be8ae70", "8437597ef94fce25")


@pytest.fixture
def live(tmp_path):
    """Archived runs as they were in training: address, and their directories."""
    parts = {RECALL: 0.8, REGRESSIONS[0]: 0.55, REGRESSIONS[1]: 0.2}
    running = a_live_store(tmp_path / "runs", ROOT / "results" / "store", parts)
    with running[0].lock(), running[1].lock(), running[2].lock(), Server(tmp_path / "runs") as address:
        yield address, {run.path.name: run for run in running}


def axis(page, plot):
    """First and last step of a panel."""
    return page.evaluate(f"document.getElementById('{plot}').layout.xaxis.range")


def test_live_shows_cards_loss_zone_heads_and_a_map_that_plays(page, live, screenshots):
    address, runs = live
    page.goto(address)
    expect(page.locator("#store")).to_have_text("runs")
    expect(page.locator(".card")).to_have_count(3)
    page.click(f".card[data-run='{RECALL}']")
    expect(page.locator("#livetitle")).to_contain_text(RECALL)
    settled(page)
    said = Forecaster(task="recall").predict(runs[RECALL].curve())
    card = page.locator(f".card[data-run='{RECALL}']")
    assert int(card.locator("[role=progressbar]").get_attribute("aria-valuenow")) == round(100 * said.elapsed)
    low, high = said.interval()
    assert names(card.inner_text(), f"{low:,.0f}", f"{high:,.0f}", "layer 1, head 4")
    assert re.search(r"\d\d:\d\d", card.locator(".exit").inner_text())
    zone = next(x for x in page.evaluate("document.getElementById('loss').layout.shapes") if x["type"] == "rect")
    assert (zone["x0"], zone["x1"]) == pytest.approx((low, high), rel=1e-6)
    assert axis(page, "loss") == axis(page, "heads")
    boxes = [page.locator(f"#{plot} .nsewdrag").first.bounding_box() for plot in ("loss", "heads")]
    assert boxes[0]["x"] == boxes[1]["x"]  # one axis: above each other, of one width
    assert boxes[0]["width"] == boxes[1]["width"]
    assert page.evaluate("document.getElementById('heads').data.length") == 16
    page.locator("#headlegend button", has_text="layer 1, head 4").click()
    expect(page.locator("#maphead")).to_have_text("layer 1, head 4")
    settled(page)
    maps = runs[RECALL].maps()
    drawn = page.evaluate("document.getElementById('map').data[0].z")
    here = maps[(maps["step"] == maps["step"].max()) & (maps["layer"] == 0) & (maps["head"] == 3)]
    wanted = here.pivot_table("weight", "row", "column").to_numpy()
    assert np.array(drawn) == pytest.approx(wanted, abs=1 / 255)
    tokens = here.drop_duplicates("column").sort_values("column")
    ticks = page.evaluate("document.getElementById('map').layout.xaxis.ticktext")
    assert [re.sub(r"<.*?>|▸", "", t) for t in ticks] == [str(t) for t in tokens["token"]]
    assert ["▸" in t for t in ticks] == tokens["relevant"].astype(bool).tolist()
    picture(page, screenshots / "dashboard-live.png", whole=True)
    page.click("#play")
    expect(page.locator("#mapstepout")).to_have_text("step 0")
    expect(page.locator("#mapstepout")).not_to_have_text("step 0")
    page.click("#play")
    page.reload()  # the address has run and head
    expect(page.locator("#livetitle")).to_contain_text(RECALL)
    expect(page.locator("#maphead")).to_have_text("layer 1, head 4")


def test_a_click_on_a_line_chooses_its_head(page, live):
    page.goto(f"{live[0]}/#live?live={REGRESSIONS[0]}")
    expect(page.locator("#headlegend button")).to_have_count(8)
    settled(page)
    which, *at = page.evaluate(
        """() => { const plot = document.getElementById("heads"), line = plot.data[2];
        const { xaxis, yaxis } = plot._fullLayout;
        const box = plot.getBoundingClientRect(), x = line.x.at(-1), y = line.y.at(-1);
        return [line.meta, box.left + xaxis._offset + xaxis.l2p(x), box.top + yaxis._offset + yaxis.l2p(y)]; }"""
    )
    page.mouse.move(*at)
    page.mouse.click(*at)
    expect(page.locator("#headlegend button").nth(which)).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#nomap")).to_be_visible()  # this run kept no maps, and the page says how to


def test_a_run_appears_while_it_runs_and_finishes(page, tmp_path):
    store = a_store(tmp_path / "runs", 4)
    words = ["train", "regression", "task.T=16", "task.d=8", "train.max_steps=4000", "--out", str(store)]
    spec = load_spec("regression", [w for w in words if "=" in w])
    with Server(store) as address:
        page.goto(address)
        expect(page.locator("#counts")).to_contain_text("4 emerged")
        expect(page.locator(".card")).to_have_count(0)
        job = subprocess.Popen([sys.executable, "-m", "unstuck", *words], stdout=subprocess.DEVNULL)
        try:
            expect(page.locator(".card")).to_contain_text(spec.run_id)
            expect(page.locator(".card")).to_contain_text("step")
            assert job.wait(300) == 0
        finally:
            job.kill()
        expect(page.locator(".card")).to_have_count(0)
        expect(page.locator("#livetitle")).to_contain_text(spec.run_id)
        expect(page.locator("#losslegend")).to_contain_text("left its plateau")
        page.click("nav [data-tab=compare]")
        line = page.locator(f"tr[data-run='{spec.run_id}']")
        expect(line).to_contain_text("emerged")
        line.click()
        expect(page.locator("#curvelegend .entry")).to_have_count(4)
