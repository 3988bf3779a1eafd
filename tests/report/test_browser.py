"""The page in a real browser, at the width of a desktop, a phone and a sheet of paper."""

import shutil

import pytest
from test_report import FIGURES, TABLES

pytestmark = pytest.mark.browser
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("there is no Chromium; install one, e.g. apt install chromium")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(params=[(1280, "light"), (390, "dark")], ids=["desktop", "phone"])
def opened(browser, request, rendered):
    """The page, with everything that it logged and requested."""
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, seen = context.new_page(), []
    page.on("console", lambda message: seen.append(message.text))
    page.on("pageerror", lambda error: seen.append(str(error)))
    page.on("request", lambda request: seen.append(request.url))
    page.goto(rendered.as_uri())
    yield page, seen
    context.close()


def test_silent_and_alone(opened, rendered):
    _, seen = opened
    assert seen == [rendered.as_uri()], "no message, no error, no request beside the page itself"


def test_no_horizontal_scroll(opened):
    page, _ = opened
    assert page.evaluate("document.documentElement.scrollWidth") == page.viewport_size["width"]


def test_all_is_visible(opened):
    page, _ = opened
    assert page.locator("table").count() == len(TABLES)
    assert page.locator("figure svg").count() == len(FIGURES)
    for box in page.locator("table, figure svg").all():
        size = box.bounding_box()
        assert size["width"] > 150 and size["height"] > 40


def test_wide_tables_scroll_in_their_own_box(opened):
    page, _ = opened
    wide = page.evaluate("[...document.querySelectorAll('.table')].filter(b => b.scrollWidth > b.clientWidth).length")
    assert wide > 0
    caption = page.locator("caption span").nth(1).bounding_box()
    assert caption["x"] + caption["width"] <= page.viewport_size["width"], "captions are read without scrolling"


def test_code_is_shown_on_request(opened):
    page, _ = opened
    assert not page.locator("pre.code").first.is_visible()
    page.locator("#show-code").check()
    assert page.locator("pre.code").first.is_visible()


def test_on_paper(opened):
    """In print nothing is cut off: boxes that scroll on a screen fit on the sheet."""
    page, _ = opened
    page.set_viewport_size({"width": 720, "height": 1000})  # A4 without its margins, at 96 dots per inch
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    wide = "[...document.querySelectorAll('table, figure svg')].filter(b => b.getBoundingClientRect().right > 722)"
    assert page.evaluate(f"{wide}.map(b => b.textContent.trim().slice(0, 40))") == []
