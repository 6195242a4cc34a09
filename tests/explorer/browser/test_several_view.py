"""Several visitors in a browser: the page to enter, a session to leave, and what others do not see."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from explorer.several import LIMITS, PASSWORD
from explorer.several import app_of as app_for
from helpers import looked
from regard.explorer import serve
from regard.explorer.desks import ManyDesks
from regard.explorer.learning import Learning
from regard.explorer.line import RunLine
from regard.explorer.opened import Model, Opened
from regard.explorer.security import Access
from regard.explorer.several import Several
from regard.explorer.visitors import Sessions
from regard.explorer.worker import Worker
from regard.web.tiles import RecordTiles

PATIENCE = 60_000
UNCHECKED = "Solutions of exercises are not checked on this server, as it has no box to run them in."


@pytest.fixture
def address(record, tmp_path) -> Iterator[str]:
    """The address of a server of several visitors, which looks at one record together."""
    stand_in = Path(__file__).parents[1] / "stand_in.py"
    opened = Opened([Model("fast", "Fast", "transformers", source="fast")])
    opened.add(RecordTiles(record), "A pair", "record = ...")
    learning = Learning(
        f"sqlite:///{tmp_path / 'learn.db'}", runs_code=False, unchecked=UNCHECKED, several=True
    )
    sessions = Sessions()
    desks = ManyDesks(opened, RunLine(Worker([sys.executable, str(stand_in)])), LIMITS, sessions.holds)
    several, access = Several(desks, learning, sessions), Access(password=PASSWORD, several=True)
    listening = serve.bind(access, 0)
    running = uvicorn.Server(uvicorn.Config(app_for(opened, several, access), log_level="error"))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    yield serve.address(access, listening)
    running.should_exit = True
    thread.join(10)
    listening.close()
    several.close()
    learning.close()


@pytest.fixture
def browser(chromium):
    """Opens a browser of somebody: nothing is shared with another one."""
    contexts = []

    def opened(**options):
        context = chromium.new_context(reduced_motion="reduce", **options)
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        return context.new_page()

    yield opened
    for context in contexts:
        context.close()


def enter(page, address: str, view: str = "", password: str = PASSWORD) -> None:
    """Open a view and enter the password, by keyboard alone."""
    page.goto(f"{address}{view}")
    # The field takes the focus itself, on a busy machine a moment after the page is there.
    page.locator("#password:focus").wait_for()
    page.keyboard.type(password)
    page.keyboard.press("Enter")


def test_a_wrong_password_is_said_and_the_right_one_leads_to_the_view(browser, address, shot):
    page = browser(viewport={"width": 1280, "height": 800})
    complaints: list[str] = []
    page.on("console", lambda line: complaints.append(line.text))
    enter(page, address, "#/learn", "not the password")
    page.get_by_role("alert").filter(has_text="not the password").wait_for()
    shot(page, "enter-wrong")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Your session").wait_for()
    # What stood behind # is where the visitor wanted to go.
    assert page.url.endswith("#/learn")
    assert not [line for line in complaints if "Content Security Policy" in line], complaints
    page.get_by_role("region", name="Your session").scroll_into_view_if_needed()
    shot(page, "several-learn")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_page_to_enter_is_accessible_and_fits(browser, address, shot, theme, width, height):
    page = browser(viewport={"width": width, "height": height}, color_scheme=theme, bypass_csp=True)
    page.goto(address)
    page.get_by_label("Password").wait_for()

    looked.check(page)
    shot(page, f"enter-{theme}-{width}")


def test_visitors_see_their_own_notes_and_lose_them_when_they_leave(browser, address):
    ann, ben = browser(bypass_csp=True), browser()
    for page in (ann, ben):
        enter(page, address, "#/learn")
        page.get_by_role("heading", name="Your session").wait_for()
    for page, state in ((ann, "done"), (ben, "open")):
        answer = page.evaluate(
            "async (state) => (await (await fetch('api/learn/lessons/3', {method: 'POST', headers: "
            "{'content-type': 'application/json'}, body: JSON.stringify({state})})).json()).done",
            state,
        )
        assert answer == (1 if state == "done" else 0)
    looked.check(ann)
    ann.get_by_role("button", name="Leave …").press("Enter")
    ann.get_by_role("button", name="End the session").press("Enter")
    ann.get_by_label("Password").wait_for()
    enter(ann, address, "#/learn")
    ann.get_by_role("heading", name="Your session").wait_for()
    # Somebody new, who has done nothing.
    ann.get_by_text("0 of").first.wait_for()
    assert ben.evaluate("async () => (await fetch('api/state')).status") == 200


def test_where_solutions_are_not_checked_the_page_says_so(browser, address, shot):
    page = browser(viewport={"width": 1280, "height": 800}, bypass_csp=True)
    enter(page, address, "#/learn?exercise=attention")
    page.get_by_text(UNCHECKED).wait_for()
    assert page.get_by_role("button", name="Check", exact=True).is_disabled()
    looked.check(page)
    shot(page, "several-unchecked")
