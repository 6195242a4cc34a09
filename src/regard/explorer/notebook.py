"""The explorer in a cell of a notebook: the front end of the server, with its requests over the notebook's channel.

One set of open records for the kernel, so that any view can compare any two of them.
"""

from __future__ import annotations

import importlib.util
import threading
from functools import cache
from typing import TYPE_CHECKING

from regard.explorer.app import bundle as built
from regard.explorer.app import create_api
from regard.explorer.in_process import InProcess
from regard.explorer.jobs import Jobs
from regard.explorer.limits import Limits
from regard.explorer.opened import Opened, OpenRecord
from regard.explorer.worker import Worker
from regard.record import Call, History, Record
from regard.web.history import Training
from regard.web.tiles import RecordTiles

if TYPE_CHECKING:
    from regard.explorer.widget import Explorer

# A record that is shown stays in memory, with its vectors; the one that was shown first is closed for another.
RECORDS = 8
# So do histories, of some megabytes.
HISTORIES = 8


class Shown:
    """What the notebook of this kernel shows."""

    def __init__(self) -> None:
        self.opened = Opened(limits=Limits(records=RECORDS))
        self.answers = InProcess(create_api(self.opened, Jobs(self.opened, Worker(()))))
        self._calls: dict[str, list[Call]] = {}
        self._histories: dict[str, History] = {}
        self._lock = threading.Lock()

    def open(self, record: Record) -> OpenRecord:
        """The record as the routes know it; one that has other calls than when it was opened is another."""
        with self._lock:
            for one in self.opened.records():
                if one.record is record and self._calls[one.id] == record.calls:
                    return one
            if len(self._calls) >= RECORDS:
                oldest = next(iter(self._calls))
                self.opened.close(oldest)
                del self._calls[oldest]
            one = self.opened.add(RecordTiles(record))
            self._calls[one.id] = list(record.calls)
            return one

    def open_history(self, history: History) -> str:
        """The identity of a history as the routes know it; one that was shown before is the same."""
        with self._lock:
            for identity, shown in self._histories.items():
                if shown is history:
                    return identity
            if len(self._histories) >= HISTORIES:
                oldest = next(iter(self._histories))
                self.opened.trainings.close(oldest)
                del self._histories[oldest]
            training = Training(repr(history), history)
            identity = self.opened.trainings.add(training.title, lambda: training).id
            self._histories[identity] = history
            return identity


@cache
def shown() -> Shown:
    """That of this kernel; made when something is first shown."""
    return Shown()


@cache
def front_end() -> tuple[str, str]:
    """Script and style of the widget; empty where they were not built."""
    folder = built() / "widget"
    if not folder.is_dir():
        return "", ""
    return (folder / "widget.js").read_text("utf-8"), (folder / "widget.css").read_text("utf-8")


def address(one: OpenRecord, call: Call | None) -> str:
    """Where a view begins: the record's overview, or the first head of a call."""
    if call is None:
        return f"#/model?record={one.id}"
    return f"#/head?record={one.id}&call={one.record.calls.index(call)}"


def widget(value: Record | History | None, call: Call | None) -> Explorer | None:
    """What a notebook shows; None without the extra `notebook`, so that the static picture is shown.

    Args:
        value: a record or a history; None where a call is shown whose record is not known.
        call: None: the whole record.
    """
    script, style = front_end()
    if importlib.util.find_spec("anywidget") is None or not script:
        return None
    from regard.explorer.widget import Explorer

    if isinstance(value, History):
        start = f"#/history?history={shown().open_history(value)}"
    else:
        record = value
        if record is None or (call is not None and call not in record.calls):
            assert call is not None, "a record, a call, or both"
            record = Record([call])
        start = address(shown().open(record), call)
    return Explorer(shown().answers, start, script, style)
