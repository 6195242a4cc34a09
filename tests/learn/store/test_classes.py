"""Classes in a database: who may do what, what a class sees of a member, and what goes with whom."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import func, insert, select, update

from regard.errors import ArgumentError
from regard.learn.store import NoClassError, Store, code
from regard.learn.store.classes import MOST_TAUGHT
from regard.learn.store.engine import connect, writing
from regard.learn.store.tables import CLASSES, LOG, MEMBERS

HOUSE = "https://accounts.example"


@pytest.fixture
def teacher(store):
    return store.learner(HOUSE, "teacher")


@pytest.fixture
def ann(store):
    return store.learner(HOUSE, "ann")


@pytest.fixture
def ben(store):
    return store.learner(HOUSE, "ben")


def count(url: str, table) -> int:
    with connect(url).connect() as connection:
        return connection.scalar(select(func.count()).select_from(table))


def test_a_class_is_begun_joined_and_left(url, store, teacher, ann):
    begun = teacher.classes.begin("  Attention,\n spring ")
    assert (begun.name, begun.members) == ("Attention, spring", 0)
    joined = ann.classes.join(begun.code.lower().replace("-", " "))
    assert (joined.id, joined.name, joined.shown) == (begun.id, begun.name, "")
    assert 100 <= joined.number < 1000
    again = Store(url).learner(HOUSE, "teacher").classes
    assert [(one.name, one.code, one.members) for one in again.teaching()] == [(begun.name, begun.code, 1)]
    assert [work.number for work in again.works(begun.id)] == [joined.number]
    # Whoever joins again is the same member, with the name as it was said last.
    assert ann.classes.join(begun.code, "Ann").number == joined.number
    assert teacher.classes.works(begun.id)[0].name == "Ann"
    assert ann.classes.show(begun.id, "").shown == ""
    assert teacher.classes.works(begun.id)[0].name == ""
    ann.classes.leave(begun.id)
    assert teacher.classes.works(begun.id) == [] and ann.classes.memberships() == []


def test_codes_are_read_aloud_and_not_guessed():
    codes = {code.new_code() for _ in range(500)}
    assert len(codes) == 500 and not set("".join(codes)) & set("01OILAEUY")
    one = codes.pop()
    assert code.plain(code.shown(one)) == code.plain(f" {one.lower()} ") == one
    assert code.plain(one[:-1]) == code.plain(one + "X") == code.plain("0" * 8) == code.plain("") == ""
    assert len(code.LETTERS) ** code.LENGTH > 1e11


def test_a_renewed_code_ends_the_one_before_and_a_closed_class_takes_nobody(teacher, ann, ben):
    begun = teacher.classes.begin("A")
    renewed = teacher.classes.renew(begun.id)
    with pytest.raises(NoClassError, match="the code must be that of an open class"):
        ann.classes.join(begun.code)
    ann.classes.join(renewed.code)
    assert teacher.classes.close(begun.id).code == ""
    for wrong in (renewed.code, "", "none"):
        with pytest.raises(NoClassError, match="open class"):
            ben.classes.join(wrong)
    assert teacher.classes.taught(begun.id).members == 1, "who is in it stays"
    ben.classes.join(teacher.classes.renew(begun.id).code)
    assert teacher.classes.rename(begun.id, "B").name == "B"
    teacher.classes.end(begun.id)
    assert teacher.classes.teaching() == [] == ann.classes.memberships()


def test_whose_class_it_is_not_finds_none(store, teacher, ann, ben):
    begun = teacher.classes.begin("A")
    ann.classes.join(begun.code)
    for other in (ann.classes, ben.classes):
        for ask, *more in (("taught",), ("works",), ("rename", "B"), ("renew",), ("close",), ("end",)):
            with pytest.raises(NoClassError, match="one of yours"):
                getattr(other, ask)(begun.id, *more)
    for other in (teacher.classes, ben.classes):
        for ask, *more in (("membership",), ("work",), ("show", "B"), ("leave",)):
            with pytest.raises(NoClassError, match="one of yours"):
                getattr(other, ask)(begun.id, *more)
    assert teacher.classes.taught(begun.id).code == begun.code
    with pytest.raises(ArgumentError, match="by others than its teacher"):
        teacher.classes.join(begun.code)


@pytest.mark.parametrize("name", ["", "   ", "x" * 81, "a\u202eb", "a\0b", "\u200d", "a\x1bb"])
def test_names_that_cannot_be_shown_are_refused(teacher, name):
    with pytest.raises(ArgumentError, match="the class's name must"):
        teacher.classes.begin(name)
    assert teacher.classes.teaching() == []


def test_no_name_looks_like_none(teacher, ann):
    begun = teacher.classes.begin("A")
    for name in ("Learner 417", " LEARNER  3"):
        with pytest.raises(ArgumentError, match="must not look like that of a member without one"):
            ann.classes.join(begun.code, name)
    for name in ("Learner", "علی\u200cرضا", "O'Neil-Müller"):
        assert ann.classes.join(begun.code, name).shown == name


def test_what_a_class_sees_is_no_text_and_no_mistake_of_before(url, store, teacher, ann):
    ann.checked("softmax", False, text="SECRET", variant="over queries")
    ann.checked("cosine", True, text="SECRET")
    begun = teacher.classes.begin("A")
    ann.classes.join(begun.code)
    assert ann.classes.work(begun.id)[0].last is None
    ann.lesson(1, "done")
    ann.note("lesson 1", "SECRET")
    ann.bookmark("SECRET", "#/model")
    ann.write("attention", "the file to fill in")
    ann.write("one head", "SECRET")
    ann.checked("one head", False, text="SECRET", variant="no scale")
    ann.checked("one head", True, text="SECRET")
    (work,) = teacher.classes.works(begun.id, ["the file to fill in"])
    assert work.lessons == {1: "done"}
    assert (work.passed, work.begun) == ({"cosine", "one head"}, {"softmax"})
    assert [(check.exercise, check.passed, check.variant) for check in work.checks] == [
        ("one head", False, "no scale"),
        ("one head", True, ""),
    ]
    assert work.last == max(event.at for event in ann.progress().log.values())
    assert "SECRET" not in repr(work)
    assert ann.classes.work(begun.id, ["the file to fill in"]) == (work, 1)


def test_two_classes_see_a_learner_by_other_numbers_and_since_other_times(url, teacher, ann, store):
    other = store.learner(HOUSE, "other teacher")
    first = teacher.classes.begin("A")
    ann.classes.join(first.code)
    ann.checked("cosine", False, variant="no norm")
    second = other.classes.begin("B")
    ann.classes.join(second.code, "Ann")
    assert [len(one.checks) for one in teacher.classes.works(first.id)] == [1]
    assert [len(one.checks) for one in other.classes.works(second.id)] == [0]
    assert [work.name for work in teacher.classes.works(first.id)] == [""]
    assert {one.name: one.shown for one in ann.classes.memberships()} == {"A": "", "B": "Ann"}
    # The lot is drawn for each class: of thirty members hardly any has the same number twice.
    same = 0
    for number in range(30):
        learner = store.learner(HOUSE, f"number {number}")
        same += learner.classes.join(first.code).number == learner.classes.join(second.code).number
    assert same < 5
    assert len({work.number for work in teacher.classes.works(first.id)}) == 31


@pytest.mark.parametrize("who", ["member", "teacher"])
def test_who_is_deleted_is_gone_from_classes_at_once(url, store, teacher, ann, ben, who):
    begun, other = teacher.classes.begin("A"), ben.classes.begin("B")
    for learner in (ann, ben):
        learner.classes.join(begun.code, learner.subject)
    ann.classes.join(other.code)
    teacher.classes.join(other.code)
    assert (count(url, CLASSES), count(url, MEMBERS)) == (2, 4)
    if who == "member":
        ann.delete()
        assert [work.name for work in teacher.classes.works(begun.id)] == ["ben"]
        assert (count(url, CLASSES), count(url, MEMBERS)) == (2, 2)
        assert ann.classes.memberships() == []
    else:
        teacher.note("lesson 1", "x")
        teacher.delete()
        # The class goes with its teacher, and so does the teacher's membership elsewhere.
        assert (count(url, CLASSES), count(url, MEMBERS)) == (1, 1)
        assert ann.classes.memberships()[0].name == "B"


def test_who_signs_in_takes_the_classes_along(url, store, teacher, ann, ben):
    before = store.learner("", "here")
    first, second = teacher.classes.begin("A"), teacher.classes.begin("B")
    mine, his = before.classes.begin("C"), ben.classes.begin("D")
    number = before.classes.join(first.code, "Ann").number
    before.classes.join(second.code)
    before.classes.join(his.code)
    ann.classes.join(second.code, "A.")
    ann.classes.join(mine.code)
    ann.classes.take_over(before.classes)
    assert {one.name: one.shown for one in ann.classes.memberships()} == {"A": "Ann", "B": "A.", "D": ""}
    assert ann.classes.membership(first.id).number == number
    # The class that was begun before is taught now, and nobody is in a class of one's own.
    assert [(one.name, one.members) for one in ann.classes.teaching()] == [("C", 0)]
    assert before.classes.export() == {"taught": [], "joined": []}
    assert teacher.classes.taught(second.id).members == 1
    exported = ann.classes.export()
    ann.classes.take_over(before.classes)
    ann.classes.take_over(ann.classes)
    assert ann.classes.export() == exported
    assert count(url, MEMBERS) == 3


def test_an_export_has_the_classes_and_nothing_about_others(teacher, ann, store):
    begun = teacher.classes.begin("A")
    joined = ann.classes.join(begun.code, "Ann")
    document = ann.export()
    assert document["classes"]["taught"] == []
    assert document["classes"]["joined"] == [
        {"id": begun.id, "name": "A", "number": joined.number, "shown": "Ann", "at": joined.at.isoformat()}
    ]
    taught = teacher.export()["classes"]["taught"]
    assert taught == [{"id": begun.id, "name": "A", "code": begun.code, "at": begun.at.isoformat()}]
    # Who takes it in elsewhere joins nothing: that is for the learner to say.
    other = store.learner(HOUSE, "elsewhere")
    other.take_in(document)
    assert other.classes.memberships() == []


def test_a_log_that_somebody_wrote_by_hand_is_read(url, teacher, ann):
    begun = teacher.classes.begin("A")
    ann.classes.join(begun.code)
    ann.checked("cosine", True)
    with writing(connect(url)) as connection:
        learner = connection.scalar(select(MEMBERS.c.learner_id))
        later = datetime.now(UTC) + timedelta(seconds=5)
        row = {"learner_id": learner, "kind": "check", "about": "cosine", "at": later}
        connection.execute(insert(LOG).values(row | {"id": "1", "detail": {}}))
        connection.execute(insert(LOG).values(row | {"id": "2", "detail": {"passed": "yes", "variant": 7}}))
    (work,) = teacher.classes.works(begun.id)
    assert [(check.passed, check.variant) for check in work.checks] == [(True, ""), (False, ""), (False, "7")]


def test_there_are_not_too_many(url, teacher, ann, store, monkeypatch):
    for number in range(MOST_TAUGHT):
        begun = teacher.classes.begin(f"{number}")
    with pytest.raises(ArgumentError, match="at most 50 classes may be taught"):
        teacher.classes.begin("one more")
    monkeypatch.setattr("regard.learn.store.classes.MOST_MEMBERS", 1)
    ann.classes.join(begun.code)
    with pytest.raises(ArgumentError, match="at most 1 members"):
        store.learner(HOUSE, "ben").classes.join(begun.code)
    monkeypatch.setattr("regard.learn.store.classes.MOST_JOINED", 1)
    with pytest.raises(ArgumentError, match="at most 1 classes may be joined"):
        ann.classes.join(teacher.classes.teaching()[-1].code)


def test_a_whole_class_joins_at_once(url, store, teacher):
    begun = teacher.classes.begin("A")
    threads = [
        threading.Thread(target=store.learner(HOUSE, f"{number}").classes.join, args=(begun.code,))
        for number in range(30)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len({work.number for work in teacher.classes.works(begun.id)}) == 30


def test_a_database_lets_no_two_classes_have_one_code(url, teacher):
    begun, other = teacher.classes.begin("A"), teacher.classes.begin("B")
    with (
        pytest.raises(Exception, match=r"(?i)unique"),
        writing(connect(url)) as connection,
    ):
        connection.execute(
            update(CLASSES).where(CLASSES.c.id == other.id).values(code=code.plain(begun.code))
        )
