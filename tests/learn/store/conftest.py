"""Databases to test with: a file of SQLite, and a server of PostgreSQL of this test run alone."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from glob import glob
from pathlib import Path
from uuid import uuid4

import pytest

from regard.learn.store import Store

CI = bool(os.environ.get("CI"))
# Seconds until a server that was just started answers.
PATIENCE = 60


def program(name: str) -> str:
    """The path of one of PostgreSQL's programs; without it the test is skipped, in CI it fails."""
    # Debian keeps them off the PATH.
    beside = sorted(glob(f"/usr/lib/postgresql/*/bin/{name}"))
    path = next(iter(beside[-1:]), None) or shutil.which(name)
    if path is None:
        message = f"no {name} found: needs PostgreSQL, on Debian and Ubuntu the package postgresql"
        pytest.fail(message) if CI else pytest.skip(message)
    return path


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a server with a folder and a socket of its own, and no port; without the name of a database."""
    initdb, postgres = program("initdb"), program("postgres")
    folder = Path(tempfile.mkdtemp(prefix="regard-postgres-"))
    # The server refuses to run as root.
    owner: dict = {}
    user = getpass.getuser()
    if os.getuid() == 0:
        user = "nobody"
        shutil.chown(folder, user)
        owner = {"user": user, "extra_groups": []}
    data = folder / "data"
    quiet = {"stdout": subprocess.DEVNULL, "cwd": folder, "env": {"PATH": os.environ["PATH"], "LC_ALL": "C"}}
    subprocess.run(
        [initdb, "-D", data, "-A", "trust", "-E", "UTF8", "--no-locale", "-U", user],
        check=True,
        **quiet,
        **owner,
    )
    # Clients are killed here, and the machine is not: nothing need be forced to the disk.
    options = ("-c", "listen_addresses=", "-c", "log_min_messages=fatal", "-c", "fsync=off")
    process = subprocess.Popen([postgres, "-D", data, "-k", folder, *options], **quiet, **owner)
    url = f"postgresql://{user}@/{{name}}?host={folder}"
    try:
        _await(url.format(name="postgres"), process)
        yield url
    finally:
        # At once: its files are thrown away.
        process.send_signal(signal.SIGQUIT)
        process.wait(PATIENCE)
        shutil.rmtree(folder, ignore_errors=True)


def _await(url: str, process: subprocess.Popen) -> None:
    psycopg = pytest.importorskip("psycopg")
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'learn.db'}"
    psycopg = pytest.importorskip("psycopg")
    server, name = request.getfixturevalue("server"), f"learn_{uuid4().hex}"
    with psycopg.connect(server.format(name="postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return server.format(name=name)


@pytest.fixture
def store(url) -> Iterator[Store]:
    """A store on it."""
    store = Store(url)
    yield store
    store.close()
