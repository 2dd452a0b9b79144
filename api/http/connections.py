"""Connections that ask for nothing: half-sent requests end, and the number of connections is bounded.

uvicorn ends idle connections and bounds the size of a request's head, and offers nothing against a client that sends
half a request and waits, or opens a connection and sends none. A few of them take no thread and no database
connection, but a thousand take every file descriptor of the process.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from edgefront.api.http import problems

BYTES_PER_S = 16 << 10
"""A request that arrives more slowly than this, after its `receive_s`, is ended."""
SPARE = 32
"""Connections beyond the bound that are accepted, for the health check alone."""
SPARE_S = 2.0
"""Seconds that these get to send their request."""
HEALTH = frozenset({"/v1/health"})

_TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class BoundedProtocol(H11Protocol):
    """One connection; `bounded_protocol` sets the bounds."""

    receive_s: float
    most: int

    _arriving: asyncio.TimerHandle | None = None
    """Set while a request is not there as a whole."""
    _since = 0.0
    _got = 0
    _idle_since = 0.0
    _spare = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        if len(self.connections) > self.most:
            self._make_room()
        self._begin()

    def _make_room(self) -> None:
        """Closes the connection that has been idle longest; if none is, this one may ask for the health alone."""
        ours = [one for one in self.connections if isinstance(one, BoundedProtocol)]
        idle = [one for one in ours if one.timeout_keep_alive_task is not None]
        if idle:
            min(idle, key=lambda one: one._idle_since).transport.close()
        elif len(self.connections) > self.most + SPARE:
            self.transport.abort()
        else:
            self._spare, self.app = True, cast(Any, only_health(cast(ASGIApp, self.app)))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        super().on_response_complete()
        # The next request may have begun before this one was answered.
        begun = bool(self.conn.trailing_data[0]) if self.cycle.response_complete else self.cycle.more_body
        if begun:
            self._begin()

    def data_received(self, data: bytes) -> None:
        former = self.cycle
        self._got += len(data)
        super().data_received(data)
        cycle = self.cycle
        # The cycle is made when the head of a request is there, and knows whether more of the body is to come.
        in_head = cycle is None or (cycle is former and cycle.response_complete)
        if in_head or (cycle.more_body and not cycle.response_complete):
            self._begin()
        else:
            self._end()

    def _begin(self) -> None:
        if self._arriving is None and not self.transport.is_closing():
            self._since, self._got = self.loop.time(), 0
            self._arriving = self.loop.call_later(self._patience_s, self._look)

    def _end(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    @property
    def _patience_s(self) -> float:
        return min(self.receive_s, SPARE_S) if self._spare else self.receive_s

    def _look(self) -> None:
        self._arriving = None
        if self.transport.is_closing():
            return
        left = self._since + self._patience_s + self._got / BYTES_PER_S - self.loop.time()
        if self.flow.read_paused:  # it is us who do not read
            left = max(left, self._patience_s)
        if left > 0:
            self._arriving = self.loop.call_later(left, self._look)
            return
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_TIMEOUT)
        self.transport.close()


def bounded_protocol(receive_s: float, connections: int) -> type[BoundedProtocol]:
    """uvicorn's protocol with these bounds (`http.receive_s`, `http.connections`)."""
    return type(BoundedProtocol.__name__, (BoundedProtocol,), {"receive_s": receive_s, "most": connections})


def only_health(app: ASGIApp) -> ASGIApp:
    """Answers the health check; refuses everything else, and ends the connection."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in HEALTH:
            response = problems.respond(
                503,
                "unavailable",
                "the server has as many connections as it allows (http.connections); try again",
                headers={"Retry-After": "2", "Connection": "close"},
            )
            await response(scope, receive, send)
            return

        async def closing(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        await app(scope, receive, closing)

    return answer
