"""Classes in a real browser: a teacher and two learners on one database, and how it looks."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from playwright.sync_api import sync_playwright

from explorer.browser.conftest import SHOTS
from explorer.browser.test_learn_view import follow
from helpers import looked
from helpers.explored import FLAGS, served
from helpers.visited import HEADER, AsVisitor, visitor
from regard import learn
from regard.explorer.learning import Learning
from regard.explorer.opened import Opened
from regard.learn.classroom import blank_texts, classroom, learners_table, mistakes_table
from regard.web.tables import frame, written

NAME = "Attention, spring"


@pytest.fixture
def learning(tmp_path):
    learning = Learning(f"sqlite:///{tmp_path / 'learn.db'}")
    yield learning
    learning.close()


@pytest.fixture
def person(learning):
    """The learner of a name."""
    return lambda name: learning.learner_of(visitor(name))


@contextmanager
def everybody(learning, browser_path):
    """Opens a page as a visitor of a name; in none of them may anything be raised or printed."""
    heard: list[str] = []
    with served(Opened(), learning, AsVisitor) as start, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=list(FLAGS))

        def enter(name: str):
            context = browser.new_context(
                viewport={"width": 1280, "height": 800}, extra_http_headers={HEADER: name}, locale="en-US"
            )
            page = context.new_page()
            page.on("console", lambda message: heard.append(f"{name}: {message.text}"))
            page.on("pageerror", lambda error: heard.append(f"{name}: {error}"))
            page.goto(start)
            follow(page, "#/learn?show=classes")
            page.get_by_role("heading", name="Classes", exact=True).wait_for()
            page.get_by_role("form", name="Join a class").wait_for()
            return page

        yield enter
        browser.close()
    assert heard == []


def rows(page, name: str) -> list[list[str]]:
    """The cells of a table, row by row."""
    table = page.get_by_role("table", name=name)
    return [line.locator("th, td").all_inner_texts() for line in table.locator("tbody tr").all()]


def expected(room) -> list[list[str]]:
    """The rows of the learners as the page writes them."""
    return [
        [
            line.label,
            str(line.lessons),
            str(line.lesson or "–"),
            str(len(line.passed)),
            ", ".join(line.begun) or "–",
            f"{line.last.month}/{line.last.day}/{line.last.year}" if line.last else "–",
        ]
        for line in room.learners
    ]


def fill(person) -> str:
    """A class of three who show a name and four who do not, with something of everything; returns its identity."""
    taught = person("teacher").classes
    begun = taught.begin(NAME)
    exercises = learn.exercises()
    for number in range(7):
        learner = person(f"learner {number}")
        learner.classes.join(begun.code, ["Ann", "Ben Ångström", "Ji-woo"][number] if number < 3 else "")
        for lesson in range(1, number + 2):
            learner.lesson(lesson, "done" if lesson <= number else "begun")
        for one in exercises[: number + 2]:
            for known in one.variants[: number % 3 + 1]:
                learner.checked(one.name, False, text="x", variant=known.name)
            learner.checked(one.name, number > 1, text="x")
    return begun.id


def seen(person, identity: str):
    """What the package says that the teacher sees."""
    return classroom(person("teacher").classes.works(identity, blank_texts()))


def test_a_teacher_and_two_learners(learning, person, browser_path, tmp_path):
    with everybody(learning, browser_path) as enter:
        teacher, ann, ben = enter("teacher"), enter("ann"), enter("ben")
        form = teacher.get_by_role("form", name="Begin a class")
        form.get_by_label("Name").fill(NAME)
        form.get_by_role("button", name="Begin a class").click()
        teacher.get_by_role("link", name=NAME).click()
        code = teacher.get_by_role("region", name="Join code").locator("strong").inner_text()
        (begun,) = person("teacher").classes.teaching()
        assert (begun.name, begun.code) == (NAME, code)
        teacher.get_by_text("Nobody has joined yet.").wait_for()
        for page, name in ((ann, "Ann"), (ben, "")):
            form = page.get_by_role("form", name="Join a class")
            # As it was read aloud: small letters, no dash.
            form.get_by_label("Join code").fill(code.replace("-", "").lower())
            # Nobody's name is shown unasked.
            assert not form.get_by_role("checkbox").is_checked()
            if name:
                form.get_by_role("checkbox").check()
                form.get_by_label("Name", exact=True).fill(name)
            form.get_by_role("button", name="Join").click()
            page.get_by_role("heading", name=NAME).wait_for()
        ann.get_by_text("Your teacher sees you as Ann, in this row:").wait_for()
        ben.get_by_text("As fewer than 3 members show no name, you are in no row").wait_for()
        person("ann").lesson(1, "done")
        person("ann").checked("cosine", False, text="secret", variant="no norm")
        person("ben").checked("cosine", True, text="secret")
        teacher.get_by_role("button", name="Refresh").click()
        teacher.get_by_text("2 members", exact=True).wait_for()
        teacher.get_by_text("1 member shows no name.").wait_for()
        room = seen(person, begun.id)
        assert rows(teacher, "Learners of the class") == expected(room)
        assert [row[:5] for row in expected(room)] == [["Ann", "1", "1", "0", "cosine"]]
        # The row that Ann is shown is the one that her teacher sees.
        ann.reload()
        ann.get_by_text("in this row").wait_for()
        assert rows(ann, f"What the teacher of {NAME} sees of you") == expected(room)
        for table, columns in (("learners", learners_table), ("mistakes", mistakes_table)):
            with teacher.expect_download() as waiting:
                teacher.get_by_role("button", name=f"CSV: {table}").click()
            waiting.value.save_as(tmp_path / table)
            wanted = columns(room)
            assert (tmp_path / table).read_bytes() == written(frame(wanted, len(wanted[0].values)), "csv")
        ann.get_by_role("button", name="Take the name away").click()
        ann.get_by_text("As fewer than 3 members show no name").wait_for()
        assert seen(person, begun.id).learners == () and seen(person, begun.id).hidden == 2
        ben.get_by_role("button", name="Leave …").click()
        ben.get_by_role("button", name="Leave the class").click()
        ben.get_by_role("heading", name=NAME).wait_for(state="detached")
        assert len(person("teacher").classes.works(begun.id)) == 1
        teacher.get_by_role("button", name="New code").click()
        teacher.get_by_text(code).wait_for(state="detached")
        teacher.get_by_role("button", name="Close").click()
        teacher.get_by_text("and its members stay").wait_for()
        teacher.get_by_role("button", name="Rename …").click()
        form = teacher.get_by_role("form", name="Rename")
        form.get_by_label("Name").fill("Summer")
        form.get_by_role("button", name="Save").click()
        teacher.get_by_role("heading", name="Summer").wait_for()
        (renamed,) = person("teacher").classes.teaching()
        assert (renamed.name, renamed.code, renamed.members) == ("Summer", "", 1)
        teacher.get_by_role("button", name="Delete …").click()
        teacher.get_by_role("button", name="Delete the class").click()
        teacher.get_by_role("form", name="Begin a class").wait_for()
        assert person("teacher").classes.teaching() == [] == person("ann").classes.memberships()


@pytest.mark.parametrize("look", looked.LOOKS)
def test_classes_have_no_fault_and_fit_the_screen(learning, person, browser_path, shot, look):
    identity = fill(person)
    other = person("learner 2").classes.begin("Reading group")
    for name in ("learner 0", "learner 3"):
        person(name).classes.join(other.code)
    with everybody(learning, browser_path) as enter:
        teacher, learner = enter("teacher"), enter("learner 3")
        room = seen(person, identity)
        for page in (teacher, learner, both := enter("learner 2")):
            looked.put(page, look)
        teacher.get_by_role("link", name=NAME).click()
        teacher.get_by_role("table", name="Learners of the class").wait_for()
        assert rows(teacher, "Learners of the class") == expected(room)
        assert rows(teacher, "Exercises of the class") == [
            [
                line.name,
                str(line.lesson),
                str(line.begun),
                str(line.passed),
                f"{line.checks:g}" if line.checks is not None else "–",
                line.mistakes[0].variant if line.mistakes else "–",
            ]
            for line in room.exercises
        ]
        met = [(mistake.learners, line, mistake) for line in room.exercises for mistake in line.mistakes]
        met.sort(key=lambda one: -one[0])
        bars = teacher.get_by_role("region", name="Mistakes that most learners meet").locator("li")
        assert bars.count() == 8
        for bar, (learners, line, mistake) in zip(bars.all(), met, strict=False):
            assert bar.locator("p").inner_text() == f"{line.name} {mistake.text}"
            assert bar.locator(".count").inner_text() == f"{learners} of {line.checked} learners"
            widths = bar.locator(".track").evaluate(
                "track => track.firstElementChild.getBoundingClientRect().width / track.getBoundingClientRect().width"
            )
            assert abs(widths - learners / line.checked) < 0.01
        shot(teacher, f"class-{look}")
        teacher.screenshot(path=str(SHOTS / f"class-all-{look}.png"), full_page=True)
        looked.check(teacher)
        teacher.get_by_role("button", name="Delete …").click()
        teacher.get_by_role("button", name="Rename …").click()
        shot(teacher, f"class-asking-{look}")
        looked.check(teacher)
        for page, name in ((learner, "joined"), (both, "both")):
            page.get_by_role("list", name="Classes you are in").get_by_role("table").first.wait_for()
            page.get_by_role("checkbox").check()
            page.wait_for_timeout(200)
            shot(page, f"classes-{name}-{look}")
            looked.check(page)


def test_a_wrong_code_and_too_many_are_said(learning, browser_path):
    with served(Opened(), learning, AsVisitor) as start, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=list(FLAGS))
        page = browser.new_page(extra_http_headers={HEADER: "ann"})
        page.goto(start)
        follow(page, "#/learn?show=classes")
        page.get_by_label("Join code").fill("2222-2222")
        for _ in range(10):
            with page.expect_response("**/memberships"):
                page.get_by_role("button", name="Join").click()
        page.get_by_role("alert").get_by_text("the code must be that of an open class").wait_for()
        page.get_by_role("button", name="Join").click()
        page.get_by_role("alert").get_by_text("at most 10 wrong codes").wait_for()
        follow(page, "#/learn?show=classes&class=elsewhere")
        page.get_by_role("alert").get_by_text("the class must be one of yours").wait_for()
        browser.close()
