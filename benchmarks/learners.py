"""How soon does Learn answer 30 learners at once, each with a session, on SQLite and on PostgreSQL?"""

from __future__ import annotations

import asyncio
import getpass
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path
from typing import Any

import httpx
import psycopg

from benchmarks import common
from benchmarks.explorer_server import memory, processor, spread

# Learners, how often each walks through Learn, and seconds within which they begin, as people do.
LEARNERS, ROUNDS, WITHIN = 30, 3, 2.0
# Seconds between two requests of one learner: a program without pause, and somebody in a great hurry.
PAUSES = {"without a pause": 0.0, "half a second between two requests": 0.5}
PASSWORD = "thirty learners"
PATIENCE = 60.0


@contextmanager
def postgresql() -> Iterator[str]:
    """The URL of a server of PostgreSQL that forces all that it confirms to the disk, as SQLite does here."""
    programs = {
        name: next(iter(sorted(glob(f"/usr/lib/postgresql/*/bin/{name}"))[-1:]), None) or shutil.which(name)
        for name in ("initdb", "postgres")
    }
    folder = Path(tempfile.mkdtemp(prefix="regard-postgres-"))
    user, owner = getpass.getuser(), dict[str, Any]()
    # The server refuses to run as root.
    if os.getuid() == 0:
        user = "nobody"
        shutil.chown(folder, user)
        owner = {"user": user, "extra_groups": []}
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    quiet |= {"env": {"PATH": os.environ["PATH"], "LC_ALL": "C"}} | owner
    initialize = [
        programs["initdb"],
        "-D",
        folder / "data",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--no-locale",
        "-U",
        user,
    ]
    subprocess.run(initialize, check=True, **quiet)
    listening = ["-c", "listen_addresses=", "-k", folder]
    process = subprocess.Popen([programs["postgres"], "-D", folder / "data", *listening], **quiet)
    try:
        address = f"postgresql://{user}@/postgres?host={folder}"
        end = time.monotonic() + PATIENCE
        # Its socket is there before it takes connections.
        while True:
            try:
                psycopg.connect(address).close()
                break
            except psycopg.OperationalError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
        yield address
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def served(database: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server of several visitors, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "regard", "explore", "--serve", "--no-browser", "--database", database],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1", "COLUMNS": "200", "REGARD_PASSWORD": PASSWORD},
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        said = []
        for line in process.stdout:
            said.append(line)
            if "http://" in line:
                break
        else:
            raise RuntimeError(f"the server must say its address, and it said: {''.join(said)}")
        address = said[-1].split()[-1]
        # Nothing more is read of what it says, and it must not wait for that.
        threading.Thread(target=process.stdout.read, daemon=True).start()
        # Answered once the server is up, with its database open.
        httpx.get(address, timeout=PATIENCE)
        yield process, address.rstrip("/")
    finally:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
        process.kill()


class Learner:
    """One learner, who notes how long each answer took and which were none."""

    def __init__(self, base: str, number: int, pause: float) -> None:
        self.client = httpx.AsyncClient(base_url=base, timeout=PATIENCE, headers={"origin": base})
        self.number, self.pause = number, pause
        self.seconds: dict[str, list[float]] = {}
        self.faults: list[str] = []

    async def ask(self, name: str, method: str, path: str, **options: Any) -> Any:
        """The answer to one request, of which the time is noted."""
        await asyncio.sleep(self.pause)
        begun = time.perf_counter()
        try:
            answer = await self.client.request(method, f"/api/learn{path}", **options)
        except httpx.HTTPError as error:
            self.faults.append(f"{name}: {type(error).__name__}")
            return None
        self.seconds.setdefault(name, []).append(time.perf_counter() - begun)
        if answer.is_success:
            return answer.json()
        self.faults.append(f"{name}: {answer.status_code} {answer.text[:200]}")
        return None

    async def walk(self) -> None:
        """Enter, and go through Learn."""
        await asyncio.sleep(WITHIN * self.number / LEARNERS)
        entered = await self.client.post("/", data={"password": PASSWORD})
        if entered.status_code != 303:
            self.faults.append(f"the password: {entered.status_code}")
        for turn in range(ROUNDS):
            await self.ask("path", "GET", "")
            await self.ask("lesson", "POST", f"/lessons/{turn + 1}", json={"state": "done"})
            await self.ask("exercise", "GET", "/exercises/attention")
            text = f"# {self.number}, {turn}\n" * 40
            for _ in range(3):
                await self.ask("write", "POST", "/exercises/attention/text", json={"text": text})
            await self.ask("note", "POST", "/notes", json={"about": "lesson 3", "text": text})
            question = ((await self.ask("question", "GET", "/quiz")) or {}).get("question")
            if question is not None:
                answer = "0" if question["numeric"] else "a"
                await self.ask("answer", "POST", f"/quiz/{question['card_id']}", json={"answer": answer})
            mark = {"title": f"View {turn}", "address": "#/model?record=r1", "record": "An example"}
            await self.ask("bookmark", "POST", "/bookmarks", json=mark)
        stored = await self.ask("export", "GET", "/export")
        # What was confirmed is there.
        if not stored or len(stored.get("bookmarks", ())) != ROUNDS:
            self.faults.append(f"the export: {str(stored)[:200]}")
        await self.client.aclose()


async def at_once(base: str, pause: float) -> tuple[list[Learner], float]:
    """All learners together, and the seconds that they took."""
    learners = [Learner(base, number, pause) for number in range(LEARNERS)]
    begun = time.perf_counter()
    await asyncio.gather(*(one.walk() for one in learners))
    return learners, time.perf_counter() - begun


def measured(database: str) -> dict[str, Any]:
    """What came of it on one database, at each pace."""
    with served(database) as (process, base):
        return {name: at_pace(process, base, pause) for name, pause in PAUSES.items()}


def at_pace(process: subprocess.Popen[str], base: str, pause: float) -> dict[str, Any]:
    """What came of it at one pace."""
    busy = processor(process)
    learners, seconds = asyncio.run(at_once(base, pause))
    busy = processor(process) - busy
    together = [one for learner in learners for times in learner.seconds.values() for one in times]
    faults = [fault for learner in learners for fault in learner.faults]
    by_name = {
        name: spread([one for learner in learners for one in learner.seconds.get(name, ())])
        for name in learners[0].seconds
    }
    return {
        "requests": len(together),
        "errors": len(faults),
        "the first errors": faults[:3],
        **spread(together),
        "slowest_ms": round(1e3 * max(together), 1),
        "requests_per_s": round(len(together) / seconds, 1),
        "processor_ms a request": round(1e3 * busy / len(together), 2),
        "resident_mb": round(memory(process, "VmRSS"), 1),
        "by request": by_name,
    }


def main() -> None:
    """Ask both databases, and write the result."""
    common.prepare()
    figures: dict[str, Any] = {"learners": LEARNERS, "rounds of each": ROUNDS}
    with tempfile.TemporaryDirectory() as folder:
        figures["sqlite"] = measured(f"sqlite:///{folder}/learn.db")
    with postgresql() as database:
        figures["postgresql"] = measured(database)
    common.write(
        "learners",
        "python -m benchmarks learners",
        "30 learners at once, each with a session: no error, 95 of 100 requests ≤ 300 ms",
        figures,
    )


if __name__ == "__main__":
    main()
