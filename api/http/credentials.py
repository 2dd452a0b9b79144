"""Cache of the principals of API keys, agent credentials and browser sessions.

An agent sends a request every few seconds, and looking up the agent's key each time would be half of the database's
load. So principals are cached, and one query every `CHECKED_S` reads the revocation counter, regardless of the number
of requests. A change of the counter clears the cache. While the query fails, every secret is looked up in the database.
A revocation in another process takes effect within `TRUSTED_S`, a revocation in this process at once (`forget`).
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

ENROLMENT_PREFIX = "efe_"
CHECKED_S = 0.3
"""Seconds between two checks for revocations."""
TRUSTED_S = 0.9
"""Seconds for which a check for revocations is valid, from its beginning."""
REMEMBERED_S = 60.0
IDLE_S = 5.0
"""Seconds without requests after which checks pause until the next request."""
MAX_REMEMBERED = 20_000

_log = logging.getLogger("edgefront.api")


@dataclass(frozen=True)
class Credential:
    """A secret from the Authorization header or the browser's cookie."""

    secret: str = field(repr=False)
    cookie: bool = False


class Credentials:
    """Finds the principal of a credential. Use from the event loop only, except `forget`.

    Args:
        changed: called after a revocation in any process.
        needed: returns whether checks for revocations are needed even without requests.
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
        self._thread = anyio.CapacityLimiter(1)  # so that checks do not wait for the threads of requests

    def remembered(self, credential: Credential) -> Principal | None:
        """Returns the cached principal if it is certainly still valid, else None."""
        now = self._clock()
        self._asked_at = now
        remembered = self._remembered.get(credential)
        if remembered is None or remembered[1] <= now or self._checked_at + TRUSTED_S <= now:
            return None
        return remembered[0]

    def last_known(self, credential: Credential) -> Principal | None:
        """Returns the latest principal even if it may be revoked by now; for use while the database is unavailable."""
        principal, _ = self._remembered.get(credential, (None, 0.0))
        return principal if principal is not None and self._lasts_s(principal) > 0 else None

    async def resolve(self, credential: Credential) -> Principal:
        """Returns the principal. Raises `Unauthenticated` for an unknown secret, `Unavailable` without database."""
        principal = self.remembered(credential)
        if principal is not None:
            return principal
        epoch = self._epoch
        principal = await run_in_threadpool(self._look_up, credential)
        if principal.pending:  # the look-up has revoked the device's older credentials
            self.forget()
        if epoch == self._epoch:  # skipped if there was a revocation meanwhile
            self._remembered[credential] = (principal, self._clock() + self._lasts_s(principal))
            self._remembered.move_to_end(credential)
            if len(self._remembered) > MAX_REMEMBERED:
                self._remembered.popitem(last=False)
        return principal

    async def watch(self) -> None:
        """Checks for revocations until `close`, while there are requests or checks are `needed`."""
        while not self._closed.is_set():
            if self._needed() or self._clock() - self._asked_at < IDLE_S:
                try:
                    await self.check()
                except Unavailable:
                    pass  # the cache is unused until a check succeeds
                except Exception:
                    _log.exception("the check for revoked keys failed; every key is looked up")
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._closed.wait(), CHECKED_S)

    def close(self) -> None:
        """Ends `watch`. Call from the event loop only."""
        self._closed.set()

    async def check(self) -> None:
        """Clears the cache if there was a revocation since the previous check."""
        began = self._clock()
        version = await anyio.to_thread.run_sync(self._count, limiter=self._thread)
        if version != self._version:
            self.forget()
            self._changed()  # also on the first check: a stream may have begun before
            self._version = version
        self._checked_at = began

    def forget(self) -> None:
        """Clears the cache after a revocation."""
        self._epoch += 1
        self._remembered.clear()

    def _count(self) -> int:
        with self._database.read() as session:
            return access_queries.version(session)

    def _look_up(self, credential: Credential) -> Principal:
        # The process's clock is precise enough for expiry times, and saves a query.
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
