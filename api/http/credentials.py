"""The principals of secrets, cached for a few seconds.

An agent sends a request every few seconds; looking its key up each time would be half of the database's load. A
revocation in this process takes effect at once (`forget`), one in another process after at most `REMEMBERED_S`.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone

from starlette.concurrency import run_in_threadpool

from edgefront.core.services.access.keys import Principal, authenticate, authenticate_web
from edgefront.core.store.database import Database

REMEMBERED_S = 5.0
MAX_REMEMBERED = 20_000


@dataclass(frozen=True)
class Credential:
    """A secret from the Authorization header or the browser's cookie."""

    secret: str = field(repr=False)
    cookie: bool = False


class Credentials:
    """Finds the principal of a credential. Used from the event loop only, except `forget`."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._known: OrderedDict[Credential, tuple[Principal, float]] = OrderedDict()
        self._epoch = 0

    def remembered(self, credential: Credential) -> Principal | None:
        """The principal, if it was looked up within the last `REMEMBERED_S`."""
        found = self._known.get(credential)
        if found is None or found[1] <= self._clock():
            return None
        return found[0]

    async def resolve(self, credential: Credential) -> Principal:
        """The principal; `Unauthenticated` if there is none, `Unavailable` if the database is unavailable."""
        principal = self.remembered(credential)
        if principal is not None:
            return principal
        epoch = self._epoch
        principal = await run_in_threadpool(self._look_up, credential)
        if epoch == self._epoch:  # else something was revoked meanwhile
            self._known[credential] = (principal, self._clock() + REMEMBERED_S)
            self._known.move_to_end(credential)
            if len(self._known) > MAX_REMEMBERED:
                self._known.popitem(last=False)
        return principal

    def _look_up(self, credential: Credential) -> Principal:
        # The process's clock is exact enough for expiries of minutes to years, and saves a database query.
        now = datetime.now(timezone.utc)
        with self._database.read() as session:
            find = authenticate_web if credential.cookie else authenticate
            return find(session, credential.secret, now)

    def forget(self) -> None:
        """Clears the cache, because something was revoked."""
        self._epoch += 1
        self._known.clear()
