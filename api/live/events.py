"""Event streams of jobs and trainings (`/v1/jobs/{id}/events`). A stream sends the events of a log after any event
number, then new events, as server-sent events.

All readers of a log together cost as much as one reader. While a log has readers, one poller reads the log's new events
and keeps the latest events encoded in memory. A reader gets events from memory, or from the database if memory no
longer has them, so that a slow reader delays no other reader and misses nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from datetime import datetime, timezone
from itertools import dropwhile
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from edgefront.api.context import AppContext, Context, CurrentViewer
from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import event_stream_answer
from edgefront.api.http.credentials import Credential
from edgefront.api.http.parameters import JobId, TrainingId
from edgefront.api.http.routes import JsonRoute
from edgefront.api.live.long_poll import Pulse
from edgefront.core.common.errors import EdgefrontError, InvalidInput, TooManyRequests, Unavailable
from edgefront.core.schemas.messages import Event
from edgefront.core.services import event_log
from edgefront.core.services.access.keys import Principal, authenticate, authenticate_web

router = APIRouter(prefix="/v1", route_class=JsonRoute)

HEARTBEAT_S = 15
RETRY_MS = 2000
SEND_TIMEOUT_S = 60
_MAX_EVENT = 1 << 53

POLL_S = 0.4
AWAY_S = 1.0
"""Seconds between two attempts to read the database while it is unavailable."""
RECHECK_S = 5.0
"""Maximum seconds for which a deleted log can still be followed. When a key is revoked, `recheck` is called."""
KEPT = 1000
"""Number of events that a feed keeps in memory."""
PAGE = 500
MAX_READERS = 500
MAX_READERS_PER_KEY = 20

_log = logging.getLogger("edgefront.api")
Read = Callable[[str, int, int], Sequence[Event]]


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
            longest_s = POLL_S
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


After = Annotated[int, Query(ge=0, le=_MAX_EVENT, description="Number of the last event that you have received")]
LastEventId = Annotated[
    str | None,
    Header(
        pattern=r"^[0-9]{1,16}$", description="As `after`, and takes precedence over it; browsers send it automatically"
    ),
]


@router.get(
    "/jobs/{job_id}/events",
    tags=["jobs"],
    summary="Follow a job's events (SSE)",
    response_class=EventSourceResponse,
    responses=event_stream_answer(example("job_event_stream"), 404),
)
async def follow_job(
    job_id: JobId,
    request: Request,
    viewer: CurrentViewer,
    context: AppContext,
    after: After = 0,
    last_event_id: LastEventId = None,
) -> Response:
    """Sends the events of the log after `after`, then every new event within a second of its commit; none is skipped.

    Each has the event's number as its id, its kind as its type, and the whole event as its data. A comment is sent
    every 15 s. The stream stays open after the job has ended (event `job_state`), until the client closes the stream,
    the server stops, the key is revoked or the job is deleted. Reconnect with the number of the latest event.
    """
    return await _event_stream(request, context, viewer, job_id, after, last_event_id)


@router.get(
    "/trainings/{training_id}/events",
    tags=["trainings"],
    summary="Follow a training's events (SSE)",
    response_class=EventSourceResponse,
    responses=event_stream_answer(example("training_event_stream"), 404),
)
async def follow_training(
    training_id: TrainingId,
    request: Request,
    viewer: CurrentViewer,
    context: AppContext,
    after: After = 0,
    last_event_id: LastEventId = None,
) -> Response:
    """Sends the events of the log after `after`, then new states, metrics and checkpoints; none is skipped.

    Each has the event's number as its id, its kind as its type, and the whole event as its data. `rewound`
    invalidates metrics of steps that were lost in a crash: they are sent again. The stream stays open after the
    training has ended.
    """
    return await _event_stream(request, context, viewer, training_id, after, last_event_id)


async def _event_stream(
    request: Request,
    context: Context,
    principal: Principal,
    log_id: str,
    after: int,
    last_event_id: str | None,
) -> Response:
    """Returns a stream of the existing events of a job's or training's log, followed by new events.

    Access is checked repeatedly while the stream is open. Raises `InvalidInput` for an event number that the log does
    not contain.
    """
    begin = int(last_event_id) if last_event_id else after

    def check() -> None:
        with context.database.read() as session:
            event_log.check_access(session, principal, log_id)
            if begin and not event_log.read(session, log_id, begin - 1, 1):
                raise InvalidInput(
                    f"after: the log has no event {begin}",
                    field="after",
                    value=begin,
                    allowed="0, or the number of an event that you have received",
                )

    await run_in_threadpool(check)
    context.feeds.admit(principal.key_id)
    credential: Credential = request.state.credential

    def allowed() -> None:
        with context.database.read() as session:
            find = authenticate_web if credential.cookie else authenticate
            event_log.check_access(session, find(session, credential.secret, datetime.now(timezone.utc)), log_id)

    async def stream() -> AsyncIterator[bytes]:
        yield ServerSentEvent(comment="events follow", retry=RETRY_MS).encode()
        async with aclosing(context.feeds.follow(log_id, begin, principal.key_id, allowed)) as events:
            async for data in events:
                context.metrics.events.inc()
                yield data

    answer: Response = EventSourceResponse(
        stream(),
        ping=HEARTBEAT_S,
        ping_message_factory=lambda: ServerSentEvent(comment="still here"),
        send_timeout=SEND_TIMEOUT_S,
    )
    return answer
