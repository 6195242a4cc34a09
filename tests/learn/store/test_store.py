"""The same questions to SQLite and to PostgreSQL."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from sqlalchemy import delete, func, select

from learn.store.drawn import PROGRESSES
from regard.errors import ArgumentError
from regard.learn.store import Progress, Solution, Store, from_document, merge
from regard.learn.store.engine import connect, writing
from regard.learn.store.progress import ROWS
from regard.learn.store.tables import METADATA, TABLES

GOOGLE = "https://accounts.example"


def fill(learner) -> None:
    """Write something into every table."""
    learner.lesson(3, "begun")
    learner.checked("attention", False, text="wrong", variant="no scale")
    learner.answered("q1", {"stability": 2.5, "due": "x"}, datetime.now(UTC) + timedelta(days=1), right=True)
    learner.bookmark("The diagonal", "#/head?call=1", "A record")
    learner.note("lesson 3", "why √d?")


def test_what_is_written_is_there_for_who_opens_the_database_next(url, store):
    learner = store.learner()
    assert learner.progress() == Progress() and learner.solution("attention") is None
    fill(learner)
    learner.checked("attention", True, text="right")
    learner.lesson(3, "done")
    again = Store(url).learner()
    progress = again.progress()
    assert progress == learner.progress()
    assert again.solution("attention") == progress.exercises["attention"]
    assert (progress.lessons[3].state, progress.exercises["attention"].text) == ("done", "right")
    assert again.passed() == {"attention"}
    (mark,) = progress.bookmarks.values()
    assert (mark.title, mark.address, mark.record, mark.removed) == (
        "The diagonal",
        "#/head?call=1",
        "A record",
        False,
    )
    assert progress.notes["lesson 3"].text == again.noted("lesson 3") == "why √d?"
    assert again.noted("lesson 4") == ""
    log = sorted(progress.log.values(), key=lambda event: event.at)
    assert [(event.kind, event.about, event.detail) for event in log] == [
        ("lesson", "3", {"state": "begun"}),
        ("check", "attention", {"passed": False, "variant": "no scale"}),
        ("card", "q1", {"right": True}),
        ("check", "attention", {"passed": True, "variant": ""}),
        ("lesson", "3", {"state": "done"}),
    ]
    assert all(event.at.tzinfo == UTC for event in log)


def test_what_has_passed_stays_passed_until_it_begins_anew(store):
    learner = store.learner()
    learner.hint("attention", 2)
    learner.hint("attention", 1)
    learner.checked("attention", True, text="right")
    learner.checked("attention", False, text="wrong again")
    solution = learner.solution("attention")
    assert (solution.passed, solution.text, solution.hints) == (True, "wrong again", 2)
    learner.write("attention", "draft")
    assert learner.solution("attention").text == "draft" and learner.passed() == {"attention"}
    learner.begin_anew("attention")
    solution = learner.solution("attention")
    assert (solution.passed, solution.text, solution.hints) == (False, "", 0)
    assert len(learner.progress().log) == 3


def test_cards_are_due_in_their_order_and_at_their_time(store):
    learner, now = store.learner(), datetime(2026, 3, 1, 12, tzinfo=UTC)
    for name, days in (("late", 2), ("first", -1), ("now", 0)):
        learner.answered(name, {"step": days}, now + timedelta(days=days))
    assert [card.card_id for card in learner.due(now)] == ["first", "now"]
    assert learner.card("late").due == now + timedelta(days=2)
    assert learner.card("late").state == {"step": 2} and learner.card("none") is None
    assert store.learner(GOOGLE, "1").due(now) == []


def test_a_bookmark_that_was_removed_does_not_come_back_from_elsewhere(store):
    learner = store.learner()
    identity = learner.bookmark("x", "#/model")
    elsewhere = learner.progress()
    learner.remove_bookmark(identity)
    learner.remove_bookmark("unknown")
    learner.absorb(elsewhere)
    (mark,) = learner.progress().bookmarks.values()
    assert mark.removed and mark.title == mark.address == ""


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda learner: learner.bookmark("x", "https://elsewhere.example"), "one of a view"),
        (lambda learner: learner.bookmark("x" * 201, "#/model"), "at most 200"),
        (lambda learner: learner.bookmark("x", "#/" + "x" * 8000), "at most 8000"),
        (lambda learner: learner.note("lesson 1", "a\0b"), "character 0"),
        (lambda learner: learner.note("x" * 201, "a"), "at most 200"),
        (lambda learner: learner.write("attention", "\udfff"), "surrogate"),
        (lambda learner: learner.take_in({"format": "other"}), "of the format"),
    ],
)
def test_what_no_database_holds_is_refused_before_it_is_asked(store, wrong, why):
    learner = store.learner()
    with pytest.raises(ArgumentError, match=why):
        wrong(learner)
    assert learner.progress() == Progress()


@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(one=PROGRESSES, other=PROGRESSES)
def test_absorbing_is_merging(store, one, other):
    learner = store.learner(GOOGLE, "drawn")
    learner.delete()
    learner.absorb(one)
    assert learner.progress() == one
    learner.absorb(other)
    assert learner.progress() == merge(one, other)


def test_an_export_goes_into_another_database(store, tmp_path):
    learner = store.learner(GOOGLE, "117")
    fill(learner)
    document = json.loads(json.dumps(learner.export()))
    assert document["learner"] == {"issuer": GOOGLE, "subject": "117"}
    assert from_document(document) == learner.progress()
    other = Store(f"sqlite:///{tmp_path / 'other.db'}").learner()
    other.note("lesson 3", "later")
    other.take_in(document)
    assert other.progress().notes["lesson 3"].text == "later"
    assert other.progress().log.keys() == learner.progress().log.keys()


def test_learners_are_their_issuer_and_subject(store):
    one, same = store.learner(GOOGLE, "117"), store.learner(GOOGLE, "117")
    others = [store.learner(), store.learner(GOOGLE, "118"), store.learner("https://other.example", "117")]
    fill(one)
    assert same.progress() == one.progress() != Progress()
    assert all(other.progress() == Progress() for other in others)
    with pytest.raises(ArgumentError, match="at most 255"):
        store.learner("x" * 256, "1")


@pytest.mark.parametrize("name", TABLES)
def test_deleting_a_learner_empties_every_table_and_leaves_the_others(url, store, name):
    # Those of classes are tested beside them.
    tables = set(TABLES) | {"learners", "classes", "members"}
    assert tables == set(METADATA.tables), "a new table must be deleted from too"
    one, other = store.learner(GOOGLE, "1"), store.learner(GOOGLE, "2")
    fill(one)
    fill(other)
    engine = connect(url)
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(TABLES[name])) >= 2
    before = other.progress()
    one.delete()
    with engine.connect() as connection:
        left = set(connection.scalars(select(TABLES[name].c.learner_id)))
        assert len(left) == 1
    assert one.progress() == Progress() and other.progress() == before
    # Who was deleted may begin anew.
    fill(one)
    assert one.progress() != Progress()


def test_the_cascade_is_the_databases_own(url, store):
    fill(store.learner(GOOGLE, "1"))
    store.learner(GOOGLE, "1").classes.join(store.learner(GOOGLE, "2").classes.begin("A").code)
    engine = connect(url)
    with writing(engine) as connection:
        for table in METADATA.tables.values():
            assert connection.scalar(select(func.count()).select_from(table)) > 0
        connection.execute(delete(METADATA.tables["learners"]))
        for table in METADATA.tables.values():
            assert connection.scalar(select(func.count()).select_from(table)) == 0


def test_a_clock_that_was_set_back_does_not_make_the_newest_the_oldest(store):
    learner = store.learner()
    future = datetime.now(UTC) + timedelta(days=400)
    learner.absorb(Progress(exercises={"attention": Solution("attention", "old", True, 0, future)}))
    learner.write("attention", "new")
    solution = learner.solution("attention")
    assert solution.text == "new" and solution.at > future


def test_every_field_of_progress_has_a_table():
    assert list(ROWS) == list(TABLES)
