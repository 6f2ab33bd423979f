"""Runs side by side and laws, in a real browser."""

import re

import numpy as np
import pytest
from playwright.sync_api import expect

from browsing import column, needs_chromium, rows, settled
from dashboards import Server
from stores import a_store, mixed_store
from unstuck.store.store import RunDirectory
from waiting import eventually

pytestmark = needs_chromium


def test_the_table_is_sorted_and_filtered(page, dashboard):
    page.goto(f"{dashboard}/#compare")
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
    for words, true in (
        ("T>8 T<=16", lambda d, T: T == 16),
        ("d!=4 T<32", lambda d, T: d != 4 and T < 32),
        ("d>=16", lambda d, T: d >= 16),
    ):
        page.fill("#filter", words)
        found = list(zip(map(int, column(page, "d")), map(int, column(page, "T")), strict=True))
        every = [(2 ** (i % 4 + 2), 2 ** (i // 4 % 3 + 3)) for i in range(24)]
        assert sorted(found) == sorted(pair for pair in every if true(*pair)), words
    page.reload()
    expect(page.locator("#filter")).to_have_value("d>=16")


def traces(page):
    """Of the lines that are drawn: steps, values, colour."""
    return page.evaluate(
        "document.getElementById('curve').data.filter((t) => t.run).map((t) => [t.x, t.y, t.line.color])"
    )


def test_curves_are_compared_over_seeds_smoothed_and_coloured(page, dashboard, tmp_path):
    """24 runs have 12 sizes, each with two seeds; what is drawn is computed again here."""
    page.goto(f"{dashboard}/#compare?none=1&filter=T%3D8+d%3C16")
    expect(rows(page)).to_have_count(4)
    page.click("#chooseall")
    expect(page.locator("#curvelegend .entry")).to_have_count(4)
    settled(page)
    assert set(page.locator("#curvelegend .words").all_inner_texts()) == {
        f"d={d} seed={seed}" for d, seeds in ((4, (0, 12)), (8, (1, 13))) for seed in seeds
    }
    (alone, *_), store = traces(page), tmp_path / "runs"
    page.locator("#smooth").fill("2")
    curve = RunDirectory(store / ("0" * 16)).curve()
    loss = curve.loss
    assert eventually(lambda: traces(page)[0][1] != alone[1])
    wanted = [loss[max(i - r, 0) : i + r + 1].mean() for i in range(30) for r in [min(2, i, 29 - i)]]
    assert traces(page)[0][1] == pytest.approx(wanted, rel=1e-3)
    page.locator("#smooth").fill("0")
    page.check("#seeds")
    expect(page.locator("#curvelegend .entry")).to_have_count(2)
    assert page.locator("#curvelegend .entry").all_inner_texts()[0].split() == ["d=4", "2", "seeds"]
    settled(page)
    both = np.mean([RunDirectory(store / f"{i:016x}").curve().loss for i in (0, 12)], axis=0)
    assert traces(page)[0][1] == pytest.approx(both, rel=1e-3)
    page.select_option("#colour", "d")
    expect(page.locator("#curvelegend .words").first).to_have_text("d=4")
    assert len({colour for *_, colour in traces(page)}) == 2
    page.check("#logx")
    page.check("#logy")
    kinds = "['xaxis', 'yaxis'].map((a) => document.getElementById('curve').layout[a].type)"
    assert eventually(lambda: page.evaluate(kinds) == ["log", "log"])
    before = page.locator("#curvelegend").inner_text()
    page.reload()  # the address has it all
    expect(page.locator("#curvelegend .entry")).to_have_count(2)
    settled(page)
    assert page.locator("#curvelegend").inner_text() == before
    assert page.evaluate(kinds) == ["log", "log"]


def test_parallel_coordinates_narrow_the_filter(page, dashboard):
    page.goto(f"{dashboard}/#compare")
    expect(page.locator("#parallel polyline")).to_have_count(24)
    assert page.locator("#parallel .axis").all_text_contents() == ["T", "d", "plateau_steps"]
    page.locator("#parallel .tick", has_text=re.compile("^32$")).last.click()
    expect(rows(page)).to_have_count(6)
    expect(page.locator("#filter")).to_have_value("d=32")
    page.fill("#filter", "")
    expect(page.locator("#parallel polyline")).to_have_count(24)
    page.locator("#parallel").scroll_into_view_if_needed()
    box = page.locator("#parallel .brush").nth(0).bounding_box()  # T: 8 at the foot, 32 at the head
    middle = box["x"] + box["width"] / 2
    page.mouse.move(middle, box["y"] + 2)
    page.mouse.down()
    page.mouse.move(middle, box["y"] + 0.7 * box["height"])
    page.mouse.up()
    expect(rows(page)).to_have_count(16)
    assert set(column(page, "T")) == {"16", "32"}


def test_rows_come_page_by_page_and_then_as_they_change(page, tmp_path, monkeypatch):
    monkeypatch.setattr("unstuck.view.dashboard.runs.PAGE", 5)
    store = a_store(tmp_path / "runs", 24)
    with Server(store) as address:
        page.goto(f"{address}/#compare")
        expect(rows(page)).to_have_count(24)
        assert column(page, "run_id") == [f"{i:016x}" for i in range(24)]
        directory = RunDirectory(store / f"{17:016x}")
        status = directory.status()
        directory.write_status(status | {"result": status["result"] | {"steps": 98765}})
        (store / f"{3:016x}").rename(store / "zz")
        expect(page.locator("tr[data-run='zz']")).to_be_visible()
        assert column(page, "run_id") == [*(f"{i:016x}" for i in range(24) if i != 3), "zz"]
        assert column(page, "steps")[16] == "98,765"
    asked = [url for url in page.asked if "/api/runs" in url]
    assert sum("after=" in url for url in asked) == 4
    assert sum("?" not in url or url.endswith("?") for url in asked) == 1  # all others asked for changes


# -- Laws


def test_a_law_is_fitted_and_predicts(page, dashboard):
    page.goto(f"{dashboard}/#laws")
    expect(page.locator("#terms tr")).to_have_count(2)
    expect(page.locator("#banner")).to_be_hidden()
    page.fill("#formula", "d + T")
    page.fill("#sizes", "d=64 T=64")
    page.click("#fitnow")
    expect(page.locator("#prediction")).to_contain_text("1,536 steps")
    assert page.locator("#terms").inner_text().split()[1] == "1.000"
    page.reload()
    expect(page.locator("#prediction")).to_contain_text("1,536 steps")
    page.fill("#formula", "nonsense")
    page.click("#fitnow")
    expect(page.locator("#lerror")).to_contain_text("nonsense")


def test_runs_that_do_not_compare_are_coloured_and_left_out_by_a_click(page, tmp_path):
    with Server(mixed_store(tmp_path / "runs")) as address:
        page.goto(f"{address}/#laws")
        expect(page.locator("#bannertext")).to_contain_text("lr")
        expect(page.locator("#ignored")).to_have_value("lr")
        shown = page.locator("#lawlegend .words").all_inner_texts()
        assert shown == ["lr=0.0001", "lr=0.5"]
        dots = page.evaluate("document.getElementById('fit').data.slice(1).map((t) => [t.marker.color, t.x.length])")
        assert dots[0][0] != dots[1][0]
        assert dots[1][1] == 8
        page.click("#comparable")
        expect(page.locator("#banner")).to_be_hidden()
        expect(page.locator("#where")).to_have_value(re.compile("lr=0.0001"))
        expect(page.locator("#terms")).to_contain_text("1.000")
