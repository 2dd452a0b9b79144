"""Requests that are repeated: the pages of a list, and a view until it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

from edgefront.transport import Transport

Item = TypeVar("Item", covariant=True)
_LONGEST_PAUSE_S = 2.0


class Page(Protocol, Generic[Item]):
    """One page of a list."""

    @property
    def items(self) -> tuple[Item, ...]: ...

    @property
    def next_cursor(self) -> str | None: ...


class HasState(Protocol):
    """A view of what runs."""

    @property
    def state(self) -> str: ...


View = TypeVar("View", bound=HasState)


def pages(
    transport: Transport, page: type[Page[Item]], path: str, params: Mapping[str, str | float | bool | None]
) -> Iterator[Item]:
    """The items of a list over all its pages."""
    cursor: str | None = None
    while True:
        read = transport.ask(page, "GET", path, params={**params, "cursor": cursor})
        yield from read.items
        cursor = read.next_cursor
        if cursor is None:
            return


def until_ended(get: Callable[[], View], ended: Collection[str], what: str, timeout_s: float | None) -> View:
    """The view once its state is one of `ended`; `TimeoutError` that names `what` after `timeout_s`."""
    end = None if timeout_s is None else time.monotonic() + timeout_s
    pause_s = 0.1
    while True:
        view = get()
        if view.state in ended:
            return view
        if end is not None and time.monotonic() + pause_s > end:
            raise TimeoutError(f"{what} is still {view.state} after {timeout_s:g} s")
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)
