"""The whole path of a learner, walked by keyboard alone: no pointer event happens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from helpers.explored import explored
from helpers.visited import visitor
from regard import learn
from regard.explorer.learning import Learning
from regard.explorer.opened import Opened
from regard.learn.quizzes.deck import Deck
from regard.web.tiles import RecordTiles

EXERCISE = learn.exercise("attention")
# What a pointer or a finger does; the click of a key has no detail.
WATCH = """
window.pointed = [];
for (const kind of ["pointerdown", "pointermove", "mousedown", "touchstart", "wheel"])
  addEventListener(kind, event => window.pointed.push(event.type), true);
addEventListener("click", event => event.detail > 0 && window.pointed.push("click"), true);
"""
# The name of what has the focus: as it is labeled, or its text.
NAME = r"""() => {
  const one = document.activeElement;
  const label = one.labels?.[0];
  const text = one.getAttribute("aria-label") || (label && label.innerText) || one.innerText || "";
  return text.replace(/\s+/g, " ").trim();
}"""
BODY = (
    "scores = query @ key.T{scale}",
    "weights = np.exp(scores - scores.max(-1, keepdims=True))",
    "return weights / weights.sum(-1, keepdims=True) @ value",
)


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


class Keys:
    """A keyboard, and nothing else: what it is on is found by pressing Tab."""

    def __init__(self, page) -> None:
        self.page = page

    def to(self, name: str, key: str = "Tab") -> None:
        """Press Tab until what has this beginning of a name has the focus, and can be seen to have it."""
        names = []
        for _ in range(300):
            self.page.keyboard.press(key)
            names.append(self.page.evaluate(NAME))
            if names[-1].startswith(name):
                ring = self.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
                assert ring != "none", f"{name} does not show that it has the focus"
                return
        raise AssertionError(f"no way to {name!r} by {key}, but to {names}")

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def write(self, text: str) -> None:
        self.page.keyboard.type(text)

    def solve(self, scale: str) -> None:
        """Write a solution in place of what is in the editor, and check it."""
        self.press("Control+a", "Delete")
        for line in ("import numpy as np", "", "def attention(query, key, value):", *BODY):
            self.write(f"{line.format(scale=scale)}\n")
        self.press("Control+Enter")


def test_the_whole_path_is_walked_by_keyboard_alone(opened, learning, browser_path):
    learner = learning.learner
    question = learn.concepts()[9]
    Deck(learner).review(question, False, datetime.now(UTC) - timedelta(days=3))
    begun = learning.learner_of(visitor("teacher")).classes.begin("Attention, spring")
    with explored(opened, browser_path, learning) as page:
        page.evaluate(WATCH)
        keys = Keys(page)
        page.get_by_role("link", name="Learn").wait_for()
        keys.to("Learn")
        keys.press("Enter")
        page.get_by_role("heading", name="Learn").wait_for()

        # A lesson: how far it is, and a note on it.
        keys.to("Lesson 3 is")
        keys.press("ArrowDown")
        page.get_by_text("Lesson 3 is begun.").wait_for(state="attached")
        assert learner.progress().lessons[3].state == "begun"
        keys.to("Note")
        keys.press("Enter", "Tab")
        keys.write("why the square root?")
        keys.press("Tab")
        page.get_by_text("Note on lesson 3 saved.").wait_for(state="attached")
        assert learner.noted("lesson 3") == "why the square root?"

        # Its exercise: a wrong answer, what is wrong with it, a hint, the right one, the solution.
        keys.to("○ attention", "Shift+Tab")
        keys.press("Enter")
        page.get_by_label("Your solution of attention").wait_for()
        keys.to("Your solution of attention")
        keys.solve("")
        page.get_by_role("heading", name="Not passed yet").wait_for()
        text = next(known.text for known in EXERCISE.variants if known.name == "no scale")
        page.get_by_role("region", name="Verdict").get_by_text(text).wait_for()
        keys.press("Escape")
        keys.to("Hint (")
        keys.press("Enter")
        page.get_by_role("region", name="Hints").get_by_text(EXERCISE.hints[0]).wait_for()
        keys.to("Begin anew …")
        keys.press("Enter")
        # The question is asked where one is, and what destroys nothing comes first.
        page.wait_for_function(f"({NAME})() === 'Leave it'")
        keys.press("Enter")
        page.wait_for_function(f"({NAME})() === 'Begin anew …'")
        keys.to("Your solution of attention", "Shift+Tab")
        keys.solve(" / np.sqrt(query.shape[-1])")
        page.get_by_role("heading", name="Passed", exact=True).wait_for()
        assert learner.passed() == {"attention"}
        keys.press("Escape")
        keys.to("A solution")
        keys.press("Enter")
        solution = page.get_by_role("region", name="A solution")
        solution.wait_for()
        assert solution.inner_text() == EXERCISE.solved
        keys.to("‹ All lessons")
        keys.press("Enter")

        # A question of the quiz.
        page.get_by_text("1 quiz card due").wait_for()
        keys.to("Answer them")
        keys.press("Enter")
        form = page.get_by_role("form", name="Question")
        form.get_by_text(question.text).wait_for()
        keys.to("A ")
        keys.press("Space", *["ArrowDown"] * question.right, "Enter")
        page.get_by_role("heading", name=f"✓ Right: {question.expected}").wait_for()
        page.wait_for_function(f"({NAME})().startsWith('Next')")
        assert learner.card(str(question.card_id)).due > datetime.now(UTC)

        # A view to come back to.
        keys.to("Model")
        keys.press("Enter")
        keys.to("Bookmark this view")
        keys.press("Enter")
        page.get_by_role("dialog").wait_for()
        assert page.evaluate(NAME) == "Name"
        keys.press("Control+a")
        keys.write("All heads")
        keys.press("Enter")
        page.get_by_role("dialog").wait_for(state="hidden")
        (mark,) = learner.progress().bookmarks.values()
        assert mark.title == "All heads"

        # A class, with a name, without one, and left.
        keys.to("Learn")
        keys.press("Enter")
        page.get_by_role("link", name="All heads").wait_for()
        keys.to("Classes")
        keys.press("Enter")
        page.get_by_role("form", name="Join a class").wait_for()
        keys.to("Join code")
        keys.write(begun.code.lower())
        keys.to("Show my name to the teacher")
        keys.press("Space")
        keys.to("Name")
        keys.write("Ann")
        keys.press("Enter")
        page.get_by_text("Your teacher sees you as Ann, in this row:").wait_for()
        assert [one.shown for one in learner.classes.memberships()] == ["Ann"]
        keys.to("Take the name away")
        keys.press("Enter")
        page.get_by_text("As fewer than 3 members show no name").wait_for()
        keys.to("Leave …")
        keys.press("Enter")
        page.wait_for_function(f"({NAME})() === 'Stay'")
        keys.to("Leave the class", "Shift+Tab")
        keys.press("Enter")
        page.get_by_role("heading", name="Attention, spring").wait_for(state="detached")
        assert learner.classes.memberships() == []
        assert page.evaluate("window.pointed") == []
        # The watch is one that sees.
        page.get_by_role("link", name="Learn").click()
        assert "click" in page.evaluate("window.pointed")
