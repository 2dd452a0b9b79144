"""Threads in turn: no owner and no device takes all threads that requests run in.

Each may have so many requests in threads at once; its further ones wait, and those of others do not. A device counts
apart from its owner: agents have their own, smaller, share, and all of an owner's one together. Requests that wait for
work, follow events or are sent a file hold no thread, so they do not count. What takes seconds has threads of its own
(`api.http.slow`). Bodies are bounded alike: in bytes, and large ones in the time that parsing them takes.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import anyio
from fastapi import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from edgefront.api.http.file_responses import send_view
from edgefront.core.errors import TooManyRequests

OF_DEVICE = 4
"""Requests of one device in threads at once. An agent sends one or two."""
OF_OWNER = 3 / 8
"""Share of the database connections that short requests of one owner use at once."""
OF_DEVICES = 1 / 2
"""Share of the database connections that requests of all devices of one owner use at once."""
WAITING = 64
"""Requests of one owner, or one device, that wait for their turn at once. Each holds a connection, of which a process
has a few thousand for everybody."""
WAITING_DEVICES = 2048
"""Requests of all devices of one owner that wait for their turn at once: a thousand agents may send at one instant."""
RETRY_AFTER_S = 2.0
LARGE_BYTES = 64 << 10
REST = 4.0
"""After a large body of a sender was parsed, its next one waits for so many times as long."""
BODIES_BYTES = 32 << 20
"""Bytes of the bodies of one owner, or one device, that are read or answered at once."""
DEVICES_BYTES = 128 << 20
"""Bytes of the bodies of all devices of one owner."""

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Queues:
    """A queue of each owner, device or address, as long as anybody is in it. Used from the event loop only.

    Args:
        waiting: how many of one may wait at once; further ones are refused. None: any number.
    """

    def __init__(self, waiting: int | None = None) -> None:
        self._waiting = waiting
        self._limits: dict[Hashable, anyio.CapacityLimiter] = {}
        self._users: Counter[Hashable] = Counter()

    @asynccontextmanager
    async def turn(self, who: Hashable, most: int, waiting: int | None = None) -> AsyncIterator[bool]:
        """Waits until fewer than `most` of `who` have a turn, and has one until it ends; whether it had to wait.
        `TooManyRequests` if too many wait already; `waiting` instead of the queues' own bound.
        """
        waiting = self._waiting if waiting is None else waiting
        if waiting is not None and self._users[who] >= most + waiting:
            raise TooManyRequests(
                f"{waiting} requests wait for others of the same owner or device, as many as may: send the next when "
                "some of them are answered",
                retry_after_s=RETRY_AFTER_S,
            )
        self._users[who] += 1
        try:
            limit = self._limits.setdefault(who, anyio.CapacityLimiter(most))
            waits = limit.available_tokens <= 0
            async with limit:
                yield waits
        finally:
            self._users[who] -= 1
            if not self._users[who]:
                del self._users[who], self._limits[who]


class Shares(Queues):
    """How much each sender may run in threads, and how many bytes it may send.

    Args:
        connections: database connections of this process.
    """

    def __init__(self, connections: int) -> None:
        super().__init__(WAITING)
        self.of_owner = max(1, int(connections * OF_OWNER))
        self.of_devices = max(1, int(connections * OF_DEVICES))
        self._bodies: Counter[str] = Counter()
        self._rested_at: dict[str, float] = {}

    async def rest(self, who: str) -> None:
        """Waits until the rest that `tired` asked of this sender is over."""
        wait_s = self._rested_at.pop(who, 0.0) - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    def tired(self, who: str, rest_s: float) -> None:
        """Asks this sender to rest before its next large body."""
        now = time.monotonic()
        self._rested_at = {other: end for other, end in self._rested_at.items() if end > now} | {who: now + rest_s}

    @contextmanager
    def body(self, owner: str, device_id: str | None) -> Iterator[Callable[[int], None]]:
        """What it gives counts bytes that arrive; `TooManyRequests` where the sender has too many under way."""
        bounds = {sender(owner, device_id): BODIES_BYTES}
        if device_id is not None:
            bounds[_devices(owner)] = DEVICES_BYTES
        own = 0

        def add(count: int) -> None:
            nonlocal own
            own += count
            for who in bounds:
                self._bodies[who] += count
            for who, most in bounds.items():
                if self._bodies[who] > most:
                    raise TooManyRequests(
                        f"bodies of more than {most >> 20} MiB are under way, as many as one owner, one device or all "
                        "devices of an owner may send at once: send the next when one of them is answered",
                        retry_after_s=1.0,
                    )

        try:
            yield add
        finally:
            for who in bounds:
                self._bodies[who] -= own
                if not self._bodies[who]:
                    del self._bodies[who]


@dataclass(frozen=True)
class _Asker:
    """Who sent a request, and whom else it is counted for."""

    shares: Shares
    who: str
    most: int
    devices: str | None
    """All devices of the owner together, where one of them sent it."""
    gone: Callable[[], Awaitable[bool]] | None
    """Says whether the client has closed the connection; its whole body was read before."""

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Raises `ClientDisconnect` where nobody waits for the answer any more when the turn comes."""
        async with self.shares.turn(self.who, self.most) as waited:
            if self.devices is None:
                await self._drop_if_gone(waited)
                yield
            else:
                async with self.shares.turn(self.devices, self.shares.of_devices, WAITING_DEVICES) as waited_too:
                    await self._drop_if_gone(waited or waited_too)
                    yield

    async def _drop_if_gone(self, waited: bool) -> None:
        if waited and self.gone is not None and await self.gone():
            raise ClientDisconnect

    @asynccontextmanager
    async def body(self) -> AsyncIterator[None]:
        """One large body at a time: of a device, and of all devices of its owner."""
        async with self.shares.turn(f"{self.who}'s body", 1):
            if self.devices is None:
                yield
            else:
                async with self.shares.turn(f"{self.devices}' bodies", 1, WAITING_DEVICES):
                    yield


