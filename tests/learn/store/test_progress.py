"""Progress as values: the laws of merging, and a document that comes back as it went."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given

from learn.store.drawn import PROGRESSES
from regard.errors import ArgumentError
from regard.learn.store import (
    Card,
    Event,
    Lesson,
    Note,
    Progress,
    Solution,
    from_document,
    merge,
    to_document,
)
from regard.learn.store.progress import ROWS, keyed

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@given(PROGRESSES, PROGRESSES, PROGRESSES)
def test_merging_is_commutative_associative_and_idempotent(one, other, third):
    assert merge(one, other) == merge(other, one)
    assert merge(merge(one, other), third) == merge(one, merge(other, third))
    assert merge(one, one) == one == merge(one, Progress())
    assert merge(merge(one, other), other) == merge(one, other)


@given(PROGRESSES, PROGRESSES)
def test_of_each_thing_the_later_state_stays_and_no_line_of_a_log_is_lost(one, other):
    merged = merge(one, other)
    for name in ROWS:
        here, there, both = (getattr(progress, name) for progress in (one, other, merged))
        assert set(both) == set(here) | set(there)
        for key, row in both.items():
            rows = [side[key] for side in (here, there) if key in side]
            assert row in rows and row.at == max(side.at for side in rows)


def test_the_later_of_two_is_the_one_that_was_written_later_whatever_it_says():
    early = Progress(
        lessons=keyed([Lesson(3, "done", NOON)]),
        exercises=keyed([Solution("attention", "right", True, 2, NOON)]),
    )
    late = Progress(
        lessons=keyed([Lesson(3, "begun", NOON + timedelta(1))]),
        exercises=keyed([Solution("attention", "", False, 0, NOON + timedelta(1))]),
        log=keyed([Event("e", "reset", "attention", {}, NOON + timedelta(1))]),
    )
    assert merge(early, late) == late


@given(PROGRESSES)
def test_a_document_gives_the_same_progress_again(progress):
    assert from_document(json.loads(json.dumps(to_document(progress)))) == progress


def test_times_of_other_zones_are_taken_as_utc():
    document = to_document(Progress(notes=keyed([Note("lesson 1", "x", NOON)])))
    document["notes"][0]["at"] = "2026-03-01T14:00:00+02:00"
    assert from_document(document).notes["lesson 1"].at == NOON


GOOD = to_document(
    Progress(
        lessons=keyed([Lesson(3, "done", NOON)]),
        exercises=keyed([Solution("attention", "x", True, 2, NOON)]),
        cards=keyed([Card("q", {"stability": 1.5}, NOON, NOON)]),
    )
)


def bent(name: str, **changes) -> dict:
    """The document with one line of one list changed."""
    return GOOD | {name: [GOOD[name][0] | changes]}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ([], "document of the format"),
        (GOOD | {"format": "other"}, "document of the format"),
        (GOOD | {"version": 2}, "of version 1, got 2"),
        (GOOD | {"notes": {}}, "notes must be a list"),
        (GOOD | {"notes": [None]}, r"notes\[0\] must have exactly about, text, at"),
        (bent("lessons", more=1), r"lessons\[0\] must have exactly"),
        (bent("lessons", state="finished"), r"lessons\[0\].state must be a LessonState, got 'finished'"),
        (bent("lessons", lesson=True), "lesson must be a int"),
        (bent("lessons", lesson=1 << 40), "lesson must be a int"),
        (bent("lessons", at="2026-03-01T12:00:00"), "a time with its offset"),
        (bent("lessons", at=5), "a time with its offset"),
        (bent("exercises", passed=1), "passed must be a bool"),
        (bent("exercises", text="x" * 100_001), "at most 100000 characters"),
        (bent("exercises", exercise="x" * 201), "at most 200 characters"),
        (bent("exercises", text="a\0"), "the character 0"),
        (bent("exercises", text="\ud800"), "surrogate"),
        (bent("cards", state=[]), r"cards\[0\].state must be a Mapping"),
        (bent("cards", state={"x": float("nan")}), r"cards\[0\].state must be"),
    ],
)
def test_what_is_no_such_document_is_refused_with_its_line(document, why):
    assert from_document(GOOD).lessons[3] == Lesson(3, "done", NOON)
    with pytest.raises(ArgumentError, match=why):
        from_document(document)


def test_rows_are_values():
    note = Note("lesson 1", "x", NOON)
    assert replace(note, text="y") != note == Note("lesson 1", "x", NOON)
