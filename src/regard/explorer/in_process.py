"""The explorer's routes, asked without a server: requests and answers are values, and a thread answers them.

Knows ASGI; it does not know who asks.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, MutableMapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import unquote

from starlette.types import ASGIApp

JSON = "application/json"
Message: TypeAlias = MutableMapping[str, Any]


@dataclass(frozen=True)
class Question:
    """A request: `path` with its parameters, `body` what JSON can hold."""

    path: str
    method: str = "GET"
    body: Any = None


@dataclass(frozen=True)
class Reply:
    """An answer: its status, its media type, its bytes."""

    status: int
    media_type: str
    content: bytes

    @property
    def is_json(self) -> bool:
        """Whether the bytes are JSON."""
        return self.media_type.partition(";")[0].strip() == JSON


class InProcess:
    """Asks an app in a thread of its own, so that whoever asks goes on.

    Args:
        app: from `regard.explorer.app.create_api`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="regard-answers", daemon=True).start()

    def ask(self, question: Question, answer: Callable[[Reply], object]) -> Callable[[], None]:
        """Begin to answer.

        Args:
            question: what is asked.
            answer: is given the reply, in the thread of the answers; not called for what was given up.

        Returns:
            A function that gives the request up: what is computed for it ends soon.
        """
        gone = asyncio.Event()
        given_up = threading.Event()

        async def run() -> None:
            reply = await _reply(self._app, question, gone)
            if not given_up.is_set():
                answer(reply)

        def give_up() -> None:
            given_up.set()
            self._loop.call_soon_threadsafe(gone.set)

        asyncio.run_coroutine_threadsafe(run(), self._loop)
        return give_up

    def reply(self, question: Question, timeout: float = 60.0) -> Reply:
        """The reply, waited for at most `timeout` seconds."""
        waited: Future[Reply] = Future()
        self.ask(question, waited.set_result)
        return waited.result(timeout)


async def _reply(app: ASGIApp, question: Question, gone: asyncio.Event) -> Reply:
    content = b""
    if question.body is not None:
        content = json.dumps(question.body).encode()
    unread = [{"type": "http.request", "body": content, "more_body": False}]
    status, media_type, parts = 500, JSON, list[bytes]()

    async def receive() -> Message:
        if unread:
            return unread.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status, media_type
        if message["type"] == "http.response.start":
            status = message["status"]
            headers = dict(message.get("headers", ()))
            media_type = headers.get(b"content-type", JSON.encode()).decode("latin-1")
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))

    try:
        await app(_scope(question, len(content)), receive, send)
    # Whoever asked has to hear of it, whatever it is: a view that waits for ever says nothing.
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        return Reply(500, JSON, json.dumps({"detail": why[:1000]}).encode())
    return Reply(status, media_type, b"".join(parts))


def _scope(question: Question, length: int) -> dict[str, Any]:
    path, _, parameters = question.path.partition("?")
    path = "/" + path.lstrip("/")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": question.method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": parameters.encode(),
        "root_path": "",
        "headers": [
            (b"host", b"localhost"),
            (b"content-type", JSON.encode()),
            (b"content-length", str(length).encode()),
        ],
        "client": None,
        "server": ("localhost", 80),
    }
