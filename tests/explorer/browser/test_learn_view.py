"""Learn in a real browser: the path, exercises that are checked, bookmarks, notes; by mouse and by keyboard alone."""

from __future__ import annotations

import json

import pytest

from helpers import looked
from helpers.explored import explored
from regard import learn
from regard.explorer.learning import Learning
from regard.explorer.opened import Opened
from regard.learn.lessons import PATH
from regard.learn.store import Progress, from_document
from regard.web.tiles import RecordTiles

ATTENTION = learn.exercise("attention")
WRONG = ATTENTION.solved.replace(" / np.sqrt(query.shape[-1])", "")
EDITOR = "Your solution of attention"


@pytest.fixture
def learning(tmp_path):
    learning = Learning(f"sqlite:///{tmp_path / 'learn.db'}")
    yield learning
    learning.close()


@pytest.fixture
def opened(record):
    opened = Opened()
    opened.add(RecordTiles(record), "A pair")
    return opened


def follow(page, address: str) -> None:
    """Go to another view of the page."""
    page.evaluate("address => (location.hash = address)", address)


def fill(learner) -> None:
    """Something of everything."""
    learner.lesson(1, "done")
    learner.lesson(2, "begun")
    learner.checked("cosine", True, text=learn.exercise("cosine").solved)
    learner.checked("attention", False, text=WRONG, variant="no scale")
    learner.note("lesson 2", "Temperature is 1/β.")
    learner.bookmark("The second head", "#/head?record=r1&head=1", "A pair")
    learner.bookmark("Elsewhere", "#/head?record=r1&head=1", "Another record")


@pytest.mark.parametrize("look", looked.LOOKS)
def test_the_path_and_an_exercise_have_no_fault_and_fit_the_screen(
    opened, learning, browser_path, shot, look
):
    fill(learning.learner)
    options = {
        "light": {},
        "dark": {"color_scheme": "dark"},
        "phone": {"viewport": {"width": 390, "height": 844}},
    }
    with explored(opened, browser_path, learning, **options[look]) as page:
        follow(page, "#/learn")
        page.get_by_role("heading", name="Learn").wait_for()
        page.wait_for_timeout(200)
        shot(page, f"learn-{look}")
        looked.check(page)
        follow(page, "#/learn?exercise=attention")
        page.get_by_label(EDITOR).wait_for()
        page.get_by_role("button", name="Hint").click()
        page.get_by_role("region", name="Hints").wait_for()
        page.get_by_role("button", name="Check").click()
        page.get_by_role("region", name="Verdict").wait_for()
        page.wait_for_timeout(200)
        shot(page, f"learn-exercise-{look}")
        looked.check(page)
        page.get_by_label(EDITOR).fill(ATTENTION.solved)
        page.get_by_role("button", name="Check").click()
        page.get_by_text("A solution").click()
        shot(page, f"learn-passed-{look}")
        looked.check(page)
        page.get_by_role("button", name="Bookmark").wait_for(state="detached")
        follow(page, "#/model")
        page.get_by_role("button", name="Bookmark this view").click()
        page.get_by_role("dialog").wait_for()
        shot(page, f"learn-bookmark-{look}")
        looked.check(page)


def test_the_path_says_what_the_database_says(opened, learning, browser_path):
    fill(learning.learner)
    with explored(opened, browser_path, learning) as page:
        page.get_by_role("link", name="Learn").click()
        lessons = page.get_by_role("list", name="Lessons").locator("> li")
        page.get_by_text(
            f"1 of {len(PATH)} lessons done, 1 of {len(learn.exercises())} exercises passed"
        ).wait_for()
        assert lessons.count() == len(PATH)
        for line, title in zip(lessons.all(), PATH, strict=True):
            assert title.title in line.locator("h3").inner_text()
            names = [one.name for one in learn.exercises() if one.lesson == title.number]
            assert [link.get_attribute("href") for link in line.locator("ul a").all()] == [
                f"#/learn?exercise={name.replace(' ', '+')}" for name in names
            ]
        assert lessons.nth(1).get_by_label("Note on lesson 2").input_value() == "Temperature is 1/β."
        assert page.get_by_role("link", name="Go on: attention").is_visible()
        lessons.nth(4).get_by_label("Lesson 5 is").select_option("done")
        page.get_by_text("2 of 17 lessons done").wait_for()
        assert learning.learner.progress().lessons[5].state == "done"
        lessons.nth(4).locator("summary").click()
        note = lessons.nth(4).get_by_label("Note on lesson 5")
        note.fill("heads")
        note.blur()
        page.get_by_text("Note on lesson 5 saved").wait_for(state="attached")
        assert learning.learner.progress().notes["lesson 5"].text == "heads"


