"""Wakes a poller after an interval, or at once when this process has changed something."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Pulse:
    """Belongs to one event loop; `notify` is thread-safe."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._notified = asyncio.Event()

    def notify(self) -> None:
        """Wakes the poller."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._notified.set)

    async def wait(self, longest_s: float, shortest_s: float = 0.05) -> None:
        """Returns after `notify` or `longest_s`, but never before `shortest_s`, because a busy process calls `notify`
        constantly.
        """
        await asyncio.sleep(shortest_s)
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._notified.wait(), longest_s - shortest_s)
        self._notified.clear()
