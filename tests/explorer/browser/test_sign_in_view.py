"""Signing in with a real provider in a real browser: from one device to the next, and what is said where it fails."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from helpers import looked
from helpers.explored import served
from house import guards
from regard.explorer.learning import Learning
from regard.explorer.opened import Opened
from regard.explorer.signing_in.client import Client
from regard.explorer.signing_in.provider import Provider
from regard.explorer.signing_in.sign_in import SignIn
from regard.explorer.visitors import HERE, Visitor
from regard.learn.store import from_document
from regard.web.tiles import RecordTiles

FOLDER = guards.ROOT / "tests" / "explorer" / "signing_in" / "provider"
PATIENCE = 90
ACCOUNT = "Account"


def missing(message: str) -> None:
    """Skip the test, and in CI fail it."""
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    """The address of npm's `oidc-provider`, which is certified by the OpenID Foundation."""
    if not (FOLDER / "node_modules").is_dir():
        missing("the OpenID provider is not installed: make provider")
    # It finds Node, this machine's or PyPI's.
    command = ["bash", str(guards.ROOT / "scripts" / "provider.sh"), "run"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    # A program that says nothing must not make the tests wait for ever.
    timer = threading.Timer(PATIENCE, process.kill)
    timer.start()
    address = process.stdout.readline().strip()
    timer.cancel()
    try:
        assert address.startswith("http://localhost:"), "the provider must start, and say where it is"
        yield address
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def url(tmp_path) -> str:
    """A database that all devices share."""
    return f"sqlite:///{tmp_path / 'learn.db'}"


@pytest.fixture
def device(chromium, record, url):
    """A server with a browser of its own, at the page of Learn; nothing may be raised or printed there."""
    complaints: list[str] = []

    @contextmanager
    def opened_device(issuer: str, client_id: str = "regard-public", secret: str = "", **options):
        opened, learning = Opened(), Learning(url)
        opened.add(RecordTiles(record), "A pair")
        sign_in = SignIn(Provider(Client(issuer, client_id, secret)), learning, alone=True)
        with ExitStack() as stack:
            address = stack.enter_context(served(opened, learning, signing_in=sign_in))
            context = chromium.new_context(**{"viewport": {"width": 1280, "height": 800}} | options)
            stack.callback(context.close)
            stack.callback(learning.close)
            page = context.new_page()
            page.set_default_timeout(1000 * PATIENCE)
            here = address.partition("?")[0]

            def note(text: str, source: str) -> None:
                # The provider's own pages are not ours to judge; a page that says why has the status of a failure.
                if source.startswith(here) and not source.startswith(f"{here}sign-in"):
                    complaints.append(text)

            page.on("console", lambda line: note(line.text, line.location.get("url", "")))
            page.on("pageerror", lambda error: note(str(error), page.url))
            page.goto(address)
            page.goto(f"{here}#/learn")
            page.get_by_role("heading", name="Learn").wait_for()
            yield page, learning

    yield opened_device
    assert complaints == []


def sign_in(page, name: str) -> None:
    """Press the link, and do at the provider what it asks for."""
    page.get_by_role("link", name="Sign in at localhost").click()
    page.get_by_placeholder("Enter any login").fill(name)
    page.get_by_placeholder("and password").fill("any")
    page.get_by_role("button", name="Sign-in").click()
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("region", name=ACCOUNT).get_by_text(
        f"Signed in as {name.title()} of the tests"
    ).wait_for()


def test_progress_is_merged_and_comes_along_to_another_device(device, issuer, tmp_path):
    ann = Visitor(issuer, "ann")
    with device(issuer) as (page, learning):
        learning.learner_of(HERE).lesson(1, "done")
        learning.learner_of(HERE).note("lesson 2", "why √d?")
        before = learning.learner_of(HERE).progress()
        # From a view of Learn one comes back to that very view.
        page.reload()
        page.get_by_text("1 of 17 lessons done").wait_for()
        sign_in(page, "ann")
        assert page.url.endswith("/#/learn")
        account = page.get_by_role("region", name=ACCOUNT)
        account.get_by_text("What was done here before is yours now: 1 lesson, 1 note.").wait_for()
        page.get_by_text("1 of 17 lessons done").wait_for()
        after = learning.learner_of(ann).progress()
        assert (after.lessons, after.notes) == (before.lessons, before.notes)
        assert before.log.keys() <= after.log.keys(), "the lines of both logs"
        # What is done now is hers alone.
        page.get_by_label("Lesson 5 is").select_option("done")
        page.get_by_text("2 of 17 lessons done").wait_for()
        assert learning.learner_of(HERE).progress().lessons.keys() == {1}
        with page.expect_download() as waiting:
            page.get_by_role("button", name="Export").click()
        file = tmp_path / "progress.json"
        waiting.value.save_as(file)
        document = json.loads(file.read_text())
        assert document["learner"] == {"issuer": issuer, "subject": "ann"}
        assert from_document(document) == learning.learner_of(ann).progress()
        account.get_by_role("button", name="Sign out").click()
        page.get_by_text("1 of 17 lessons done").wait_for()
        page.wait_for_function("() => document.activeElement.innerText.startsWith('Sign in at')")
        learning.learner_of(HERE).lesson(7, "begun")
    # A server and a browser of their own, and the same database.
    with device(issuer) as (page, learning):
        sign_in(page, "ann")
        page.get_by_text("2 of 17 lessons done").wait_for()
        page.get_by_role("region", name=ACCOUNT).get_by_text("yours now: 1 lesson.").wait_for()
        assert learning.learner_of(ann).progress().lessons.keys() == {1, 5, 7}
        page.get_by_role("button", name="Delete …").click()
        page.get_by_text("They are those of Ann of the tests.").wait_for()
        page.get_by_role("button", name="Delete all of it").click()
        page.get_by_text("0 of 17 lessons done").wait_for()
        assert learning.learner_of(ann).progress().lessons == {}
        assert learning.learner_of(HERE).progress().lessons.keys() == {1, 7}


def test_two_people_in_one_browser_stay_apart_and_a_secret_works_too(device, issuer):
    with device(issuer, "regard-secret", "hush") as (page, learning):
        learning.learner_of(HERE).lesson(1, "done")
        sign_in(page, "ann")
        page.get_by_text("1 of 17 lessons done").wait_for()
        page.get_by_role("button", name="Sign out").click()
        # The provider remembers who signed in there: another one begins afresh.
        page.context.clear_cookies(domain="localhost")
        sign_in(page, "ben")
        # What was done here before went to Ann, once.
        page.get_by_text("0 of 17 lessons done").wait_for()
        assert "yours now" not in page.get_by_role("region", name=ACCOUNT).inner_text()
        assert learning.learner_of(Visitor(issuer, "ben")).progress().lessons == {}


def test_signing_in_and_out_by_keyboard_alone(device, issuer):
    with device(issuer) as (page, _):
        link = page.get_by_role("link", name="Sign in at localhost")
        link.wait_for()
        for _ in range(200):
            page.keyboard.press("Tab")
            if link.evaluate("link => link === document.activeElement"):
                break
        page.keyboard.press("Enter")
        page.get_by_placeholder("Enter any login").wait_for()
        page.keyboard.type("eve")
        page.keyboard.press("Tab")
        page.keyboard.type("any")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Continue").press("Enter")
        leave = page.get_by_role("button", name="Sign out")
        leave.press("Enter")
        link.wait_for()
        page.wait_for_function("() => document.activeElement.innerText.startsWith('Sign in at')")


def test_who_refuses_comes_back_and_reads_so(device, issuer, shot):
    with device(issuer) as (page, _):
        page.get_by_role("link", name="Sign in at localhost").click()
        page.get_by_role("link", name="Cancel").click()
        page.get_by_role("heading", name="Not signed in").wait_for()
        assert "did not sign you in" in page.get_by_role("main").inner_text()
        for look in looked.LOOKS:
            looked.put(page, look)
            shot(page, f"sign-in-refused-{look}")
            looked.check(page)
        page.get_by_role("link", name="Back to Learn").click()
        page.get_by_role("link", name="Sign in at localhost").wait_for()


@pytest.mark.parametrize("look", looked.LOOKS)
def test_the_account_has_no_fault_and_fits_the_screen(device, issuer, shot, look):
    with device(issuer) as (page, learning):
        looked.put(page, look)
        page.get_by_role("link", name="Sign in at localhost").scroll_into_view_if_needed()
        shot(page, f"sign-in-{look}")
        looked.check(page)
        learning.learner_of(HERE).lesson(1, "done")
        learning.learner_of(HERE).bookmark("The diagonal", "#/head?call=1", "A pair")
        sign_in(page, "ann")
        page.get_by_role("button", name="Delete …").click()
        page.get_by_role("region", name=ACCOUNT).scroll_into_view_if_needed()
        shot(page, f"signed-in-{look}")
        looked.check(page)


def test_a_provider_that_is_down_is_a_sentence_on_a_page(device, shot):
    # A port of this machine on which nobody listens.
    with device("http://localhost:9") as (page, _):
        page.get_by_role("link", name="Sign in at localhost:9").click()
        page.get_by_role("heading", name="Not signed in").wait_for()
        assert "cannot be reached" in page.get_by_role("main").inner_text()
        shot(page, "sign-in-down")
        looked.check(page)
        page.go_back()
        page.get_by_role("link", name="Sign in at localhost:9").wait_for()