def test_an_exercise_says_what_is_wrong_and_goes_on_once_it_is_passed(
    opened, learning, browser_path, tmp_path
):
    file = tmp_path / "wrong.py"
    file.write_text(WRONG)
    with explored(opened, browser_path, learning) as page:
        follow(page, "#/learn?exercise=attention")
        editor = page.get_by_label(EDITOR)
        editor.wait_for()
        assert editor.input_value() == ATTENTION.unsolved
        editor.fill(WRONG)
        # A draft is stored without a check.
        page.get_by_text("Saved", exact=True).wait_for()
        assert learning.learner.solution("attention").text == WRONG
        page.get_by_role("button", name="Check").click()
        shown = page.get_by_role("region", name="Verdict")
        verdict = learn.check_file(file, "attention")
        shown.get_by_text(verdict.messages[0].text).wait_for()
        parts = shown.locator("pre").all_inner_texts()
        assert parts == [part for _, part in verdict.messages[0].example.lines()]
        assert page.get_by_text("A solution").count() == 0
        editor.fill(ATTENTION.solved)
        page.get_by_role("button", name="Check").click()
        page.get_by_role("heading", name="Passed", exact=True).wait_for()
        assert learning.learner.passed() == {"attention"}
        page.get_by_text("A solution").click()
        assert page.get_by_role("region", name="A solution").inner_text() == ATTENTION.solved
        page.get_by_role("link", name="Next: cosine").click()
        page.get_by_label("Your solution of cosine").wait_for()
        assert page.get_by_role("region", name="Verdict").count() == 0
        page.go_back()
        editor.wait_for()
        page.get_by_role("button", name="Begin anew").click()
        page.get_by_role("button", name="Begin anew", exact=True).click()
        page.wait_for_function(
            "text => document.querySelector('textarea').value === text", arg=ATTENTION.unsolved
        )
        assert learning.learner.passed() == set()


def test_a_view_is_bookmarked_and_comes_back(opened, learning, browser_path):
    with explored(opened, browser_path, learning) as page:
        follow(page, "#/head?record=r1&head=2&query=9&key=4")
        page.get_by_label("Map of").first.wait_for()
        page.get_by_role("button", name="Bookmark this view").click()
        name = page.get_by_role("dialog").get_by_label("Name")
        assert name.input_value() == "Head 0.2 · A pair"
        name.fill("An edge")
        page.get_by_role("button", name="Save").click()
        page.get_by_role("dialog").wait_for(state="hidden")
        (mark,) = learning.learner.progress().bookmarks.values()
        assert (mark.title, mark.address, mark.record) == (
            "An edge",
            "#/head?record=r1&head=2&query=9&key=4",
            "A pair",
        )
        learning.learner.bookmark("Gone", "#/model?record=r9", "A record of yesterday")
        page.get_by_role("link", name="Learn").click()
        marks = page.get_by_role("region", name="Bookmarks")
        marks.get_by_text("needs “A record of yesterday”, which is not open").wait_for()
        marks.get_by_role("link", name="An edge").click()
        page.get_by_label("Map of").first.wait_for()
        assert page.url.endswith("#/head?record=r1&head=2&query=9&key=4")
        page.go_back()
        page.get_by_role("button", name="Remove bookmark Gone").click()
        marks.get_by_text("Gone").wait_for(state="detached")
        assert sum(not one.removed for one in learning.learner.progress().bookmarks.values()) == 1


def test_data_is_taken_away_deleted_and_brought_back(opened, learning, browser_path, tmp_path):
    fill(learning.learner)
    before = learning.learner.progress()
    with explored(opened, browser_path, learning) as page:
        follow(page, "#/learn")
        with page.expect_download() as waiting:
            page.get_by_role("button", name="Export").click()
        file = tmp_path / "progress.json"
        waiting.value.save_as(file)
        assert from_document(json.loads(file.read_text())) == before
        page.get_by_role("button", name="Delete …").click()
        page.get_by_role("button", name="Delete all of it").click()
        page.get_by_text(f"0 of {len(PATH)} lessons done").wait_for()
        assert learning.learner.progress() == Progress()
        assert page.get_by_label("Note on lesson 2").input_value() == ""
        page.get_by_label("Import").set_input_files(file)
        page.get_by_text(f"1 of {len(PATH)} lessons done").wait_for()
        assert learning.learner.progress() == before
        file.write_text("no JSON")
        page.get_by_label("Import").set_input_files(file)
        page.get_by_text("must be a JSON file that was exported here").wait_for()


def tab_to(page, name: str) -> None:
    """Press Tab until what has this beginning of a name has the focus."""
    for _ in range(120):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            "(document.activeElement.getAttribute('aria-label') || document.activeElement.innerText || '').trim()"
        )
        if focused.startswith(name):
            return
    raise AssertionError(f"no way to {name!r} by Tab")


def test_an_exercise_is_done_by_keyboard_alone(opened, learning, browser_path):
    with explored(opened, browser_path, learning) as page:
        page.get_by_role("link", name="Learn").wait_for()
        tab_to(page, "Learn")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Learn").wait_for()
        tab_to(page, "○\nattention")
        page.keyboard.press("Enter")
        page.get_by_label(EDITOR).wait_for()
        tab_to(page, EDITOR)
        page.keyboard.press("Control+a")
        page.keyboard.press("Delete")
        lines = [
            "import numpy as np",
            "",
            "def attention(query, key, value):",
            "scores = query @ key.T / np.sqrt(query.shape[-1])",
            "weights = np.exp(scores - scores.max(-1, keepdims=True))",
            "return weights / weights.sum(-1, keepdims=True) @ value",
        ]
        for line in lines:
            # Enter goes on at the right indentation.
            page.keyboard.type(f"{line}\n")
        text = page.get_by_label(EDITOR).input_value()
        assert text.splitlines()[3:6] == [f"    {line}" for line in lines[3:]]
        # Tab is the editor's until Escape.
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.tagName") == "TEXTAREA"
        page.keyboard.press("Control+z")
        page.keyboard.press("Escape")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.innerText") == "Check"
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Passed", exact=True).wait_for()
        page.get_by_role("link", name="Next: ").wait_for()
        tab_to(page, "Next: ")
        page.keyboard.press("Enter")
        page.get_by_label("Your solution of").wait_for()
        assert learning.learner.passed() == {"attention"}
