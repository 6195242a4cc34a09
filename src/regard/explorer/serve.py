"""The server itself: an address that is bound, and an end that waits for nobody."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from types import FrameType

import uvicorn
from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI

from regard.errors import ArgumentError
from regard.explorer.security import Access
from regard.web.playground import prepare

# Of short requests of several visitors: with more of them at once each takes longer, and all together too.
THREADS = 8
# Seconds that open connections have at the end.
LAST = 2


def bind(access: Access, port: int) -> socket.socket:
    """A socket that listens; with port 0 the system picks one that is free.

    Raises:
        ArgumentError: the address cannot be bound.
    """
    # Names are looked up as of IPv4; an address of IPv6 has colons.
    family = socket.AF_INET
    if ":" in access.host:
        family = socket.AF_INET6
    try:
        listening = socket.create_server((access.host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ArgumentError(
            f"host and port must be an address that is free here, got {access.host!r} and {port}: {error}"
        ) from error
    # Connections inherit it: without it a short answer waits 40 ms for the browser to confirm its header.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def address(access: Access, listening: socket.socket) -> str:
    """What to open in a browser, with the token that lets in; of several visitors each enters the password instead."""
    if access.public:
        return f"{access.public}/"
    # All addresses are bound, this machine's own among them: that is where the browser is.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(access.host, access.host)
    if ":" in host:
        host = f"[{host}]"
    page = f"http://{host}:{listening.getsockname()[1]}/"
    if access.several:
        return page
    return f"{page}?token={access.token}"


class _Server(uvicorn.Server):
    """Uvicorn's server, which ends at once: streams of events are told to end before it waits for them."""

    def __init__(self, config: uvicorn.Config, ending: Callable[[], None], threads: int | None) -> None:
        super().__init__(config)
        self._ending, self._threads = ending, threads

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._threads is not None:
            current_default_thread_limiter().total_tokens = self._threads
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._ending()
        super().handle_exit(sig, frame)


def serve(app: FastAPI, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until Ctrl-C, which is raised again once everything is closed.

    Args:
        app: from `create_app` or `create_shared_app`; what runs is stopped at the end.
        listening: from `bind`.
        ready: is called once, in a thread of its own: it may open a browser.
    """
    desks, learning, several = app.state.desks, app.state.learning, app.state.several
    config = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        server_header=False,
        # The defaults of uvicorn trust a proxy on this machine to say who asks.
        proxy_headers=False,
        timeout_graceful_shutdown=LAST,
    )

    def begin() -> None:
        ready()
        prepare()

    threading.Thread(target=begin, daemon=True).start()
    if several is not None:
        several.begin_clearing()
    try:
        _Server(config, desks.stop_listening, THREADS if several is not None else None).run(
            sockets=[listening]
        )
    finally:
        listening.close()
        if several is not None:
            several.close()
        desks.close()
        learning.close()
