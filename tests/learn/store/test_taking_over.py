"""What was done before signing in becomes the signed-in learner's: once, and the other one stays as it is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings

from learn.store.drawn import PROGRESSES
from regard.learn.store import Progress, merge
from regard.learn.store.learner import TAKEN
from regard.learn.store.progress import Note, keyed, since

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def pair(store):
    """Whoever has not signed in, and Ann."""
    return store.learner(), store.learner("https://id.example", "ann")


def without_mark(progress: Progress) -> Progress:
    """A progress without the line that says that it was taken over."""
    log = {key: one for key, one in progress.log.items() if one.kind != TAKEN}
    return replace(progress, log=log)


def test_what_was_done_before_is_merged_and_stays(pair):
    before, ann = pair
    before.lesson(1, "done")
    before.checked("attention", passed=True, text="x", variant="")
    before.note("lesson 1", "old")
    ann.note("lesson 1", "newer")
    ann.checked("attention", passed=False, text="y", variant="no scale")
    old, hers = before.progress(), ann.progress()
    assert ann.take_over(before) == old
    assert ann.progress() == merge(hers, old)
    assert ann.progress().notes["lesson 1"].text == "newer" and len(ann.progress().log) == 3
    assert without_mark(before.progress()) == old


def test_nothing_is_merged_twice_and_nothing_reaches_the_next_one(pair, store):
    before, ann = pair
    ben = store.learner("https://id.example", "ben")
    before.lesson(1, "done")
    ann.take_over(before)
    before.lesson(2, "done")
    assert ben.take_over(before).lessons.keys() == {2}
    assert ben.progress().lessons.keys() == {2}
    # Deleted is deleted: signing in again brings nothing back.
    ann.delete()
    assert ann.take_over(before) == Progress() == ann.progress()


def test_where_nothing_was_done_nothing_is_written(pair):
    before, ann = pair
    assert ann.take_over(before) == Progress()
    assert before.progress() == ann.progress() == Progress()


@settings(max_examples=15, suppress_health_check=list(HealthCheck), deadline=None)
@given(PROGRESSES, PROGRESSES)
def test_it_is_merging_by_the_one_rule(pair, one, other):
    before, ann = pair
    before.delete()
    ann.delete()
    before.absorb(without_mark(one))
    ann.absorb(without_mark(other))
    ann.take_over(before)
    assert ann.progress() == merge(without_mark(one), without_mark(other))


def test_two_that_take_each_other_over_at_once_both_end(pair):
    one, other = pair
    one.lesson(1, "done")
    other.lesson(2, "done")
    with ThreadPoolExecutor(2) as pool:
        for _ in range(10):
            results = [pool.submit(one.take_over, other), pool.submit(other.take_over, one)]
            for result in results:
                result.result(60)
    assert one.progress().lessons.keys() == other.progress().lessons.keys() == {1, 2}


def test_since_leaves_out_what_was_there_at_that_time():
    notes = keyed([Note("lesson 1", "x", NOON), Note("lesson 2", "y", NOON + timedelta(seconds=1))])
    progress = Progress(notes=notes)
    assert since(progress, None) is progress
    assert since(progress, NOON).notes.keys() == {"lesson 2"}
    assert since(progress, NOON - timedelta(seconds=1)) == progress
