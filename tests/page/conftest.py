"""A real browser, and pages opened in it from disk."""

from contextlib import contextmanager

import pytest
from playwright.sync_api import sync_playwright

from page import samples
from regard.page import report

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@pytest.fixture(scope="module")
def browser(browser_path):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def opened(browser, tmp_path):
    """A context that opens HTML; in it nothing may be printed, raised or asked of a network."""

    @contextmanager
    def shown(html, quiet=True, view="", before="", **options):
        path = tmp_path / "page.html"
        path.write_text(html, encoding="utf-8")
        page, heard = browser.new_page(**{"viewport": {"width": 1300, "height": 1000}} | options), []
        page.on("console", lambda message: heard.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: heard.append(f"error: {error}"))
        page.on("request", lambda request: heard.append(request.url))
        if before:
            page.add_init_script(before)
        try:
            page.goto(path.as_uri() + view)
            yield page
        finally:
            page.close()
        if quiet:
            assert [line for line in heard if not line.startswith(("data:", path.as_uri()))] == []

    return shown


@pytest.fixture
def show(opened):
    """A context that opens a view of a record's report and waits until it is drawn."""

    @contextmanager
    def shown(
        record, view="#/model", *, wanted="a.tile canvas, .pane[data-state=ready]", told=None, **options
    ):
        with opened(report(record, **(told or {})), view=view, **options) as page:
            page.wait_for_selector(wanted, state="attached")
            page.evaluate("document.querySelector('.regard').scrollIntoView()")
            page.wait_for_timeout(200)
            yield page

    return shown


@pytest.fixture(scope="module")
def decoder():
    return samples.decoder(samples.pieces(29), layers=3, heads=5, vectors=True)
