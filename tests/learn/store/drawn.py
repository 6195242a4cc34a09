"""Progresses drawn by hypothesis, of few keys and times, so that they meet."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from regard.learn.store import Bookmark, Card, Event, Lesson, Note, Progress, Solution
from regard.learn.store.progress import keyed

TIMES = st.integers(0, 3).map(lambda second: datetime(2026, 3, 1, 12, 0, second, 125, UTC))
KEYS = st.sampled_from(["a", "ü b", "c"])
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=9)
PLAIN = st.dictionaries(
    TEXTS.map(lambda text: text.replace("\\", "")), st.integers(-9, 9) | st.booleans() | TEXTS, max_size=2
)

KINDS = {
    "lessons": st.builds(Lesson, st.integers(1, 3), st.sampled_from(["open", "begun", "done"]), TIMES),
    "exercises": st.builds(Solution, KEYS, TEXTS, st.booleans(), st.integers(0, 4), TIMES),
    "cards": st.builds(Card, KEYS, PLAIN, TIMES.map(lambda time: time + timedelta(days=1)), TIMES),
    "bookmarks": st.builds(Bookmark, KEYS, TEXTS, TEXTS, TEXTS, st.booleans(), TIMES),
    "notes": st.builds(Note, KEYS, TEXTS, TIMES),
    "log": st.builds(Event, KEYS, TEXTS, TEXTS, PLAIN, TIMES),
}
PROGRESSES = st.builds(
    Progress, **{name: st.lists(rows, max_size=4).map(keyed) for name, rows in KINDS.items()}
)
