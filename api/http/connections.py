"""Connections that wait for their clients: each ends after a time, and where there are too many, new ones take over.

uvicorn ends idle connections and bounds the size of a request's head. It offers nothing against a client that sends
half a request, that does not read its answer, or that opens a connection and sends nothing. A few of them take no
thread and no database connection, but a thousand take every file descriptor of the process.
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from typing import Any, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from edgefront.api.http import problems
from edgefront.api.http.concurrency import client_gone

RECEIVED_PER_S = 16 << 10
"""Bytes. A request that arrives more slowly than this, after its `receive_s`, is ended."""
READ = 16 << 10
"""Bytes of its answer, or all that is left, that a client must read within each `send_s`."""
PART = 64 << 10
"""Bytes of an answer that are handed to the system at once, and most of it that wait there: the rest is sent as the
client reads."""
UNSENT = 512 << 20
"""Bytes of answers in memory whose clients have not read them. Beyond, the longest unread one is ended."""
SPARE = 32
"""Connections beyond the bound: for those whose requests are still to come, and for the health check."""
GRACE_S = 0.1
"""Seconds that a new connection has at least to send its request."""
HEALTH = "/v1/health"

_TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class BoundedProtocol(H11Protocol):
    """One connection; `bounded_protocol` sets the bounds."""

    receive_s: float
    send_s: float
    most: int
    waiting: OrderedDict[BoundedProtocol, None]
    """Connections whose client has to act before anything happens: to send a request, the rest of one, or to read its
    answer. Those that wait longest come first."""
    unsent: int
    """Bytes of the answers of all connections that are being sent in parts."""

    _arriving: asyncio.TimerHandle | None = None
    """Set while a request is not there as a whole."""
    _since = 0.0
    _received = 0
    _sending: asyncio.TimerHandle | None = None
    """Set while the client does not read."""
    _unread = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        _notice_unread(self.transport)
        self._application, self.app = cast(ASGIApp, self.app), cast(Any, self._answer)
        self._begin()
        if len(self.connections) > self.most + SPARE:
            self.loop.call_later(GRACE_S, self._make_room)

    def _make_room(self) -> None:
        """Ends the connection that waits longest, if there are still too many."""
        if self.waiting and len(self.connections) > self.most + SPARE:
            longest, _ = self.waiting.popitem(last=False)
            self.connections.discard(longest)
            longest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        self._all_read()
        super().connection_lost(exc)
        self.waiting.pop(self, None)

    def _place(self) -> None:
        """Keeps `waiting` as it has to be."""
        if self._arriving or self._sending or self.cycle is None or self.cycle.response_complete:
            self.waiting[self] = None
        else:
            self.waiting.pop(self, None)

    # The request ------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        former = self.cycle
        self._received += len(data)
        super().data_received(data)
        cycle = self.cycle
        # The cycle is made when the head of a request is there, and knows whether more of the body is to come.
        in_head = cycle is None or (cycle is former and cycle.response_complete)
        if in_head or (cycle.more_body and not cycle.response_complete):
            self._begin()
        else:
            self._end()
            self._place()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # The next request may have begun before this one was answered.
        begun = bool(self.conn.trailing_data[0]) if self.cycle.response_complete else self.cycle.more_body
        if begun:
            self._begin()
        self._place()

    def _begin(self) -> None:
        if self._arriving is None and not self.transport.is_closing():
            self._since, self._received = self.loop.time(), 0
            self._arriving = self.loop.call_later(self.receive_s, self._look)
            self.waiting[self] = None
            self.waiting.move_to_end(self)

    def _end(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def _look(self) -> None:
        self._arriving = None
        if self.transport.is_closing():
            return
        left = self._since + self.receive_s + self._received / RECEIVED_PER_S - self.loop.time()
        if self.flow.read_paused:  # it is us who do not read
            left = max(left, self.receive_s)
        if left > 0:
            self._arriving = self.loop.call_later(left, self._look)
            return
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_TIMEOUT)
        self.transport.close()

    # The answer -------------------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reading()
        self._place()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._all_read()
        self._place()

    def _expect_reading(self) -> None:
        self._unread = self.transport.get_write_buffer_size()
        self._sending = self.loop.call_later(self.send_s, self._look_at_reading)

    def _all_read(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def _look_at_reading(self) -> None:
        if self._unread - self.transport.get_write_buffer_size() < READ:
            self.transport.abort()  # to close it would wait until all is read
        else:
            self._expect_reading()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application's answer, in parts. 503 to all but the health check while too many are being answered."""
        if len(self.connections) - len(self.waiting) > self.most and not scope["path"].endswith(HEALTH):
            await _busy(scope, receive, send)
            return

        async def in_parts(message: Message) -> None:
            body = message.get("body", b"")
            if len(body) <= PART:
                await send(message)
                return
            everywhere = type(self)
            everywhere.unsent += len(body)
            if everywhere.unsent > UNSENT:
                self._end_unread()
            try:
                for start in range(0, len(body), PART):
                    end = start + PART
                    more = message.get("more_body", False) or end < len(body)
                    await send({**message, "body": body[start:end], "more_body": more})
            finally:
                everywhere.unsent -= len(body)

        cycle = self.cycle
        client_gone.set(lambda: bool(cycle.disconnected))
        await self._application(scope, receive, in_parts)

    def _end_unread(self) -> None:
        longest = next((one for one in self.waiting if one._sending), None)
        if longest is not None:
            del self.waiting[longest]
            longest.transport.abort()


def bounded_protocol(receive_s: float, send_s: float, connections: int) -> type[BoundedProtocol]:
    """uvicorn's protocol with these bounds (`http.receive_s`, `http.send_s`, `http.connections`)."""
    bounds = {"receive_s": receive_s, "send_s": send_s, "most": connections, "waiting": OrderedDict(), "unsent": 0}
    return type(BoundedProtocol.__name__, (BoundedProtocol,), bounds)


def _notice_unread(transport: asyncio.Transport) -> None:
    """Makes the transport pause when anything waits in its buffer, and the system take little more than what the client
    reads: else megabytes count as sent that nobody has read.
    """
    transport.set_write_buffer_limits(1, 0)
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)  # Linux, macOS
    connection = transport.get_extra_info("socket")
    if option is not None and connection is not None:
        connection.setsockopt(socket.IPPROTO_TCP, option, PART)


_busy = problems.respond(
    503,
    "unavailable",
    "the server has as many connections as it allows (http.connections); try again",
    headers={"Retry-After": "2", "Connection": "close"},
)
