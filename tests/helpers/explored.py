"""The explorer in a real browser: a server in this process, its built page in Chromium.

Knows servers and pages; not what a view shows.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import uvicorn
from playwright.sync_api import Page, sync_playwright
from starlette.types import ASGIApp

from regard.explorer.app import bundle, create_app
from regard.explorer.jobs import Jobs
from regard.explorer.learning import Learning
from regard.explorer.opened import Opened
from regard.explorer.security import Access
from regard.explorer.serve import address, bind
from regard.explorer.signing_in.sign_in import SignIn
from regard.explorer.worker import Worker

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def read(text: str) -> float:
    """A number as the front end writes it: with a real minus sign, and powers of ten below 0.001."""
    plain = text.strip().translate(str.maketrans("−⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "--0123456789", "\u2009"))
    return float(plain.replace("·10", "e"))


@contextmanager
def served(
    opened: Opened,
    learning: Learning | None = None,
    around: Callable[[ASGIApp], ASGIApp] = lambda app: app,
    signing_in: SignIn | None = None,
) -> Iterator[str]:
    """The address of a server of what is open, with its token, of a learner and with a sign-in where they are named.

    `around` is what stands before the app, such as `helpers.visited.AsVisitor`.
    """
    if not (bundle() / "index.html").is_file():
        pytest.skip("the front end is not built: make web")
    access, jobs = Access(), Jobs(opened, Worker(["false"]))
    listening = bind(access, 0)
    app = create_app(opened, jobs, access, learner=learning, signing_in=signing_in)
    server = uvicorn.Server(uvicorn.Config(around(app), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield address(access, listening)
    finally:
        server.should_exit = True
        jobs.close()
        thread.join(timeout=10)


@contextmanager
def explored(
    opened: Opened, browser_path: str, learning: Learning | None = None, **options
) -> Iterator[Page]:
    """A page of the explorer, at its first view; in it nothing may be raised or printed, and nothing refused."""
    heard: list[str] = []
    with served(opened, learning) as start, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=list(FLAGS))
        page = browser.new_page(**{"viewport": {"width": 1280, "height": 800}} | options)
        page.on("console", lambda message: heard.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: heard.append(f"error: {error}"))
        try:
            page.goto(start)
            yield page
        finally:
            browser.close()
    # OpenSeadragon remarks on a tile that comes after its head was left, which is nothing to complain of.
    assert [line for line in heard if "Ignoring tile" not in line] == []
