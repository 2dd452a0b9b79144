"""The heartbeat of a poller: it looks again after a while, or at once when this process has changed something."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Pulse:
    """Made and awaited on one event loop; `ring` may be called from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Asks the poller to look now."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._rung.set)

    async def wait(self, longest_s: float, shortest_s: float = 0.05) -> None:
        """Returns when rung or after `longest_s`, but never before `shortest_s`: a busy process rings all the time."""
        await asyncio.sleep(shortest_s)
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._rung.wait(), longest_s - shortest_s)
        self._rung.clear()
