"""Threads in turn: no owner and no device takes all threads, or all database connections, that requests run in.

Each may have so many requests in threads at once; its further ones wait, and those of others do not. Requests that
wait for work, follow events or are sent a file hold no thread, so they do not count. What takes seconds has threads of
its own (`api.http.slow`). Bodies are bounded alike: in bytes, and large ones in the time that parsing them takes.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

import anyio
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from edgefront.api.http.sending import send_view
from edgefront.core.errors import TooManyRequests

OF_DEVICE = 4
"""Requests of one device in threads at once. An agent sends one or two."""
OF_OWNER = 3 / 8
"""Share of the database connections that short requests of one owner use at once: what takes seconds may hold two more.
"""
LARGE_BYTES = 64 << 10
REST = 4.0
"""After a large body of an owner was parsed, for so many times as long the next one waits."""
BODIES_BYTES = 32 << 20
"""Of bodies of one owner, or one device, that are read or answered at once."""

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Queues:
    """A queue of each owner or device, as long as anybody is in it. Used from the event loop only."""

    def __init__(self) -> None:
        self._limits: dict[str, anyio.CapacityLimiter] = {}
        self._users: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, who: str, most: int) -> AsyncIterator[None]:
        """Waits until fewer than `most` of `who` have a turn, and has one until it ends."""
        self._users[who] += 1
        try:
            async with self._limits.setdefault(who, anyio.CapacityLimiter(most)):
                yield
        finally:
            self._users[who] -= 1
            if not self._users[who]:
                del self._users[who], self._limits[who]


class Turns(Queues):
    """Who may run how much in threads, and send how many bytes.

    Args:
        connections: database connections of this process.
    """

    def __init__(self, connections: int) -> None:
        super().__init__()
        self.of_owner = max(1, int(connections * OF_OWNER))
        self._bodies: Counter[str] = Counter()

    @contextmanager
    def body(self, who: str) -> Iterator[Callable[[int], None]]:
        """What it gives counts bytes that arrive; `TooManyRequests` where `who` has too many under way."""
        own = 0

        def add(count: int) -> None:
            nonlocal own
            own += count
            self._bodies[who] += count
            if self._bodies[who] > BODIES_BYTES:
                raise TooManyRequests(
                    f"bodies of more than {BODIES_BYTES >> 20} MiB are under way, as many as one owner or device may "
                    "send at once: send the next when one of them is answered",
                    retry_after_s=1.0,
                )

        try:
            yield add
        finally:
            self._bodies[who] -= own
            if not self._bodies[who]:
                del self._bodies[who]


_asker: ContextVar[tuple[Turns, str, int] | None] = ContextVar("asker", default=None)
"""Who sent the request that this task answers."""


def asked_by(turns: Turns, *, owner: str, device_id: str | None) -> None:
    """Says who sends the request that is handled in this task."""
    _asker.set((turns, f"owner {owner}", turns.of_owner) if device_id is None else (turns, device_id, OF_DEVICE))


async def in_turn(work: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
    """What `work` returns, called in a thread when it is the sender's turn."""
    asker = _asker.get()
    if asker is None:
        return await run_in_threadpool(work, *given, **named)
    turns, who, most = asker
    async with turns.turn(who, most):
        return await run_in_threadpool(work, *given, **named)


async def parsed(body: bytes, parse: Callable[[bytes], Result]) -> Result:
    """What `parse` makes of a body, in the event loop. Large ones of one sender come one at a time, with rests."""
    asker = _asker.get()
    if asker is None or len(body) <= LARGE_BYTES:
        return parse(body)
    turns, who, _ = asker
    async with turns.turn(f"{who}'s body", 1):
        begun = time.perf_counter()
        try:
            return parse(body)
        finally:
            await asyncio.sleep(REST * (time.perf_counter() - begun))


class FairRoute(APIRoute):
    """A route whose endpoint, unless it is a coroutine, runs `in_turn`; an answer of status 200 is encoded there, too:
    in the event loop a large one would hold up everybody.
    """

    in_turn = True

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        if self.in_turn and not inspect.iscoroutinefunction(endpoint):
            endpoint = _in_turn(endpoint, encode=options.get("status_code") in (None, 200))
        super().__init__(path, endpoint, **options)


def _in_turn(endpoint: Callable[..., Any], *, encode: bool) -> Callable[..., Awaitable[Any]]:
    def work(**values: Any) -> Any:
        found = endpoint(**values)
        if not encode or not isinstance(found, BaseModel):
            return found
        return send_view(found)

    @functools.wraps(endpoint)
    async def call(**values: Any) -> Any:
        return await in_turn(work, **values)

    return call
