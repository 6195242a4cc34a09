"""One learner of a database: what is asked, and what is written. Knows no exercises and no pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias
from uuid import uuid4

from sqlalchemy import Connection, delete, select

from regard.errors import ArgumentError
from regard.learn.store.classes import Classes
from regard.learn.store.document import MOST_NAME, check_text, from_document, to_document
from regard.learn.store.engine import faults, writing
from regard.learn.store.identified import Identified
from regard.learn.store.progress import (
    ROWS,
    Bookmark,
    Card,
    Event,
    Lesson,
    LessonState,
    Note,
    Progress,
    Row,
    Solution,
    key_of,
    merge,
    since,
)
from regard.learn.store.rows import TABLE_OF, after, all_rows, put, read, rows_of
from regard.learn.store.tables import LEARNERS

# Bookmarks of one learner, characters of a title and of an address.
MOST_BOOKMARKS, MOST_TITLE, MOST_ADDRESS = 500, 200, 8000
# The kind of the lines of the log that say that all before them was taken over.
TAKEN = "taken"
# Gives the row of a kind and a key that is there, in the transaction that is about to write.
Before: TypeAlias = Callable[[type[Row], Any], Row | None]


class Learner(Identified):
    """What one learner has done. Every method that writes returns once it is on the disk.

    Args:
        engine: from `connect`. issuer, subject: who the learner is, as in `Store.learner`.
    """

    @property
    def classes(self) -> Classes:
        """The classes that the learner teaches or is in."""
        return Classes(self._engine, self.issuer, self.subject)

    # --- what is there -------------------------------------------------------------------------------------

    def progress(self) -> Progress:
        """All of it."""
        with faults(self._engine), self._engine.connect() as connection:
            return all_rows(connection, self._id(connection))

    def solution(self, exercise: str) -> Solution | None:
        """What was written for one exercise; None for nothing."""
        row = self._one(Solution, exercise)
        assert row is None or isinstance(row, Solution), "a row of the table of exercises"
        return row

    def card(self, card_id: str) -> Card | None:
        """One quiz card; None where it was never answered."""
        row = self._one(Card, card_id)
        assert row is None or isinstance(row, Card), "a row of the table of cards"
        return row

    def cards(self) -> dict[int, Mapping[str, Any]]:
        """What py-fsrs knows of each quiz card that was answered, by its number."""
        # A document that was taken in may name cards otherwise, and those are of no question here.
        return {int(one.card_id): one.state for one in self.all_cards() if one.card_id.isdecimal()}

    def all_cards(self) -> list[Card]:
        """The quiz cards that were answered."""
        with faults(self._engine), self._engine.connect() as connection:
            return [Card(*row) for row in connection.execute(rows_of(Card, self._id(connection)))]

    def noted(self, about: str) -> str:
        """The note about something; "" for none."""
        row = self._one(Note, about)
        assert row is None or isinstance(row, Note), "a row of the table of notes"
        if row is None:
            return ""
        return row.text

    def passed(self) -> set[str]:
        """The names of the exercises that are passed."""
        table = TABLE_OF[Solution]
        with faults(self._engine), self._engine.connect() as connection:
            wanted = select(table.c.exercise).where(
                table.c.learner_id == self._id(connection), table.c.passed.is_(True)
            )
            return set(connection.scalars(wanted))

    def due(self, until: datetime) -> list[Card]:
        """The quiz cards that are to be asked until a time, the longest due first."""
        table = TABLE_OF[Card]
        with faults(self._engine), self._engine.connect() as connection:
            wanted = rows_of(Card, self._id(connection)).where(table.c.due <= until).order_by(table.c.due)
            return [Card(*row) for row in connection.execute(wanted)]

    # --- what is written -----------------------------------------------------------------------------------

    def lesson(self, number: int, state: LessonState) -> None:
        """Say how far a lesson is."""
        self._write(lambda now, _: [Lesson(number, state, now), _event(now, "lesson", number, state=state)])

    def write(self, exercise: str, text: str) -> None:
        """Remember what is written for an exercise, without a check of it."""
        check_text(text, "the solution")
        self._write(lambda now, before: [_changed(before, exercise, now, text=text)])

    def hint(self, exercise: str, hints: int) -> None:
        """Remember how many hints were shown."""
        self._write(lambda now, before: [_changed(before, exercise, now, hints=hints)])

    def checked(self, exercise: str, passed: bool, *, text: str = "", variant: str = "") -> None:
        """Remember a check.

        Args:
            exercise: its name. passed: whether it passed; what has passed once stays so until it begins anew.
            text: what was checked. variant: the name of the known mistake, or "".
        """
        check_text(text, "the solution")

        def rows(now: datetime, before: Before) -> list[Row]:
            changed = _changed(before, exercise, now, text=text, passed=passed)
            return [changed, _event(now, "check", exercise, passed=passed, variant=variant)]

        self._write(rows)

    def begin_anew(self, exercise: str) -> None:
        """Forget what was written for an exercise and that it was passed; its checks stay in the log."""
        self._write(
            lambda now, _: [Solution(exercise, "", False, 0, now), _event(now, "reset", exercise)],
        )

    def answered(self, card_id: str, state: Mapping[str, Any], due: datetime, **detail: Any) -> None:
        """Remember the answer to a quiz card.

        Args:
            card_id: of the question. state: what py-fsrs knows of the card, as JSON. due: when it is asked next.
            detail: what else the log says of the answer, as JSON.
        """
        check_text(card_id, "card_id", MOST_NAME)
        self._write(
            lambda now, _: [Card(card_id, dict(state), due, now), _event(now, "card", card_id, **detail)]
        )

    def bookmark(self, title: str, address: str, record: str = "") -> str:
        """Remember a view of the explorer.

        Args:
            title: for people. address: of the view, `#/…`. record: the title of the record that it shows.

        Returns:
            The identity of the bookmark.

        Raises:
            ArgumentError: no address of a view, a title that is too long, or too many bookmarks.
        """
        check_text(title, "the title", MOST_TITLE)
        check_text(address, "the address", MOST_ADDRESS)
        check_text(record, "the record's title")
        if not address.startswith("#/"):
            raise ArgumentError(
                f"the address must be one of a view, which begins with '#/', got {address!r:.60}"
            )
        if sum(not one.removed for one in self.progress().bookmarks.values()) >= MOST_BOOKMARKS:
            raise ArgumentError(f"at most {MOST_BOOKMARKS} bookmarks may be set: remove one first")
        identity = uuid4().hex
        self._write(lambda now, _: [Bookmark(identity, title, address, record, False, now)])
        return identity

    def remove_bookmark(self, identity: str) -> None:
        """Take a bookmark away; one that is not there is none already."""

        def rows(now: datetime, before: Before) -> list[Row]:
            if before(Bookmark, identity) is None:
                return []
            return [Bookmark(identity, "", "", "", True, now)]

        self._write(rows)

    def note(self, about: str, text: str) -> None:
        """Write a note about something, in place of the one before."""
        check_text(about, "what the note is about", MOST_NAME)
        check_text(text, "the note")
        self._write(lambda now, _: [Note(about, text, now)])

    # --- all of it -----------------------------------------------------------------------------------------

    def absorb(self, other: Progress) -> None:
        """Merge another progress into this one, as `merge` does: of each thing the later, and both logs."""
        with faults(self._engine), writing(self._engine) as connection:
            _absorb(connection, self._locked(connection), other)

    def take_over(self, other: Learner) -> Progress:
        """Merge what another learner of this database has done since it was last taken over, and return that.

        The other one stays as it is, with a line in its log: what it had done was merged once, and reaches nobody else.

        Args:
            other: such as whoever had not signed in.
        """
        with faults(self._engine), writing(self._engine) as connection:
            # Always in one order: two that take each other over must not wait for each other for ever.
            pair = sorted((self, other), key=lambda one: (one.issuer, one.subject))
            numbers = {id(one): one._locked(connection) for one in pair}
            progress = all_rows(connection, numbers[id(other)])
            times = [one.at for one in progress.log.values() if one.kind == TAKEN]
            new = since(progress, max(times, default=None))
            if new != Progress():
                _absorb(connection, numbers[id(self)], new)
                put(connection, numbers[id(other)], _event(datetime.now(UTC), TAKEN, "all"))
            return new

    def export(self) -> dict[str, Any]:
        """All of it as one JSON document, with who the learner is, and the classes, which `take_in` leaves aside."""
        who = {"issuer": self.issuer, "subject": self.subject}
        return to_document(self.progress()) | {"learner": who, "classes": self.classes.export()}

    def take_in(self, document: Any) -> None:
        """Merge what `export` gave, here or elsewhere.

        Raises:
            ArgumentError: it is something else.
        """
        self.absorb(from_document(document))

    def delete(self) -> None:
        """Delete everything about this learner, who may begin anew."""
        with faults(self._engine), writing(self._engine) as connection:
            # All other tables follow, by their foreign keys.
            connection.execute(delete(LEARNERS).where(*self._who()))

    # --- rows ----------------------------------------------------------------------------------------------

    def _one(self, kind: type[Row], key: Any) -> Row | None:
        with faults(self._engine), self._engine.connect() as connection:
            return read(connection, kind, self._id(connection), key)

    def _write(self, rows: Callable[[datetime, Before], list[Row]]) -> None:
        """Write rows that depend on the time and on what was there, in one transaction."""
        with faults(self._engine), writing(self._engine) as connection:
            learner = self._locked(connection)

            def before(kind: type[Row], key: Any) -> Row | None:
                return read(connection, kind, learner, key)

            for row in rows(datetime.now(UTC), before):
                put(connection, learner, after(row, before(type(row), key_of(row))))


def _absorb(connection: Connection, learner: int, other: Progress) -> None:
    """Write what a merge with another progress changes."""
    before = all_rows(connection, learner)
    merged = merge(before, other)
    for name in ROWS:
        old, new = getattr(before, name), getattr(merged, name)
        for key, row in new.items():
            if row != old.get(key):
                put(connection, learner, row)


def _changed(
    before: Before,
    exercise: str,
    now: datetime,
    *,
    text: str | None = None,
    passed: bool = False,
    hints: int = 0,
) -> Solution:
    """A solution with some of it changed; what is not said stays, and what has passed once has passed."""
    old = before(Solution, exercise)
    assert old is None or isinstance(old, Solution), "a row of the table of exercises"
    if old is None:
        return Solution(exercise, text or "", passed, hints, now)
    if text is None:
        text = old.text
    return Solution(exercise, text, passed or old.passed, max(hints, old.hints), now)


def _event(now: datetime, kind: str, about: object, **detail: Any) -> Event:
    return Event(uuid4().hex, kind, str(about), detail, now)
