"""Calls that begin at one instant, each in a thread of its own; and what others do meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def at_once(*calls: Callable[[], T]) -> list[T]:
    """What they return, in their order. Raises the error of the first that failed, when all have ended."""
    begin = threading.Barrier(len(calls))

    def begun(call: Callable[[], T]) -> T:
        begin.wait(60)
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return [made.result() for made in [threads.submit(begun, call) for call in calls]]


def until(holds: Callable[[], object], seconds: float = 180.0) -> None:
    """Waits until it holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
