"""Runs of models, in a process of their own, those that wait in a line; with progress, and canceled at once.

Knows runs and who listens to them; how a model is run is the worker's.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import anyio

from regard import files
from regard.errors import ArgumentError, RegardError
from regard.explorer.line import RunLine
from regard.explorer.opened import Model, NotOpenError, Opened, OpenRecord
from regard.explorer.worker import Worker
from regard.watch import Plan
from regard.web.changes import HeadSetting, changes_of, code, said
from regard.web.next_tokens import NextTokens
from regard.web.tiles import RecordTiles

# Seconds after which a run stops to which nobody listens any more: a page that is loaded again has come back by then.
GRACE = 3.0
# Seconds between two looks at a job.
EVERY = 0.1
# Finished jobs that are remembered.
REMEMBERED = 200
OVER = ("done", "failed", "canceled")


@dataclass(frozen=True)
class JobState:
    """How far a run is: `progress` from 0 to 1, None where not known; `record` once it is done."""

    id: str
    model: str
    state: Literal["waiting", "running", "done", "failed", "canceled"]
    progress: float | None = None
    message: str = ""
    record: str | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.state in OVER


@dataclass(frozen=True)
class _Run:
    """What a job is to run; `changed` and the settings, where heads of `base` are changed."""

    model: Model
    text: str
    image: bytes | None
    base: OpenRecord | None = None
    settings: tuple[HeadSetting, ...] = ()


class Jobs:
    """The runs of whoever has records open: one visitor, or the user of this machine.

    Args:
        opened: gets the records.
        line: in which the runs wait, with those of others; from a worker, one of their own.
    """

    def __init__(self, opened: Opened, line: RunLine | Worker) -> None:
        self._opened, self._shares_line = opened, isinstance(line, RunLine)
        if not isinstance(line, RunLine):
            line = RunLine(line)
        self.line = line
        self._states: dict[str, JobState] = {}
        self._listeners: dict[str, int] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._folder = tempfile.TemporaryDirectory(prefix="regard-explore-", ignore_cleanup_errors=True)

    def submit_changed(self, base: OpenRecord, settings: Sequence[HeadSetting]) -> JobState:
        """Put in line what made a record, with heads changed.

        Raises:
            ArgumentError: a record that was not made here by such a model, wrong settings, or too many in line.
        """
        if base.model is None or base.model.kind == "task":
            raise ArgumentError(
                f"{base.title} must be a record that a model has made here: it cannot be run again"
            )
        # Of a record with changes more of them are asked for, and what is compared with is still that without any.
        together = {(one.call, one.head): one for one in base.settings}
        changes_of(base.record, settings)
        together |= {(one.call, one.head): one for one in settings}
        run = _Run(base.model, base.text, None, base.base or base, tuple(together.values()))
        return self._submit(run)

    def submit(self, model: Model, text: str = "", image: bytes | None = None) -> JobState:
        """Put a run in line.

        Raises:
            ArgumentError: a text or picture that is too large, too many in line, or too many records.
        """
        limits = self._opened.limits
        if len(text) > limits.text:
            raise ArgumentError(f"a text must have at most {limits.text} characters, got {len(text)}")
        if image is not None and len(image) > limits.image:
            raise ArgumentError(f"a picture must have at most {limits.image} bytes, got {len(image)}")
        return self._submit(_Run(model, text, image))

    def _submit(self, run: _Run) -> JobState:
        limits = self._opened.limits
        self._opened.check_room()
        with self._lock:
            if sum(job.state == "waiting" for job in self._states.values()) >= limits.runs:
                raise ArgumentError(f"at most {limits.runs} runs may wait in line: cancel one first")
            job = JobState(f"j{next(self.line.numbers)}", run.model.id, "waiting", message="waiting in line")
            self._states[job.id] = job
            self._forget()
        self.line.put(self, job.id, partial(self._perform, job.id, run))
        return job

    def states(self) -> list[JobState]:
        """All jobs that are remembered, oldest first."""
        with self._lock:
            return list(self._states.values())

    def __getitem__(self, identity: str) -> JobState:
        with self._lock:
            if identity not in self._states:
                raise NotOpenError(f"the job must be one that was begun here, got {identity[:100]!r}")
            return self._states[identity]

    def cancel(self, identity: str) -> JobState:
        """Stop a job, whether it waits or runs; one that is over stays as it is.

        Raises:
            NotOpenError: there is no such job.
        """
        job = self[identity]
        if not job.over:
            job = self._change(identity, state="canceled", message="canceled")
        # It may have begun since it was looked at: whether it is the one that runs, the line knows.
        if job.state == "canceled":
            self.line.stop(self, identity)
        return job

    def wait(self, identity: str) -> JobState:
        """Look at a job until it is over."""
        while not (job := self[identity]).over:
            threading.Event().wait(EVERY)
        return job

    async def events(self, identity: str) -> AsyncIterator[JobState]:
        """The states of a job as they change, to the last one. A job whose last listener leaves is canceled.

        Raises:
            NotOpenError: there is no such job.
        """
        latest: JobState | None = None
        with self._lock:
            self._listeners[identity] = self._listeners.get(identity, 0) + 1
        try:
            # Looked at again and again, as states change in another thread.
            while not self._closed:
                job = self[identity]
                if job != latest:
                    latest = job
                    yield job
                if job.over:
                    break
                await anyio.sleep(EVERY)
        finally:
            with self._lock:
                self._listeners[identity] -= 1
            if latest is not None and not latest.over:
                timer = threading.Timer(GRACE, self._abandon, (identity,))
                timer.daemon = True
                timer.start()

    def stop_listening(self) -> None:
        """End all streams of events, as the server is about to end."""
        self._closed = True

    def close(self) -> None:
        """Stop everything: what runs is killed, and what was not saved elsewhere is gone."""
        self.stop_listening()
        for job in self.states():
            if not job.over:
                self.cancel(job.id)
        if self._shares_line:
            self.line.leave(self)
        else:
            self.line.close()
        self._folder.cleanup()

    def _abandon(self, identity: str) -> None:
        with self._lock:
            listened = self._listeners.get(identity, 0)
        if not listened and not self._closed:
            self.cancel(identity)

    def _change(self, identity: str, **changes: object) -> JobState:
        """The state of a job after changes; one that is over does not change any more."""
        with self._lock:
            job = self._states[identity]
            # A run that was canceled may still come to its end.
            if not job.over:
                job = self._states[identity] = replace(job, **changes)  # type: ignore[arg-type]
            return job

    def _forget(self) -> None:
        over = [job.id for job in self._states.values() if job.over]
        for identity in over[: max(0, len(over) - REMEMBERED)]:
            del self._states[identity]
            self._listeners.pop(identity, None)

    def _perform(self, identity: str, run: _Run) -> None:
        """Run one job, whatever becomes of it."""
        if self._change(identity, state="running", message="starting", progress=0.0).over:
            return
        try:
            changes = self._run(identity, run)
        except (RegardError, OSError, MemoryError) as error:
            changes = {"state": "failed", "message": str(error) or type(error).__name__}
        if "record" not in changes:
            # What it wrote until then is nobody's.
            shutil.rmtree(Path(self._folder.name) / identity, ignore_errors=True)
        self._change(identity, **changes)

    def _run(self, identity: str, run: _Run) -> dict[str, object]:
        # Each run has a folder of its own, from which its record is mapped later.
        folder = Path(self._folder.name) / identity
        folder.mkdir()
        request: dict[str, Any] = {
            "session": self._folder.name,
            "kind": run.model.kind,
            "source": run.model.source,
            "text": run.text,
            "image": None,
            "folder": str(folder / "record"),
            "next": str(folder / "next.safetensors"),
            "changed": None,
        }
        if run.base is not None:
            request["changed"] = _changed(run.base, run.settings, folder / "plan.json")
        if run.image is not None:
            picture = folder / "picture"
            files.write(picture, run.image)
            request["image"] = str(picture)

        def report(progress: float | None, message: str) -> None:
            self._change(identity, progress=progress, message=message)

        # Canceled before there was anything to kill, it must not begin.
        answer = self.line.worker.run(request, report, lambda: not self[identity].over)
        # Canceled while the answer was on its way.
        if self[identity].over:
            return {}
        tiles = RecordTiles.open(folder / "record")
        text = answer.get("text") or run.text
        title = f"{run.model.title} · {_beginning(text)}".rstrip(" ·")
        if run.base is not None:
            title = f"{run.base.title} · {said(run.base.record, run.settings)}"
        opened = self._opened.add(tiles, title, answer.get("code", ""), folder)
        opened.model, opened.text = run.model, text
        opened.base, opened.settings = run.base, run.settings
        if (folder / "next.safetensors").is_file():
            opened.next_tokens = NextTokens.load(folder / "next.safetensors")
        message = answer.get("message", "")
        return {"state": "done", "progress": 1.0, "message": message, "record": opened.id}


def _changed(base: OpenRecord, settings: Sequence[HeadSetting], plan: Path) -> dict[str, Any]:
    """What the worker has to know of changes; the plan itself goes by a file."""
    Plan(changes_of(base.record, settings)).save(plan)
    keep = "vectors"
    if not all(setting.keeps_spec for setting in settings):
        keep = "statistics"
    layers = [call.layer for call in base.record]
    return {"plan": str(plan), "layers": layers, "code": code(base.record, settings), "keep": keep}


def _beginning(text: str) -> str:
    """The first words of a text, in one line."""
    line = " ".join(text.split())
    if len(line) > 40:
        return f"{line[:39]}…"
    return line
