"""Wrong keys: who sends many waits for each answer. Valid keys from the same address are let in all the same."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from typing import TypeVar

from edgefront.api.http.rates import RateBound
from edgefront.api.http.turns import Queues
from edgefront.core.errors import TooManyRequests, Unauthenticated

Found = TypeVar("Found")

DELAY_S = 1.0
"""Seconds that the answer to a wrong key beyond the limit takes."""
DELAYED = 64
"""Answers to one address that are delayed at once; further ones are sent without delay."""


class WrongKeys:
    """Looks up keys. Used from the event loop only.

    Beyond the limit, keys of the address are looked up one at a time: a query each is all that it can cost. A valid key
    waits for those before it, milliseconds; the answer to a wrong one comes late, and says when to try again.
    """

    def __init__(self, per_minute: float, *, delay_s: float = DELAY_S) -> None:
        self._bound = RateBound(per_minute)
        self._delay_s = delay_s
        self._queues = Queues()
        self._delayed: Counter[Hashable] = Counter()

    async def look_up(self, address: Hashable, find: Callable[[], Awaitable[Found]]) -> Found:
        """What `find` returns; raises `Unauthenticated` as it does, `TooManyRequests` instead beyond the limit."""
        try:
            if self._bound.has_room(address):
                return await find()
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
