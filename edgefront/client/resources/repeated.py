"""Repeated requests: all pages of a list, polling until an end, and event logs over server-sent events."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

import httpx
from httpx_sse import EventSource

from edgefront.client.transport import Transport
from edgefront.core.common.errors import Unavailable
from edgefront.core.common.states import JobEventKind, TrainingEventKind
from edgefront.core.schemas.messages import Event, read_event

_READ_TIMEOUT_S = 60.0
"""Read timeout in seconds. The server sends an event or a comment far more often."""
Item = TypeVar("Item", covariant=True)
_MAX_POLL_S = 2.0


class Page(Protocol, Generic[Item]):
    """One page of a list."""

    @property
    def items(self) -> tuple[Item, ...]: ...

    @property
    def next_cursor(self) -> str | None: ...


class Running(Protocol):
    """Interface of a view of a job or training, with its state and the number of its latest event."""

    @property
    def state(self) -> str: ...

    @property
    def last_event(self) -> int: ...


View = TypeVar("View", bound=Running)


def pages(
    transport: Transport, page: type[Page[Item]], path: str, params: Mapping[str, str | float | bool | None]
) -> Iterator[Item]:
    """Requests all pages of a list, one after another, and yields their items."""
    cursor: str | None = None
    while True:
        read = transport.ask(page, "GET", path, params={**params, "cursor": cursor})
        yield from read.items
        cursor = read.next_cursor
        if cursor is None:
            return


def until_ended(get: Callable[[], View], ended: Collection[str], what: str, timeout_s: float | None) -> View:
    """Calls `get` until the result's state is in `ended`. After `timeout_s`, raises `TimeoutError`, naming `what`."""
    end = None if timeout_s is None else time.monotonic() + timeout_s
    pause_s = 0.1
    while True:
        view = get()
        if view.state in ended:
            return view
        if end is not None and time.monotonic() + pause_s > end:
            raise TimeoutError(f"{what} is still {view.state} after {timeout_s:g} s")
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, _MAX_POLL_S)


def follow_log(
    transport: Transport,
    path: str,
    get: Callable[[], Running],
    ended: Collection[str],
    *,
    after: int,
    kinds: Collection[str] | None,
) -> Iterator[Event]:
    """Yields each event after number `after` once, if its kind is in `kinds`, then new events until the job or training
    has ended.

    When an event reports an end, `get` reads the job or training again, because it may have been resumed or extended,
    or may have later events. Resumes after a broken connection; raises `Unavailable` if resuming fails for the client's
    `patience_s`.
    """
    last = after
    end: int | None = None
    failing_since: float | None = None
    delay_s = 0.1
    while True:
        view = get()
        if view.state in ended:
            end = max(end or 0, view.last_event)
        if end is not None and last >= end:
            return
        try:
            for event in _connection(transport, path, last):
                failing_since, delay_s = None, 0.1
                if event.number <= last:
                    continue
                last = event.number
                if kinds is None or event.kind in kinds:
                    yield event
                if end is not None and last >= end:
                    return
                if event.kind in (JobEventKind.JOB_STATE, TrainingEventKind.STATE) and event.data.get("state") in ended:
                    break
        except Unavailable:
            now = time.monotonic()
            failing_since = failing_since or now
            if now - failing_since > transport.patience_s:
                raise
        time.sleep(delay_s)
        delay_s = min(delay_s * 2, 5.0)


def _connection(transport: Transport, path: str, last: int) -> Iterator[Event]:
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    if last:
        headers["Last-Event-ID"] = str(last)
    with transport.stream(path, headers=headers, read_timeout_s=_READ_TIMEOUT_S) as response:
        try:
            for message in EventSource(response).iter_sse():
                if message.data:
                    with transport.reading("an event"):
                        event = read_event(message.data)
                    yield event
        except httpx.StreamError as error:
            raise Unavailable(f"the event stream was interrupted: {error}") from error
