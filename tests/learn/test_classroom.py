"""What a teacher sees of a class, and what a count would reveal."""

from __future__ import annotations

import csv
import io
from datetime import UTC, date, datetime

from hypothesis import given
from hypothesis import strategies as st

from regard import learn
from regard.learn.classroom import (
    FEWEST,
    blank_texts,
    classroom,
    learner_line,
    learners_table,
    mistakes_table,
)
from regard.learn.store.members import Check, Work
from regard.web.tables import frame, written

AT = datetime(2026, 3, 1, 23, 59, tzinfo=UTC)
NAMES = [one.name for one in learn.exercises()]


def work(number: int, name: str = "", *checks: tuple, begun=(), lessons=None, passed=(), last=None) -> Work:
    """What a member has done; of checks the exercise, and the mistake or None where it passed."""
    lines = tuple(Check(exercise, variant is None, variant or "") for exercise, variant in checks)
    passed = {line.exercise for line in lines if line.passed} | set(passed)
    begun = ({line.exercise for line in lines} | set(begun)) - passed
    return Work(number, name, lessons or {}, frozenset(passed), frozenset(begun), lines, last)


def test_a_row_says_who_is_where():
    member = work(
        417,
        "",
        ("attention", "no scale"),
        ("cosine", None),
        begun=["softmax"],
        lessons={1: "done", 4: "begun", 9: "open", 3: "done"},
        last=AT,
    )
    line = learner_line(member)
    assert (line.label, line.named, line.lessons, line.lesson) == ("Learner 417", False, 2, 4)
    assert (line.passed, line.begun, line.last) == (("cosine",), ("softmax", "attention"), date(2026, 3, 1))
    named = learner_line(work(5, "Ann"))
    assert (named.label, named.named, named.lessons, named.lesson, named.last) == ("Ann", True, 0, 0, None)


def test_the_mistake_that_most_learners_meet_comes_first_with_its_sentence():
    room = classroom(
        [
            # Often by one learner is one learner.
            work(1, "", *[("attention", "divided by d")] * 5, ("attention", "no scale"), ("attention", None)),
            work(2, "", ("attention", "no scale"), ("attention", None), ("attention", "divided by d")),
            work(3, "Ann", ("attention", "no scale"), ("attention", ""), ("attention", "<b>unknown</b>")),
            work(4, "", ("attention", None), ("cosine", None)),
            work(5, "Ben", passed=["attention"]),
        ]
    )
    attention = learn.exercise("attention")
    texts = {known.name: known.text for known in attention.variants}
    first, second = room.exercises
    assert (first.name, second.name) == ("cosine", "attention")
    assert (second.begun, second.passed, second.checked, second.checks) == (1, 4, 4, 2)
    assert [(one.variant, one.text, one.learners) for one in second.mistakes] == [
        ("no scale", texts["no scale"], 3),
        ("divided by d", texts["divided by d"], 2),
    ]
    # One learner's check would tell of that learner.
    assert (first.checked, first.checks, first.mistakes) == (1, None, ())
    assert [line.label for line in room.learners] == ["Ann", "Ben", "Learner 1", "Learner 2", "Learner 4"]


def test_every_mistake_of_the_catalogue_can_be_met():
    for exercise in learn.exercises():
        for known in exercise.variants:
            room = classroom([work(number, "", (exercise.name, known.name)) for number in range(FEWEST)])
            (line,) = room.exercises
            assert [(one.variant, one.text, one.learners) for one in line.mistakes] == [
                (known.name, known.text, FEWEST)
            ]


CHECKS = st.tuples(
    st.sampled_from(NAMES[:2]),
    st.sampled_from([None, "", *[v.name for v in learn.exercise(NAMES[0]).variants[:2]]]),
)
WORKS = st.builds(
    lambda name, checks, lessons: work(0, name, *checks, lessons=lessons),
    st.sampled_from(["", "Ann", "Ben"]),
    st.lists(CHECKS, max_size=5),
    st.dictionaries(st.integers(1, 17), st.sampled_from(["open", "begun", "done"]), max_size=3),
)


@given(st.lists(WORKS, max_size=8))
def test_fewer_than_three_without_a_name_are_in_no_row_and_in_no_sum(drawn):
    members = [Work(100 + n, *list(vars(one).values())[1:]) for n, one in enumerate(drawn)]
    nameless = [one for one in members if not one.name]
    room = classroom(members)
    if len(nameless) >= FEWEST:
        assert room.hidden == 0 and len(room.learners) == len(members)
    else:
        # Whatever they did: the teacher sees the same.
        named = [one for one in members if one.name]
        assert room.hidden == len(nameless)
        assert (room.learners, room.exercises) == (classroom(named).learners, classroom(named).exercises)
    for line in room.exercises:
        assert not line.mistakes or line.checked >= FEWEST
        assert line.checks is None or line.passed >= FEWEST
        assert line.passed == sum(line.name in row.passed for row in room.learners)


def test_nobody_has_begun_with_a_file_to_fill_in():
    assert set(blank_texts()) == {one.unsolved for one in learn.exercises()}
    assert len(set(blank_texts())) == len(NAMES), "or a text of one exercise were blank in another"


def rows(columns) -> list[list[str]]:
    content = written(frame(columns, len(columns[0].values)), "csv").decode()
    return list(csv.reader(io.StringIO(content)))


def test_tables_hold_what_is_seen_and_no_formula():
    members = [work(n, "", ("attention", "no scale"), last=AT) for n in range(3)]
    members += [work(9, '=HYPERLINK("http://x")', ("cosine", None), lessons={2: "done"}), work(8, "@Ann, B")]
    room = classroom(members)
    head, *lines = rows(learners_table(room))
    assert head[0] == "learner" and [line[0] for line in lines] == [
        '\'=HYPERLINK("http://x")',
        "'@Ann, B",
        "Learner 0",
        "Learner 1",
        "Learner 2",
    ]
    assert lines[0][1:] == ["True", "1", "2", "1", "cosine", "", ""]
    assert lines[2][1:] == ["False", "0", "", "0", "", "attention", "2026-03-01"]
    head, cosine, attention = rows(mistakes_table(room))
    assert cosine == ["cosine", "1", "0", "1", "1", "", "", "", ""]
    sentence = next(one.text for one in learn.exercise("attention").variants if one.name == "no scale")
    assert attention == ["attention", "3", "3", "0", "3", "", "no scale", "3", sentence]
    assert rows(learners_table(classroom([]))) == [[*rows(learners_table(room))[0]]]
    assert len(rows(mistakes_table(classroom([])))) == 1
