"""How a record, a call or a history shows itself in a notebook: whoever can do more than a picture is registered here.

Knows what was taken from which record, and nothing of what shows it, which lies in a later layer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary, ref

Bundle: TypeAlias = dict[str, Any]
"""What a notebook shows, by MIME type; empty: its static picture."""
Viewer: TypeAlias = Callable[[Any, Any], Any]
"""Takes a record and a call of it, either of which may be None, or a history and None; gives a widget, or None."""
VIEW = "application/vnd.jupyter.widget-view+json"
C = TypeVar("C")

_viewers: list[Viewer] = []
# A call alone does not know its record, whose tokens are the labels of its map.
_taken: WeakKeyDictionary[Any, ref[Any]] = WeakKeyDictionary()


def register(viewer: Viewer) -> None:
    """Let `viewer` show records, calls and histories; it is asked within a notebook only."""
    _viewers[:] = [viewer]


def taken(call: C, record: object) -> C:
    """The call; its record is remembered as long as both live."""
    _taken[call] = ref(record)
    return call


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel, whose front end shows more than text."""
    ipython = sys.modules.get("IPython")
    if ipython is None:
        return False
    return getattr(ipython.get_ipython(), "kernel", None) is not None


def bundle(record: object, call: object = None) -> Bundle:
    """What a notebook shows of a record, of one call of it, or of a history.

    Args:
        record: or a history; None: the record that the call was taken from.
        call: None: the whole record.
    """
    if not in_notebook():
        return {}
    widget = _widget(record, call)
    if widget is None:
        return {}
    # Without its plain text: the value's own stands beside it, and its picture for where no kernel is.
    return {VIEW: {"version_major": 2, "version_minor": 1, "model_id": widget.model_id}}


def display(picture: str, record: object, call: object = None) -> object:
    """What marimo shows, which asks for a value of its own kinds and takes HTML before any widget.

    Args:
        picture: HTML, for where there is no widget.
        record, call: as of `bundle`.
    """
    return _widget(record, call) or Picture(picture)


class Picture:
    """HTML that shows itself.

    Args:
        content: trusted HTML.
    """

    def __init__(self, content: str) -> None:
        self._content = content

    def _repr_html_(self) -> str:
        return self._content


def _widget(record: object, call: object) -> Any:
    if not _viewers:
        return None
    if call is not None and call in _taken:
        record = _taken[call]()
    return _viewers[0](record, call)