_asker: ContextVar[_Asker | None] = ContextVar("asker", default=None)
"""Who sent the request that this task answers."""


def sender(owner: str, device_id: str | None) -> str:
    """Who a request is counted for."""
    return f"owner {owner}" if device_id is None else device_id


def _devices(owner: str) -> str:
    return f"devices of {owner}"


def asked_by(
    shares: Shares, *, owner: str, device_id: str | None, gone: Callable[[], Awaitable[bool]] | None = None
) -> None:
    """Says who sends the request that is handled in this task; `gone`: whether its client has closed the connection."""
    who, most = sender(owner, device_id), shares.of_owner if device_id is None else OF_DEVICE
    _asker.set(_Asker(shares, who, most, None if device_id is None else _devices(owner), gone))


async def in_turn(work: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
    """What `work` returns, called in a thread when it is the sender's turn."""
    asker = _asker.get()
    if asker is None:
        return await run_in_threadpool(work, *given, **named)
    async with asker.turn():
        return await run_in_threadpool(work, *given, **named)


async def parsed(body: bytes, parse: Callable[[bytes], Result]) -> Result:
    """What `parse` makes of a body, in the event loop. Large ones of one sender come one by one, with rests."""
    asker = _asker.get()
    if asker is None or len(body) <= LARGE_BYTES:
        return parse(body)
    shares, who = asker.shares, asker.devices or asker.who
    async with asker.body():
        await shares.rest(who)
        begun = time.monotonic()
        try:
            return parse(body)
        finally:
            shares.tired(who, REST * (time.monotonic() - begun))


class FairRoute(APIRoute):
    """A route whose endpoint, unless it is a coroutine, runs `in_turn`; an answer of status 200 is encoded there, too:
    in the event loop a large one would hold up everybody.
    """

    waits = True
    """False where the handler does so itself."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        if self.waits and not inspect.iscoroutinefunction(endpoint):
            endpoint = _in_turn(endpoint, encode=options.get("status_code") in (None, 200))
        super().__init__(path, endpoint, **options)


def _in_turn(endpoint: Callable[..., Any], *, encode: bool) -> Callable[..., Awaitable[Any]]:
    def work(**values: Any) -> Any:
        answer = endpoint(**values)
        if encode and isinstance(answer, list):
            return Response(to_json(answer), media_type="application/json")
        return send_view(answer) if encode and isinstance(answer, BaseModel) else answer

    @functools.wraps(endpoint)
    async def call(**values: Any) -> Any:
        return await in_turn(work, **values)

    return call
