"""The widget: anywidget's channel to one cell's view, whose requests are answered by number."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anywidget
import traitlets

from regard.explorer.in_process import InProcess, Question, Reply

METHODS = ("GET", "POST", "DELETE")


class Explorer(anywidget.AnyWidget):
    """The explorer in a cell.

    Every message of a view names the view, as several may be open on one widget, and a number that its answer repeats.

    Args:
        answers: whom requests are handed to.
        start: the address at which a view begins.
        script: the front end, an ES module. style: its style.

    Attributes:
        address: where the view is.
    """

    _esm = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode().tag(sync=True)
    address = traitlets.Unicode().tag(sync=True)

    def __init__(self, answers: InProcess, start: str, script: str, style: str) -> None:
        super().__init__(address=start, _esm=script, _css=style)
        self._answers = answers
        self._waiting: dict[tuple[str, int], Callable[[], None]] = {}
        self.on_msg(self._hear)

    def _hear(self, _widget: object, content: Any, _buffers: object) -> None:
        """One message of a view; what is no request is let be."""
        if not isinstance(content, dict):
            return
        view, number = content.get("view"), content.get("id")
        if not isinstance(view, str) or not isinstance(number, int):
            return
        if content.get("kind") == "cancel":
            give_up = self._waiting.pop((view, number), None)
            if give_up is not None:
                give_up()
            return
        path, method = content.get("path"), content.get("method", "GET")
        if not isinstance(path, str) or method not in METHODS:
            detail = f"path must be a text and method one of {', '.join(METHODS)}, got {path!r}, {method!r}"
            self.send({"view": view, "id": number, "status": 400, "json": {"detail": detail}})
            return

        def answer(reply: Reply) -> None:
            self._waiting.pop((view, number), None)
            self._answer(view, number, reply)

        self._waiting[view, number] = lambda: None
        give_up = self._answers.ask(Question(path, method, content.get("body")), answer)
        # An answer may have come already.
        if (view, number) in self._waiting:
            self._waiting[view, number] = give_up

    def _answer(self, view: str, number: int, reply: Reply) -> None:
        message: dict[str, Any] = {"view": view, "id": number, "status": reply.status, "json": None}
        if not reply.is_json:
            self.send(message, buffers=[reply.content])
            return
        if reply.content:
            message["json"] = json.loads(reply.content)
        self.send(message)
