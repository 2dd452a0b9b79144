"""Objects that the endpoints share; one per running application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import anyio

from edgefront.api.http.concurrency import Shares, in_turn
from edgefront.api.http.credentials import Credentials
from edgefront.api.http.metrics import Fresh, Metrics
from edgefront.api.http.rates import RateBound
from edgefront.api.http.slow import SlowWork
from edgefront.api.http.wrong_keys import WrongKeys
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
    rates: RateBound
    """Rate limit of each key."""
    log_rates: RateBound
    """Bounds the rate of each device's log lines."""
    job_commands: RateBound
    """Bounds the rate of an owner's pauses and resumptions of a job: each withdraws or makes its launches."""
    wrong_keys: WrongKeys
    shares: Shares
    """Who may run how much in threads."""
    room: WaitingRoom
    feeds: Feeds
    metrics: Metrics
    slow: SlowWork
    """For requests that take seconds (plans, predictions, building models, exports)."""

    fits: Fits
    """Predictors that have learnt, kept while nothing new is measured."""
    probes: anyio.CapacityLimiter
    """Threads for readiness checks, which may hang."""
    overview: Fresh
    loop: asyncio.AbstractEventLoop

    async def fetch(self, owner: str, read: Callable[[], Result]) -> Result:
        """Reads files of trainings in a thread; one of those for slow work if they are on an object store, which may
        hang.
        """
        return await (in_turn(read) if self.settings.artifact_url is None else self.slow.run(owner, read))

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
