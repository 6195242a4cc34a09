"""Quizzes in a real browser: two questions answered by keyboard alone, and how questions of all kinds look."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from explorer.browser.test_learn_view import follow
from helpers import looked
from helpers.explored import explored, read
from regard import learn
from regard.explorer.learning import Learning
from regard.explorer.opened import Opened
from regard.explorer.quizzes import MEASURED
from regard.learn.quizzes.deck import Deck
from regard.learn.quizzes.generate import draw
from regard.web.tiles import RecordTiles

CONCEPTS = learn.concepts()
PAST = datetime.now(UTC) - timedelta(days=30)


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


def test_two_questions_are_answered_by_keyboard_alone(opened, learning, browser_path, record):
    deck, due = Deck(learning.learner), CONCEPTS[9]
    deck.review(due, False, PAST)
    number = next(question for question in draw(record, MEASURED) if question.right is None)
    deck.review(number, False, PAST + timedelta(days=1))
    with explored(opened, browser_path, learning) as page:
        follow(page, "#/learn")
        page.get_by_text("2 quiz cards due").wait_for()
        page.get_by_role("link", name="Answer them").focus()
        page.keyboard.press("Enter")
        form = page.get_by_role("form", name="Question")
        form.get_by_text(due.text).wait_for()
        texts = form.locator("label").all_inner_texts()
        assert [text.replace("\n", " ").split(maxsplit=1)[1] for text in texts] == [
            choice.text for choice in due.choices
        ]
        # Nothing is answered yet, so nothing can be sent.
        assert form.get_by_role("button", name="Answer").is_disabled()
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Space")
        for _ in range(due.right):
            page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        answer = page.get_by_role("region", name="Answer")
        answer.get_by_role("heading", name=f"✓ Right: {due.expected}").wait_for()
        assert answer.locator(".why").inner_text() == due.explanation
        assert learning.learner.card(str(due.card_id)).due > datetime.now(UTC)
        # "Next" has the focus, and then the field of the next question.
        page.keyboard.press("Enter")
        form.get_by_text(number.text).wait_for()
        page.get_by_text("1 of 1 right").wait_for()
        page.keyboard.type("a lot")
        page.keyboard.press("Enter")
        # The browser says what is wrong, and nothing was sent.
        field = form.get_by_role("textbox")
        assert not field.evaluate("field => field.checkValidity()")
        for text in ("0.25", "0,25", "-1", ".5", "1e-3", "12."):
            field.fill(text)
            assert field.evaluate("field => field.checkValidity()"), text
        page.keyboard.press("ControlOrMeta+a")
        wrong = number.number + 3 * number.tolerance + 1
        page.keyboard.type(f"{wrong:g}")
        page.keyboard.press("Enter")
        answer.get_by_role("heading", name=f"✗ Not so: it is {number.expected}").wait_for()
        assert answer.locator(".why").inner_text() == number.explanation
        # The bars of its picture are the numbers of the picture.
        shown = [read(text) for text in answer.locator(".bars td:not(.bar)").all_inner_texts()]
        assert np.allclose(shown, number.shown.values[0], rtol=6e-3)
        page.keyboard.press("Enter")
        page.get_by_text("1 of 2 right").wait_for()
        form.get_by_text(CONCEPTS[0].text).wait_for()


@pytest.mark.parametrize("look", looked.LOOKS)
def test_questions_of_all_kinds_have_no_fault_and_fit_the_screen(
    opened, learning, browser_path, shot, look, record
):
    def kind(question) -> str:
        if question.choices and question.choices[0].picture:
            return "maps"
        if question.picture:
            return question.picture.kind
        return "number" if question.right is None else "words"

    one_of = {kind(question): question for question in (*CONCEPTS, *draw(record, MEASURED))}
    assert set(one_of) == {"maps", "bars", "map", "number", "words"}
    for days, question in enumerate(one_of.values()):
        Deck(learning.learner).review(question, False, PAST + timedelta(days=days))
    with explored(opened, browser_path, learning) as page:
        looked.put(page, look)
        follow(page, "#/learn?show=quiz")
        for name, question in one_of.items():
            form = page.get_by_role("form", name="Question")
            form.get_by_text(question.text).wait_for()
            if question.right is None:
                form.get_by_role("textbox").fill(f"{question.number:g}")
            else:
                form.get_by_role("radio").first.check()
            page.wait_for_timeout(200)
            shot(page, f"quiz-{name}-{look}")
            looked.check(page)
            if name == "maps":
                values = np.asarray(question.choices[0].picture.values)
                drawn = form.locator("canvas").first.evaluate("canvas => [canvas.height, canvas.width]")
                assert tuple(drawn) == values.shape
            form.get_by_role("button", name="Answer").click()
            answer = page.get_by_role("region", name="Answer")
            answer.wait_for()
            page.wait_for_timeout(200)
            shot(page, f"quiz-{name}-answered-{look}")
            looked.check(page)
            answer.get_by_role("button", name="Next").click()
            answer.wait_for(state="detached")
