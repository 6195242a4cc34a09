"""Databases of every age come to the tables of today, and what was in them stays."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import UTC, datetime

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect, text

from regard.errors import ArgumentError
from regard.learn.store import Store, engine
from regard.learn.store.tables import HEAD, METADATA

AT = datetime(2026, 3, 1, 12, 0, 0, 7, UTC)


@pytest.fixture
def plain(url):
    """An engine on the empty database, without its tables."""
    parsed = engine.parse(url)
    if parsed.get_backend_name() == "sqlite":
        opened = engine._sqlite(parsed)
    else:
        opened = create_engine(parsed)
    yield opened
    opened.dispose()


def differences(opened) -> list:
    """What alembic would change in a database to have the tables of today."""
    with opened.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return compare_metadata(context, METADATA)


def test_an_empty_database_gets_the_tables_of_today(url, plain):
    assert differences(plain), "without tables all of them are missing"
    Store(url).close()
    assert differences(plain) == []
    with plain.connect() as connection:
        assert engine.revision(connection) == HEAD
    # What is there already is not made again.
    Store(url).close()


def test_the_last_migration_is_the_one_that_is_asked_for():
    script = ScriptDirectory(str(engine.MIGRATIONS))
    assert script.get_heads() == [HEAD]
    assert [one.revision for one in script.walk_revisions()] == ["0003", "0002", "0001"]


def test_a_filled_database_of_the_first_version_keeps_what_it_holds(url, plain):
    engine.upgrade(plain, "0001")
    assert "cards" not in inspect(plain).get_table_names()
    with engine.writing(plain) as connection:
        connection.execute(
            text("INSERT INTO learners VALUES (7, 'https://i.example', '42', :at)"),
            {"at": AT},
        )
        connection.execute(
            text("INSERT INTO exercises VALUES (7, 'attention', 'def', :passed, 3, :at)"),
            {"at": AT, "passed": True},
        )
        connection.execute(text("INSERT INTO lessons VALUES (7, 3, 'done', :at)"), {"at": AT})
        connection.execute(
            text("""INSERT INTO log VALUES (7, 'e1', 'check', 'attention', '{"passed": true}', :at)"""),
            {"at": AT},
        )
    learner = Store(url).learner("https://i.example", "42")
    progress = learner.progress()
    solution = progress.exercises["attention"]
    assert (solution.text, solution.passed, solution.hints, solution.at) == ("def", True, 3, AT)
    assert progress.lessons[3].state == "done" and progress.log["e1"].detail == {"passed": True}
    learner.note("lesson 1", "new tables are there")
    assert differences(plain) == []


def test_a_filled_database_of_the_second_version_keeps_what_it_holds(url, plain):
    engine.upgrade(plain, "0002")
    assert "classes" not in inspect(plain).get_table_names()
    with engine.writing(plain) as connection:
        row = {"at": AT, "no": False}
        for line in (
            "learners VALUES (7, 'https://i.example', '42', :at)",
            """cards VALUES (7, 'q1', '{"step": 2}', :at, :at)""",
            "bookmarks VALUES (7, 'b1', 'The diagonal', '#/head', 'A', :no, :at)",
            "notes VALUES (7, 'lesson 3', 'why', :at)",
        ):
            connection.execute(text(f"INSERT INTO {line}"), row)
    store = Store(url)
    learner = store.learner("https://i.example", "42")
    progress = learner.progress()
    assert progress.cards["q1"].state == {"step": 2} and progress.cards["q1"].due == AT
    assert progress.bookmarks["b1"].title == "The diagonal" and progress.notes["lesson 3"].text == "why"
    # Who was there before joins a class as anybody does.
    begun = store.learner("", "teacher").classes.begin("A")
    assert learner.classes.join(begun.code).name == "A"
    assert differences(plain) == []


def test_a_migration_that_fails_leaves_the_database_as_it_was(url, plain):
    engine.upgrade(plain, "0001")
    with engine.writing(plain) as connection:
        # In the way of the second of the tables that are to be made.
        connection.execute(text("CREATE TABLE bookmarks (x INTEGER)"))
    with pytest.raises(ArgumentError, match="bookmarks"):
        Store(url)
    assert "cards" not in inspect(plain).get_table_names()
    with plain.connect() as connection:
        assert engine.revision(connection) == "0001"


def test_a_database_of_a_later_version_is_refused_and_not_touched(url, plain):
    Store(url).close()
    with engine.writing(plain) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(ArgumentError, match="this version of Regard or an earlier one.*9999"):
        Store(url)


def test_processes_that_start_together_make_the_tables_once(url, plain):
    program = "import sys; from regard.learn.store import Store; Store(sys.argv[1]).learner().note(sys.argv[2], 'x')"
    started = [subprocess.Popen([sys.executable, "-c", program, url, f"lesson {n}"]) for n in range(3)]
    assert [process.wait(120) for process in started] == [0] * 3
    assert len(Store(url).learner().progress().notes) == 3
    assert differences(plain) == []


def test_who_comes_while_another_makes_the_tables_waits_and_makes_none(url, plain):
    stores: list[Store] = []
    other = threading.Thread(target=lambda: stores.append(Store(url)))
    with engine.writing(plain) as connection:
        if plain.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": engine.LOCK})
        other.start()
        # Time in which it would begin, if nothing held it back.
        other.join(1.0)
        assert other.is_alive() and not stores
        engine.run_migrations(connection)
    other.join(60)
    assert stores and stores[0].learner().passed() == set()
    assert differences(plain) == []


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("progress.db", "must be a URL"),
        ("", "must be a URL"),
        ("mysql://root@host/name", "SQLite or PostgreSQL, got 'mysql'"),
        ("sqlite:////nowhere/at/all/learn.db", "can be read and written"),
        (
            "postgresql://me:secret@localhost:1/none",
            r"can be read and written, got postgresql\+psycopg://me:\*\*\*@",
        ),
    ],
)
def test_an_address_that_is_no_database_is_refused_without_its_password(wrong, why):
    with pytest.raises(ArgumentError, match=why) as refused:
        engine.connect(wrong)
    assert "secret" not in str(refused.value)


def test_a_file_that_is_no_database_is_refused(tmp_path):
    path = tmp_path / "learn.db"
    path.write_text("not a database, and long enough to be read as one" * 40)
    with pytest.raises(ArgumentError, match="not a database"):
        Store(f"sqlite:///{path}")
    assert path.read_text().startswith("not a database, and")
