"""The classes of one learner, who teaches them or is in them. Knows no exercises and no pages."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, delete, func, select, update

from regard.errors import ArgumentError
from regard.learn.store.code import new_code, plain, shown
from regard.learn.store.document import check_text
from regard.learn.store.engine import faults, writing
from regard.learn.store.identified import Identified
from regard.learn.store.members import Membership, Taught, Work
from regard.learn.store.tables import CLASSES, MEMBERS
from regard.learn.store.works import works

# Classes that one learner teaches, those that one is in, members of one class, characters of a name.
MOST_TAUGHT, MOST_JOINED, MOST_MEMBERS, MOST_NAME = 50, 50, 300, 80
# Of three digits, drawn by lot: the order in which people joined says nothing, and in another class they have others.
NUMBERS = range(100, 1000)


class NoClassError(ArgumentError):
    """There is no such class, or it is none of this learner's."""


class Classes(Identified):
    """What one learner asks and changes of classes. What is not the learner's is not there: `NoClassError`."""

    # --- as a teacher --------------------------------------------------------------------------------------

    def begin(self, name: str) -> Taught:
        """Begin a class, which this learner teaches.

        Raises:
            ArgumentError: a name that is empty, too long or not printable, or too many classes.
        """
        values: dict[str, Any] = {
            "id": uuid4().hex,
            "name": check_name(name, "the class's name"),
            "code": new_code(),
        }
        with faults(self._engine), writing(self._engine) as connection:
            teacher = self._locked(connection)
            if _count(connection, CLASSES.c.learner_id == teacher, CLASSES.c.id) >= MOST_TAUGHT:
                raise ArgumentError(f"at most {MOST_TAUGHT} classes may be taught: delete one first")
            values |= {"learner_id": teacher, "at": datetime.now(UTC)}
            connection.execute(CLASSES.insert().values(values))
        return self.taught(values["id"])

    def teaching(self) -> list[Taught]:
        """The classes that the learner teaches, the latest first."""
        with faults(self._engine), self._engine.connect() as connection:
            return self._taught(connection, CLASSES.c.learner_id == self._id(connection))

    def taught(self, identity: str) -> Taught:
        """One class that the learner teaches.

        Raises:
            NoClassError: there is none.
        """
        with faults(self._engine), self._engine.connect() as connection:
            wanted = (CLASSES.c.id == identity) & (CLASSES.c.learner_id == self._id(connection))
            for one in self._taught(connection, wanted):
                return one
        raise _none(identity)

    def rename(self, identity: str, name: str) -> Taught:
        """Call a class otherwise; as `begin` and `taught` raise."""
        return self._changed(identity, name=check_name(name, "the class's name"))

    def renew(self, identity: str) -> Taught:
        """Give a class another code: the one before ends, and a class that was closed is open again."""
        return self._changed(identity, code=new_code())

    def close(self, identity: str) -> Taught:
        """Close a class: its code ends, and its members stay."""
        return self._changed(identity, code=None)

    def end(self, identity: str) -> None:
        """Delete a class with all memberships; what its members have done stays theirs."""
        with faults(self._engine), writing(self._engine) as connection:
            wanted = (CLASSES.c.id == identity) & (CLASSES.c.learner_id == self._id(connection))
            if connection.execute(delete(CLASSES).where(wanted)).rowcount == 0:
                raise _none(identity)

    def works(self, identity: str, blank: Collection[str] = ()) -> list[Work]:
        """What the members of a class have done, for its teacher alone.

        Args:
            identity: of the class. blank: texts of exercises that are not begun: the files to fill in.

        Raises:
            NoClassError: the learner teaches no such class.
        """
        self.taught(identity)
        with faults(self._engine), self._engine.connect() as connection:
            return works(connection, MEMBERS.c.class_id == identity, blank)

    # --- as a member ---------------------------------------------------------------------------------------

    def join(self, code: str, name: str = "") -> Membership:
        """Join a class; who is in it already changes the name alone.

        Args:
            code: as it was read aloud. name: that the teacher may see; "": none.

        Raises:
            NoClassError: no open class has this code.
            ArgumentError: a name that cannot be shown, a class of one's own, or one that is full.
        """
        name = check_shown(name)
        with faults(self._engine), writing(self._engine) as connection:
            wanted = select(CLASSES.c.id, CLASSES.c.learner_id).where(CLASSES.c.code == plain(code))
            row = connection.execute(wanted.with_for_update()).one_or_none()
            if row is None:
                raise NoClassError("the code must be that of an open class, as its teacher shows it")
            identity, teacher = row
            if teacher == self._id(connection):
                raise ArgumentError("a class must be joined by others than its teacher")
            self._enter(connection, identity, name)
        return self.membership(identity)

    def memberships(self) -> list[Membership]:
        """The classes that the learner is in, the latest first."""
        with faults(self._engine), self._engine.connect() as connection:
            return self._memberships(connection)

    def membership(self, identity: str) -> Membership:
        """One class that the learner is in.

        Raises:
            NoClassError: there is none.
        """
        for one in self.memberships():
            if one.id == identity:
                return one
        raise _none(identity)

    def show(self, identity: str, name: str) -> Membership:
        """Change the name that the teacher sees; "": none. Raises as `join` and `membership`."""
        name = check_shown(name)
        with faults(self._engine), writing(self._engine) as connection:
            changed = update(MEMBERS).where(self._me(connection, identity)).values(name=name)
            if connection.execute(changed).rowcount == 0:
                raise _none(identity)
        return self.membership(identity)

    def leave(self, identity: str) -> None:
        """Leave a class, which then shows nothing of the learner.

        Raises:
            NoClassError: the learner is not in it.
        """
        with faults(self._engine), writing(self._engine) as connection:
            if connection.execute(delete(MEMBERS).where(self._me(connection, identity))).rowcount == 0:
                raise _none(identity)

    def work(self, identity: str, blank: Collection[str] = ()) -> tuple[Work, int]:
        """What a class sees of this learner, and how many members show no name; as `works` and `membership`."""
        self.membership(identity)
        with faults(self._engine), self._engine.connect() as connection:
            (mine,) = works(connection, self._me(connection, identity), blank)
            nameless = (MEMBERS.c.class_id == identity) & (MEMBERS.c.name == "")
            return mine, _count(connection, nameless, MEMBERS.c.learner_id)

    def take_over(self, other: Classes) -> None:
        """Take the classes that another learner of this database teaches or is in, such as one who then signed in.

        Who is in a class already, or teaches it, stays as before, and the other one leaves it.
        """
        with faults(self._engine), writing(self._engine) as connection:
            # Always in one order: two that take each other over must not wait for each other for ever.
            pair = sorted((self, other), key=lambda one: (one.issuer, one.subject))
            numbers = {id(one): one._locked(connection) for one in pair}
            mine, theirs = numbers[id(self)], numbers[id(other)]
            if mine == theirs:
                return
            connection.execute(update(CLASSES).where(CLASSES.c.learner_id == theirs).values(learner_id=mine))
            # Nobody is twice in a class, or in one that is taught: the membership that would be is gone.
            joined = select(MEMBERS.c.class_id).where(MEMBERS.c.learner_id == mine)
            taught = select(CLASSES.c.id).where(CLASSES.c.learner_id == mine)
            twice = MEMBERS.c.class_id.in_(joined) | MEMBERS.c.class_id.in_(taught)
            connection.execute(delete(MEMBERS).where(MEMBERS.c.learner_id == theirs, twice))
            connection.execute(update(MEMBERS).where(MEMBERS.c.learner_id == theirs).values(learner_id=mine))
            # A class of the other's that was joined under this name is now one's own.
            own_class = (MEMBERS.c.learner_id == mine) & MEMBERS.c.class_id.in_(taught)
            connection.execute(delete(MEMBERS).where(own_class))

    def export(self) -> dict[str, Any]:
        """The classes as JSON, without anything about others."""
        taught = [
            {"id": one.id, "name": one.name, "code": one.code, "at": one.at.isoformat()}
            for one in self.teaching()
        ]
        joined = [
            {
                "id": one.id,
                "name": one.name,
                "number": one.number,
                "shown": one.shown,
                "at": one.at.isoformat(),
            }
            for one in self.memberships()
        ]
        return {"taught": taught, "joined": joined}

    # --- rows ----------------------------------------------------------------------------------------------

    def _taught(self, connection: Connection, wanted: ColumnElement[bool]) -> list[Taught]:
        count = select(func.count()).where(MEMBERS.c.class_id == CLASSES.c.id).scalar_subquery()
        columns = (CLASSES.c.id, CLASSES.c.name, CLASSES.c.code, count, CLASSES.c.at)
        rows = connection.execute(select(*columns).where(wanted).order_by(CLASSES.c.at.desc(), CLASSES.c.id))
        return [
            Taught(identity, name, shown(code) if code else "", members, at)
            for identity, name, code, members, at in rows
        ]

    def _changed(self, identity: str, **values: Any) -> Taught:
        with faults(self._engine), writing(self._engine) as connection:
            wanted = (CLASSES.c.id == identity) & (CLASSES.c.learner_id == self._id(connection))
            if connection.execute(update(CLASSES).where(wanted).values(**values)).rowcount == 0:
                raise _none(identity)
        return self.taught(identity)

    def _enter(self, connection: Connection, identity: str, name: str) -> None:
        learner = self._locked(connection)
        changed = update(MEMBERS).where(self._me(connection, identity)).values(name=name)
        if connection.execute(changed).rowcount:
            return
        if _count(connection, MEMBERS.c.learner_id == learner, MEMBERS.c.class_id) >= MOST_JOINED:
            raise ArgumentError(f"at most {MOST_JOINED} classes may be joined: leave one first")
        taken = set(connection.scalars(select(MEMBERS.c.number).where(MEMBERS.c.class_id == identity)))
        if len(taken) >= MOST_MEMBERS:
            raise ArgumentError(f"a class must have at most {MOST_MEMBERS} members, and this one has them")
        number = secrets.choice([one for one in NUMBERS if one not in taken])
        values = {"class_id": identity, "learner_id": learner, "number": number, "name": name}
        connection.execute(MEMBERS.insert().values(values | {"at": datetime.now(UTC)}))

    def _memberships(self, connection: Connection) -> list[Membership]:
        columns = (CLASSES.c.id, CLASSES.c.name, MEMBERS.c.number, MEMBERS.c.name, MEMBERS.c.at)
        wanted = (
            select(*columns)
            .join(MEMBERS, MEMBERS.c.class_id == CLASSES.c.id)
            .where(MEMBERS.c.learner_id == self._id(connection))
            .order_by(MEMBERS.c.at.desc(), CLASSES.c.id)
        )
        return [Membership(*row) for row in connection.execute(wanted)]

    def _me(self, connection: Connection, identity: str) -> ColumnElement[bool]:
        return (MEMBERS.c.class_id == identity) & (MEMBERS.c.learner_id == self._id(connection))


def check_name(name: str, what: str) -> str:
    """A name for people: printable, on one line, not empty.

    Raises:
        ArgumentError: it is something else.
    """
    name = " ".join(check_text(name, what, MOST_NAME).split())
    # Signs that turn the direction of a text or show nothing would make one name look like another; some scripts need
    # the two joiners.
    letters = name.translate({0x200C: None, 0x200D: None})
    if not letters or not letters.isprintable():
        raise ArgumentError(f"{what} must be of printable characters, got {name!r:.60}")
    return name


def check_shown(name: str) -> str:
    """The name of a member, which must not look like that of one without a name; "" for none."""
    if not name.strip():
        return ""
    name = check_name(name, "your name")
    first, _, rest = name.casefold().partition(" ")
    if first == "learner" and rest.isdecimal():
        raise ArgumentError(f"your name must not look like that of a member without one, got {name!r}")
    return name


def _count(connection: Connection, wanted: ColumnElement[bool], column: Any) -> int:
    return connection.scalar(select(func.count(column)).where(wanted)) or 0


def _none(identity: str) -> NoClassError:
    return NoClassError(f"the class must be one of yours, got {identity!r:.60}")
