"""Wrong keys: who sends many waits for each answer. Valid keys from the same address are let in all the same."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from typing import TypeVar

from starlette.concurrency import run_in_threadpool

from edgefront.api.http.concurrency import Queues
from edgefront.api.http.rates import RateBound
from edgefront.core.errors import TooManyRequests, Unauthenticated
from edgefront.core.services.access.keys import hash_secret
from edgefront.core.services.access.queries import valid_hashes
from edgefront.core.store.database import Database

Result = TypeVar("Result")

DELAY_S = 1.0
"""Seconds that the answer to a wrong key beyond the limit takes."""
DELAYED = 64
"""Answers to one address that are delayed at once; further ones are sent without delay."""


class WrongKeys:
    """Looks up keys. Used from the event loop only.

    Beyond the limit of its address a key is first looked for with all others that wait, one query for all of them, so
    that a valid one waits for a query or two however many wrong ones come, unknown, revoked or expired. Only a valid
    one is then looked up, one at a time. The answer to a wrong one comes late, and says when to try again.
    """

    def __init__(self, database: Database, per_minute: float, *, delay_s: float = DELAY_S) -> None:
        self._database = database
        self._bound = RateBound(per_minute)
        self._delay_s = delay_s
        self._queues = Queues()
        self._one_query = asyncio.Lock()
        self._next: tuple[set[str], asyncio.Task[set[str]]] | None = None
        self._delayed: Counter[Hashable] = Counter()

    async def look_up(self, address: Hashable, secret: str, find: Callable[[], Awaitable[Result]]) -> Result:
        """What `find` returns for this secret; raises `Unauthenticated` as it does, `TooManyRequests` instead beyond
        the limit.
        """
        try:
            if self._bound.has_room(address):
                return await find()
            if not await self._is_valid(secret):
                raise Unauthenticated("the API key is unknown, was revoked or has expired")
            async with self._queues.turn(address, 1):
                return await find()
        except Unauthenticated:
            try:
                self._bound.take(address)
            except TooManyRequests as error:
                await self._delay(address)
                raise TooManyRequests(
                    "too many wrong keys came from this address: check yours (edgefront key list)", **error.extra
                ) from None
            raise

    async def _is_valid(self, secret: str) -> bool:
        """Whether there is such a key, credential or session, neither revoked nor expired."""
        hashed = hash_secret(secret)
        if self._next is None:
            hashes: set[str] = set()
            self._next = hashes, asyncio.create_task(self._query(hashes))
        hashes, query = self._next
        hashes.add(hashed)
        return hashed in await asyncio.shield(query)

    async def _query(self, hashes: set[str]) -> set[str]:
        async with self._one_query:
            self._next = None  # who asks from now on is in the next one
            return await run_in_threadpool(self._valid, hashes)

    def _valid(self, hashes: set[str]) -> set[str]:
        with self._database.read() as session:
            return valid_hashes(session, hashes, self._database.now(session))

    async def _delay(self, address: Hashable) -> None:
        if self._delayed[address] >= DELAYED:
            return
        self._delayed[address] += 1
        try:
            await asyncio.sleep(self._delay_s)
        finally:
            self._delayed[address] -= 1
            if not self._delayed[address]:
                del self._delayed[address]
