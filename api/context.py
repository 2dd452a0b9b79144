"""Objects that the endpoints share; one per running application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, TypeVar

import anyio
from sqlalchemy.orm import Session

from edgefront.api.http.credentials import Credentials
from edgefront.api.http.metrics import Metrics
from edgefront.api.http.threads import SlowWork
from edgefront.api.live.long_poll import WaitingRoom
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.fleet.device_keys import key_of_device
from edgefront.core.services.prediction.fits import Fits
from edgefront.core.services.settings import Settings
from edgefront.core.store.database import Database

if TYPE_CHECKING:
    from edgefront.api.live.events import Feeds  # whose endpoints take a context

VERSION = version("edgefront-lm")
"""Of the running release."""

Result = TypeVar("Result")


@dataclass
class Context:
    settings: Settings
    database: Database
    credentials: Credentials
    room: WaitingRoom
    feeds: Feeds
    metrics: Metrics
    slow: SlowWork
    fits: Fits
    """Predictors that have learnt, kept while nothing new is measured."""
    probes: anyio.CapacityLimiter
    """Threads for readiness checks, which may hang."""
    loop: asyncio.AbstractEventLoop

    def changed(self) -> None:
        """Notifies the pollers of this process of a commit. Thread-safe."""
        self.room.notify()
        self.feeds.notify()

    def command(
        self, change: Callable[[Session, Principal, str, datetime], Result], principal: Principal, id_: str
    ) -> Result:
        """What `change` of a job or training returns, in a transaction of its own."""
        with self.database.write() as session:
            result = change(session, principal, id_, self.database.now(session))
        self.changed()
        return result

    def call_device(self, device_id: str) -> None:
        """Wakes a device that waits for work, because its state has changed. Thread-safe."""
        self.loop.call_soon_threadsafe(self.room.call, (key_of_device(device_id),))

    def stop(self) -> None:
        """Ends long polls and event streams, so that the server can stop."""
        self.credentials.close()
        self.room.close()
        self.feeds.close()
