"""Long polls: lease requests of agents that wait for work.

A waiting request uses neither a thread nor a database connection. While requests wait, one poller per process queries
which device keys (ids or classes of devices) have requested launches, and wakes a few of the matching devices at a
time, longest waiting first. The remaining devices are woken after later queries, so that a thousand idle agents never
compete for one launch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from starlette.concurrency import run_in_threadpool

from edgefront.core.common.errors import Unavailable

POLL_S = 0.25
AWAY_S = 1.0
"""Seconds between two attempts to read the database while it is unavailable."""
CALLED_AT_ONCE = 8
"""Number of devices that are woken per requested device key and poll."""
RETRIES_PER_S = 16.0
"""Number of waiting devices per second that look for work without being woken, because some work (refinements of
earlier measurements) has no rows in the database table of requested launches.
"""

OF_DEVICE = 4
"""Maximum number of waiting requests of one device. Its agent sends one request, and another after a lost connection; a
further request ends the oldest request.
"""

_log = logging.getLogger("edgefront.api")


class Pulse:
    """Wakes a polling task after an interval, or at once after a change by this process. A `Pulse` belongs to one event
    loop; `notify` is thread-safe.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._notified = asyncio.Event()

    def notify(self) -> None:
        """Wakes the poller."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._notified.set)

    async def wait(self, longest_s: float, shortest_s: float = 0.05) -> None:
        """Waits for a call of `notify`, but at least `shortest_s` and at most `longest_s` seconds. A busy process calls
        `notify` constantly.
        """
        await asyncio.sleep(shortest_s)
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._notified.wait(), longest_s - shortest_s)
        self._notified.clear()


class _Waiter:
    __slots__ = ("called", "keys")

    def __init__(self, keys: frozenset[str]) -> None:
        self.keys = keys
        self.called: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Result of the wait. True: there may be work. False: the request has waited long enough."""


class WaitingRoom:
    """The waiting lease requests. A `WaitingRoom` belongs to one event loop; `notify` is thread-safe.

    Args:
        requested_keys: returns the device keys for which launches are requested; runs in a thread.
    """

    def __init__(self, requested_keys: Callable[[], Collection[str]]) -> None:
        self._requested_keys = requested_keys
        self._waiters: dict[str, dict[_Waiter, None]] = {}
        self._of_device: dict[str, dict[_Waiter, None]] = {}
        self._size = 0
        self._pulse = Pulse()
        self._poller: asyncio.Task[None] | None = None
        self.closed = False

    @property
    def size(self) -> int:
        """Number of waiting requests."""
        return self._size

    def notify(self) -> None:
        """Notifies the poller that a commit may have added work."""
        self._pulse.notify()

    @property
    def patience_s(self) -> float:
        """Seconds after which a waiting request should look for work even if nothing has woken it."""
        return max(2.0, self._size / RETRIES_PER_S)

    async def wait(self, device_id: str, keys: Iterable[str], longest_s: float, gone: asyncio.Future[None]) -> bool:
        """Waits until one of `keys` has work, `longest_s` has passed, `gone` is done, or the server stops.

        Returns False if this request should end because the device has too many waiting requests, otherwise True.
        """
        if self.closed or longest_s <= 0:
            return True
        waiter = _Waiter(frozenset(keys))
        self._enter(device_id, waiter)
        try:
            await asyncio.wait((waiter.called, gone), timeout=longest_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._leave(device_id, waiter)
        return not waiter.called.done() or waiter.called.result()

    def call(self, keys: Iterable[str]) -> None:
        """Wakes all requests that wait with one of these device keys, after a change of a device's state."""
        for key in keys:
            self._call(key, len(self._waiters.get(key, ())))

    def close(self) -> None:
        """Ends all waiting requests with an empty response; later requests do not wait."""
        self.closed = True
        for key in list(self._waiters):
            self._call(key, len(self._waiters[key]))
        if self._poller is not None:
            self._poller.cancel()

    def _enter(self, device_id: str, waiter: _Waiter) -> None:
        own = self._of_device.setdefault(device_id, {})
        for older in list(own)[: max(0, len(own) + 1 - OF_DEVICE)]:
            if not older.called.done():
                older.called.set_result(False)
        own[waiter] = None
        for key in waiter.keys:
            self._waiters.setdefault(key, {})[waiter] = None
        self._size += 1
        if self._poller is None or self._poller.done():
            self._poller = asyncio.get_running_loop().create_task(self._poll())

    def _leave(self, device_id: str, waiter: _Waiter) -> None:
        self._size -= 1
        own = self._of_device[device_id]
        own.pop(waiter, None)
        if not own:
            del self._of_device[device_id]
        for key in waiter.keys:
            row = self._waiters[key]
            row.pop(waiter, None)
            if not row:
                del self._waiters[key]

    def _call(self, key: str, most: int) -> None:
        for waiter in list(self._waiters.get(key, ())):
            if most <= 0:
                return
            if not waiter.called.done():
                waiter.called.set_result(True)
                most -= 1

    async def _poll(self) -> None:
        while self._waiters:
            longest_s = POLL_S
            try:
                for key in await run_in_threadpool(self._requested_keys):
                    self._call(key, CALLED_AT_ONCE)
            except Unavailable:
                longest_s = AWAY_S
            except Exception:
                _log.exception("reading the requested launches failed; trying again")
                longest_s = AWAY_S
            await self._pulse.wait(longest_s)
