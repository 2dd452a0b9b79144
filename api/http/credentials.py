"""Cache of the principals of API keys, agent credentials and browser sessions.

An agent sends a request every few seconds; looking its key up each time would be half of the database's load. So
principals are cached, and one query several times a second, however many requests there are, finds out whether a key, a
credential or a session has ended anywhere. If so, the cache is cleared. While that query fails, every secret is looked
up. What was revoked in another process thus ends here within `TRUSTED_S`, in this process at once (`forget`).
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone

import anyio
from starlette.concurrency import run_in_threadpool

from edgefront.core.common.errors import Unavailable
from edgefront.core.services.access import queries as access_queries
from edgefront.core.services.access.keys import Principal, authenticate, authenticate_web
from edgefront.core.services.fleet.devices import first_used
from edgefront.core.store.database import Database

CHECKED_S = 0.3
"""Seconds between two checks."""
TRUSTED_S = 0.9
"""Seconds after the beginning of a check for which it counts."""
REMEMBERED_S = 60.0
IDLE_S = 5.0
"""Seconds without a request after which nothing is checked until the next one."""
MAX_REMEMBERED = 20_000

_log = logging.getLogger("edgefront.api")


@dataclass(frozen=True)
class Credential:
    """A secret from the Authorization header or the browser's cookie."""

    secret: str = field(repr=False)
    cookie: bool = False


class Credentials:
    """Finds the principal of a credential. Used from the event loop only, except `forget`.

    Args:
        changed: called when something has ended anywhere.
        needed: whether checks are needed even without requests.
    """

    def __init__(
        self,
        database: Database,
        clock: Callable[[], float] = time.monotonic,
        *,
        changed: Callable[[], None] = lambda: None,
        needed: Callable[[], bool] = lambda: False,
    ) -> None:
        self._database = database
        self._clock = clock
        self._changed = changed
        self._needed = needed
        self._remembered: OrderedDict[Credential, tuple[Principal, float]] = OrderedDict()
        self._epoch = 0
        self._version: int | None = None
        self._checked_at = -math.inf
        self._asked_at = -math.inf
        self._closed = asyncio.Event()
        self._thread = anyio.CapacityLimiter(1)  # of its own: it must not wait for those of requests

    def remembered(self, credential: Credential) -> Principal | None:
        """The principal, if it is known that it is still valid."""
        now = self._clock()
        self._asked_at = now
        remembered = self._remembered.get(credential)
        if remembered is None or remembered[1] <= now or self._checked_at + TRUSTED_S <= now:
            return None
        return remembered[0]

    def last_known(self, credential: Credential) -> Principal | None:
        """The principal by the last look-up, which may have ended since; for use while the database is unavailable."""
        remembered = self._remembered.get(credential)
        return None if remembered is None or remembered[1] <= self._clock() else remembered[0]

    async def resolve(self, credential: Credential) -> Principal:
        """The principal; `Unauthenticated` if there is none, `Unavailable` if the database is unavailable."""
        principal = self.remembered(credential)
        if principal is not None:
            return principal
        epoch = self._epoch
        principal = await run_in_threadpool(self._look_up, credential)
        if principal.pending:  # the device's older credentials have ended
            self.forget()
        if epoch == self._epoch:  # else something has ended meanwhile
            self._remembered[credential] = (principal, self._clock() + self._lasts_s(principal))
            self._remembered.move_to_end(credential)
            if len(self._remembered) > MAX_REMEMBERED:
                self._remembered.popitem(last=False)
        return principal

    async def watch(self) -> None:
        """Checks until `close`, as long as there are requests or `needed` says so."""
        while not self._closed.is_set():
            if self._needed() or self._clock() - self._asked_at < IDLE_S:
                try:
                    await self.check()
                except Unavailable:
                    pass  # the cache is not trusted meanwhile
                except Exception:
                    _log.exception("it is not known whether a key has ended; every key is looked up")
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._closed.wait(), CHECKED_S)

    def close(self) -> None:
        """Ends `watch`. From the event loop only."""
        self._closed.set()

    async def check(self) -> None:
        """Clears the cache if something has ended since the last check."""
        began = self._clock()
        version = await anyio.to_thread.run_sync(self._count, limiter=self._thread)
        if version != self._version:
            self.forget()
            self._changed()  # also the first time: a stream may have begun before that
            self._version = version
        self._checked_at = began

    def forget(self) -> None:
        """Clears the cache, because something has ended."""
        self._epoch += 1
        self._remembered.clear()

    def _count(self) -> int:
        with self._database.read() as session:
            return access_queries.version(session)

    def _look_up(self, credential: Credential) -> Principal:
        # The process's clock is exact enough for expiries of minutes to years, and saves a database query.
        now = datetime.now(timezone.utc)
        with self._database.read() as session:
            find = authenticate_web if credential.cookie else authenticate
            principal = find(session, credential.secret, now)
        if principal.pending:
            with self._database.write() as session:
                first_used(session, principal.key_id, self._database.now(session))
        return principal

    @staticmethod
    def _lasts_s(principal: Principal) -> float:
        if principal.expires_at is None:
            return REMEMBERED_S
        return min(REMEMBERED_S, (principal.expires_at - datetime.now(timezone.utc)).total_seconds())
