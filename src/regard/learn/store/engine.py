"""The connection to a database, brought to the tables of this version. Knows no learners."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    create_engine,
    event,
    inspect,
    make_url,
    text,
)
from sqlalchemy.exc import ArgumentError as BadURLError
from sqlalchemy.exc import NoSuchModuleError, SQLAlchemyError

from regard.errors import ArgumentError, require
from regard.learn.store.tables import HEAD

MIGRATIONS = Path(__file__).parent / "migrations"
# Seconds that a write waits for those of other processes.
PATIENCE = 30
# Connections that are held at once, and no others are opened: one costs more than many requests.
CONNECTIONS = 8
POOL: dict[str, Any] = {"pool_size": CONNECTIONS, "max_overflow": 0, "pool_timeout": PATIENCE}
# Any number, the same in all processes: only one of them migrates.
LOCK = 7_214_019


def parse(address: str) -> URL:
    """The URL of a database.

    Raises:
        ArgumentError: it is none, or of another kind than SQLite and PostgreSQL.
    """
    try:
        url = make_url(address)
        backend = url.get_backend_name()
    except (BadURLError, ValueError):
        # Not shown: it may have a password.
        raise ArgumentError(
            "the database must be a URL, such as sqlite:///progress.db or postgresql://user@host/name"
        ) from None
    if backend == "sqlite":
        return url.set(drivername="sqlite+pysqlite")
    if backend == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    raise ArgumentError(f"the database must be of SQLite or PostgreSQL, got {backend!r:.40}")


def connect(address: str) -> Engine:
    """An engine whose database has the tables of this version.

    Args:
        address: the URL, such as `sqlite:////folder/progress.db` or `postgresql://user@host/name`.

    Raises:
        ArgumentError: it is no such URL, cannot be reached, or has tables of a later version.
        MissingPackageError: PostgreSQL's driver is not installed.
    """
    url = parse(address)
    try:
        if url.get_backend_name() == "sqlite":
            engine = _sqlite(url)
        else:
            require("psycopg", extra="postgres")
            connecting = {"connect_timeout": PATIENCE}
            engine = create_engine(url, pool_pre_ping=True, connect_args=connecting, **POOL)
    except NoSuchModuleError as error:
        raise ArgumentError(f"the database cannot be used: {error}") from error
    with faults(engine):
        _migrate(engine)
    return engine


@contextlib.contextmanager
def faults(engine: Engine) -> Iterator[None]:
    """What a database says is wrong, as an error that names the database, without its password."""
    try:
        yield
    except SQLAlchemyError as error:
        where = engine.url.render_as_string(hide_password=True)
        why = " ".join(str(getattr(error, "orig", None) or error).split())
        raise ArgumentError(
            f"the database of progress must be one that can be read and written, got {where}: {why:.300}"
        ) from error


@contextlib.contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes."""
    with (
        _ALONE.get(engine, contextlib.nullcontext()),
        engine.execution_options(writes=True).begin() as connection,
    ):
        yield connection


# SQLite lets one write at a time, and has the others sleep and ask again: threads of one process wait for each other.
_ALONE: WeakKeyDictionary[Engine, threading.Lock] = WeakKeyDictionary()


def _sqlite(url: URL) -> Engine:
    pool = POOL
    # In memory there is one connection, which is the database.
    if url.database in (None, "", ":memory:"):
        pool = {}
    engine = create_engine(url, connect_args={"timeout": PATIENCE}, **pool)
    _ALONE[engine] = threading.Lock()

    @event.listens_for(engine, "connect")
    def _set_up(connection: Any, _record: object) -> None:
        # The driver would begin transactions when it likes, and not for tables.
        connection.isolation_level = None
        # Confirmed means on the disk: a log beside the file, forced out at each commit.
        for pragma in ("foreign_keys=ON", "journal_mode=WAL", "synchronous=FULL"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A read that turns into a write cannot wait for its turn, and would fail.
        if connection.get_execution_options().get("writes"):
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.exec_driver_sql("BEGIN")

    return engine


def revision(connection: Connection) -> str | None:
    """The last migration that a database has seen; None for one without tables."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _migrate(engine: Engine) -> None:
    with engine.connect() as connection:
        if revision(connection) == HEAD:
            return
    upgrade(engine)


def upgrade(engine: Engine, to: str = HEAD) -> None:
    """Bring the tables to a revision, in one transaction: a database has all of a migration or nothing of it.

    Raises:
        ArgumentError: the database was written by a later version.
    """
    with writing(engine) as connection:
        # Two processes that start together must not both make the tables; SQLite lets one write at a time anyway.
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
        run_migrations(connection, to)


def run_migrations(connection: Connection, to: str = HEAD) -> None:
    """Run the migrations up to a revision that a database has not seen, in the transaction of the connection.

    Raises:
        ArgumentError: the database was written by a later version.
    """
    # Late, as a database that is up to date needs none of it.
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, to)
    except CommandError as error:
        raise ArgumentError(
            f"the database of progress must be of this version of Regard or an earlier one: {error}"
        ) from error
