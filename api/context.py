"""Objects that the endpoints share; one per running application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import anyio
from starlette.concurrency import run_in_threadpool

from edgefront.api.http.credentials import Credentials
from edgefront.api.http.metrics import Fresh, Metrics
from edgefront.api.http.threads import SlowWork
from edgefront.api.live.feeds import Feeds
from edgefront.api.live.long_poll import WaitingRoom
from edgefront.core.services.fleet.device_keys import key_of_device
from edgefront.core.services.prediction.fits import Fits
from edgefront.core.services.settings import Settings
from edgefront.core.store.database import Database

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
    overview: Fresh
    loop: asyncio.AbstractEventLoop

    async def fetch(self, read: Callable[[], Result]) -> Result:
        """Reads files of trainings in a thread; one of those for slow work if they are on an object store, which may
        hang.
        """
        return await (run_in_threadpool(read) if self.settings.artifact_url is None else self.slow.run(read))

    def changed(self) -> None:
        """Notifies the pollers of this process of a commit. Thread-safe."""
        self.room.notify()
        self.feeds.notify()

    def call_device(self, device_id: str) -> None:
        """Wakes a device that waits for work, because its state has changed. Thread-safe."""
        self.loop.call_soon_threadsafe(self.room.call, (key_of_device(device_id),))

    def stop(self) -> None:
        """Ends long polls and event streams, so that the server can stop."""
        self.credentials.close()
        self.room.close()
        self.feeds.close()
