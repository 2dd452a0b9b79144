"""Requests that wait for rows of the database: long polls (`WaitingRoom`) and event streams (`Feeds`).

Long polls: lease requests of agents that wait for work.

A waiting request uses neither a thread nor a database connection. While requests wait, one poller per process queries
which device keys (ids or classes of devices) have requested launches, and wakes a few of the matching devices at a
time, longest waiting first. The remaining devices are woken after later queries, so that a thousand idle agents never
compete for one launch.

Event streams: all readers of a log together cost as much as one reader. While a log has readers, one poller reads the
log's new events and keeps the latest events encoded in memory. A reader gets events from memory, or from the database
if memory no longer has them, so that a slow reader delays no other reader and misses nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from itertools import dropwhile

from sse_starlette import ServerSentEvent
from starlette.concurrency import run_in_threadpool

from edgefront.core.common.errors import EdgefrontError, TooManyRequests, Unavailable
from edgefront.core.schemas.messages import Event

LEASES_POLL_S = 0.25
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

EVENTS_POLL_S = 0.4
RECHECK_S = 5.0
"""Maximum seconds for which a deleted log can still be followed. When a key is revoked, `recheck` is called."""
KEPT = 1000
"""Number of events that a feed keeps in memory."""
PAGE = 500
MAX_READERS = 500
MAX_READERS_PER_KEY = 20

_log = logging.getLogger("edgefront.api")
Read = Callable[[str, int, int], Sequence[Event]]


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
            longest_s = LEASES_POLL_S
            try:
                for key in await run_in_threadpool(self._requested_keys):
                    self._call(key, CALLED_AT_ONCE)
            except Unavailable:
                longest_s = AWAY_S
            except Exception:
                _log.exception("reading the requested launches failed; trying again")
                longest_s = AWAY_S
            await self._pulse.wait(longest_s)


def encoded(event: Event) -> bytes:
    """Encodes an event as a server-sent event: id is the event's number, type its kind, data the whole event."""
    line: bytes = ServerSentEvent(
        event.model_dump_json(exclude_unset=True), event=event.kind, id=str(event.number)
    ).encode()
    return line


class _Feed:
    """The latest events of one log (of a job or training), shared by all readers of the log."""

    def __init__(self, last: int) -> None:
        self.last = last  # events up to here have been seen
        self.kept: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self.news = asyncio.Event()
        self.pulse = Pulse()
        self.readers = 0
        self.poller: asyncio.Task[None] | None = None

    def add(self, events: Sequence[Event]) -> None:
        for event in events:
            self.kept.append((event.number, encoded(event)))
            self.last = event.number
        if events:
            self.wake()

    def wake(self) -> None:
        self.news.set()
        self.news = asyncio.Event()

    def after(self, number: int) -> list[tuple[int, bytes]] | None:
        """Returns the events above `number` from memory; None if memory lacks some of these events."""
        if number >= self.last:
            return []
        if not self.kept or self.kept[0][0] > number + 1:
            return None
        return list(dropwhile(lambda item: item[0] <= number, self.kept))


class Feeds:
    """The event feeds of all logs in this process. A `Feeds` belongs to one event loop; `notify` is thread-safe.

    Args:
        read: function of a log's id, an event number and a limit that returns the next events; runs in a thread.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._feeds: dict[str, _Feed] = {}
        self._readers: Counter[str] = Counter()
        self._epoch = 0
        self.closed = False

    @property
    def readers(self) -> int:
        return sum(self._readers.values())

    def notify(self) -> None:
        """Notifies the feeds that a commit may have added events."""
        for feed in list(self._feeds.values()):
            feed.pulse.notify()

    def recheck(self) -> None:
        """Makes every stream check its reader's access again, at once. Call from the event loop only."""
        self._epoch += 1
        for feed in self._feeds.values():
            feed.wake()

    def close(self) -> None:
        """Ends every stream; clients then reconnect."""
        self.closed = True
        for feed in self._feeds.values():
            feed.wake()
            if feed.poller is not None:
                feed.poller.cancel()

    def admit(self, key_id: str) -> None:
        """Raises `TooManyRequests` if this key, or all keys together, have too many open streams."""
        if self._readers[key_id] >= MAX_READERS_PER_KEY or self.readers >= MAX_READERS:
            raise TooManyRequests(
                f"too many open event streams: at most {MAX_READERS_PER_KEY} for a key and {MAX_READERS} in all",
                retry_after_s=5,
            )

    async def follow(
        self, log_id: str, after: int, key_id: str, allowed: Callable[[], object]
    ) -> AsyncGenerator[bytes, None]:
        """Yields the events above `after`, then new events as they are committed, without end.

        `allowed` runs in a thread every `RECHECK_S` seconds, and after `recheck`. It raises if the reader has lost
        access (the key was revoked, or the job or training deleted); this error ends the stream.
        """
        self._readers[key_id] += 1
        feed: _Feed | None = None
        loop = asyncio.get_running_loop()
        recheck_at, epoch = loop.time() + RECHECK_S, self._epoch
        try:
            while not self.closed:
                if loop.time() >= recheck_at or epoch != self._epoch:
                    epoch = self._epoch
                    if not await self._still(allowed):
                        return
                    recheck_at = loop.time() + RECHECK_S
                batch = None if feed is None else feed.after(after)
                if batch is None:
                    batch = await self._page(log_id, after)
                    if feed is None and batch is not None and len(batch) < PAGE:
                        feed = self._join(log_id, batch[-1][0] if batch else after)
                for number, data in batch or ():
                    yield data
                    after = number
                if not batch and feed is not None and not self.closed:
                    # The database has no such events either: the job is being deleted, which the recheck will find.
                    longest_s = max(0.1, recheck_at - loop.time()) if feed.last <= after else 0.2
                    with suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(feed.news.wait(), longest_s)
        finally:
            self._readers[key_id] -= 1
            if not self._readers[key_id]:
                del self._readers[key_id]
            if feed is not None:
                feed.readers -= 1
                if not feed.readers:
                    self._feeds.pop(log_id, None)
                    if feed.poller is not None:
                        feed.poller.cancel()

    async def _page(self, log_id: str, after: int) -> list[tuple[int, bytes]] | None:
        """Returns a page of events after `after` from the database; None, after a pause, without the database."""
        try:
            events = await run_in_threadpool(self._read, log_id, after, PAGE)
        except Unavailable:
            await asyncio.sleep(AWAY_S)
            return None
        return [(event.number, encoded(event)) for event in events]

    @staticmethod
    async def _still(allowed: Callable[[], object]) -> bool:
        try:
            await run_in_threadpool(allowed)
        except Unavailable:
            return True
        except EdgefrontError:
            return False
        return True

    def _join(self, log_id: str, last: int) -> _Feed:
        feed = self._feeds.get(log_id)
        if feed is None:
            feed = self._feeds[log_id] = _Feed(last)
            feed.poller = asyncio.get_running_loop().create_task(self._poll(log_id, feed))
        feed.readers += 1
        return feed

    async def _poll(self, log_id: str, feed: _Feed) -> None:
        while not self.closed:
            longest_s = EVENTS_POLL_S
            try:
                events = await run_in_threadpool(self._read, log_id, feed.last, PAGE)
                feed.add(events)
                if len(events) == PAGE:
                    continue
            except Unavailable:
                longest_s = AWAY_S
            except Exception:
                _log.exception("reading the events of %s failed; trying again", log_id)
                longest_s = AWAY_S
            await feed.pulse.wait(longest_s)
