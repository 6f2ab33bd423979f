"""Chromium, headless, for tests of dashboard and report. They are skipped where there is none, but not in CI."""

import os
import shutil
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import expect

ROOT = Path(__file__).parents[1]
CHROMIUM = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("CI"), reason="no Chromium; `apt-get install chromium` brings it"
)
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync")
QUIET += ("--no-first-run", "--disable-component-update")
WAIT = 60_000  # milliseconds: machines are noisy, and what is asked for is that it comes
expect.set_options(timeout=WAIT)


def rows(page):
    return page.locator("#table tbody tr")


def column(page, name):
    """The shown values of a column, from above."""
    at = [cell.rstrip(" ▲▼") for cell in page.locator("#table thead th").all_text_contents()].index(name)
    return [row.split("\t")[at] for row in page.locator("#table tbody").inner_text().splitlines()]


def settled(page):
    """Until the page has its answers and has drawn them."""
    page.wait_for_load_state("networkidle")
    expect(page.locator("#busy")).to_be_hidden()


def too_wide(page):
    """What stands out of the window on the right."""
    return page.evaluate(
        """() => [...document.querySelectorAll("body *")]
        .filter((e) => e.getBoundingClientRect().right > innerWidth + 1)
        .map((e) => `${e.tagName}#${e.id}.${e.getAttribute("class")}`)"""
    )


def picture(page, path, *, whole=False):
    """A screenshot as small as PNG makes it; in a palette thin lines would lose their colours."""
    page.screenshot(path=path, full_page=whole)
    with Image.open(path) as image:
        image.convert("RGB").save(path, optimize=True)


def new_page(browser):
    """A page that records what it asks for and what goes wrong."""
    page = browser.new_page(viewport={"width": 1280, "height": 960}, device_scale_factor=1)
    page.set_default_timeout(WAIT)
    page.asked, page.wrong = [], []
    page.on("request", lambda r: page.asked.append(r.url))
    page.on("pageerror", lambda e: page.wrong.append(str(e)))
    page.on("console", lambda m: page.wrong.append(m.text) if _is_ours(m) else None)
    page.on("dialog", lambda d: (page.wrong.append(d.message), d.dismiss()))
    return page


def _is_ours(message):
    """An error of a script; not an answer of 400, or a server that a test has stopped."""
    return message.type == "error" and "load resource" not in message.text
