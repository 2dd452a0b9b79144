"""Sends results from the spool to the server, oldest first, in batches."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence

from edgefront.agents.server.client import AgentClient
from edgefront.agents.server.retry import FOREVER, repeat
from edgefront.agents.server.spool import Entry, Spool, Waiting
from edgefront.core.errors import (
    Conflict,
    EdgefrontError,
    Gone,
    InvalidInput,
    NotFound,
    TooLarge,
    Unauthenticated,
)
from edgefront.core.states import ReportOutcome
from edgefront.core.wire.agent import MAX_BATCH, LaunchReport, ReportRequest

_log = logging.getLogger(__name__)

# Errors after which a report will never be accepted.
_REFUSALS = (InvalidInput, TooLarge, Conflict, NotFound)
_REJOIN_S = 3.0


class BusyClock:
    """Measures wall time during which the agent has work."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._total_s = 0.0

    def go(self) -> None:
        if self._since is None:
            self._since = time.monotonic()

    def stop(self) -> None:
        self._collect()
        self._since = None

    def take_s(self) -> float:
        """Seconds since the last call."""
        self._collect()
        total_s, self._total_s = self._total_s, 0.0
        return total_s

    def _collect(self) -> None:
        if self._since is not None:
            now = time.monotonic()
            self._total_s += now - self._since
            self._since = now


class Sender:
    """Sends the results in the spool while `run` runs; `finished` is called with the launches that need no
    more of this agent.
    """

    def __init__(self, client: AgentClient, spool: Spool, finished: Callable[[Iterable[str]], None]) -> None:
        self.clock = BusyClock()
        self._client = client
        self._spool = spool
        self._finished = finished
        self._filled = asyncio.Event()
        self._empty = asyncio.Event()
        self._update_events()

    def put(self, report: LaunchReport) -> None:
        """Adds a result; it is on disk when this returns, unless the disk is full."""
        self._spool.put(Entry(report=report, busy_s=self.clock.take_s()))
        self._update_events()

    async def flush(self, timeout_s: float) -> bool:
        """Waits until everything is sent; False on timeout."""
        try:
            await asyncio.wait_for(self._empty.wait(), timeout_s)
        except asyncio.TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Sends results forever. Raises what the server has against them besides the device."""
        await repeat("sending results", self._send_oldest)

    async def _send_oldest(self) -> None:
        await self._filled.wait()
        waiting = self._spool.oldest(MAX_BATCH)
        try:
            await self._deliver(waiting)
        except (Unauthenticated, Gone) as error:  # the lease requests handle it
            _log.warning("results wait until the server accepts this device: %s", error)
            await asyncio.sleep(_REJOIN_S)
        self._update_events()

    async def _deliver(self, waiting: Sequence[Waiting]) -> None:
        try:
            await self._send(waiting)
        except _REFUSALS as error:
            await self._one_by_one(waiting, error)

    async def _send(self, waiting: Sequence[Waiting]) -> None:
        request = ReportRequest(
            reports=tuple(item.entry.report for item in waiting), busy_s=sum(item.entry.busy_s for item in waiting)
        )
        answer = await FOREVER.run("reporting", lambda: self._client.report(request))
        for receipt in answer.receipts:
            if receipt.outcome not in (ReportOutcome.ACCEPTED, ReportOutcome.DUPLICATE):
                _log.info("result of launch %s: %s %s", receipt.launch_id, receipt.outcome, receipt.detail)
        self._spool.drop(item.name for item in waiting)
        self._finished(item.entry.report.launch_id for item in waiting)

    async def _one_by_one(self, waiting: Sequence[Waiting], refusal: EdgefrontError) -> None:
        """After the server refused a batch: sends its results one by one, so that one bad result does not block the
        others.
        """
        for item in waiting:
            try:
                if len(waiting) == 1:
                    raise refusal
                await self._send([item])
            except _REFUSALS as error:
                self._spool.set_aside(item.name, str(error))
                self._finished([item.entry.report.launch_id])

    def _update_events(self) -> None:
        full = len(self._spool) > 0
        for event, state in ((self._filled, full), (self._empty, not full)):
            if state:
                event.set()
            else:
                event.clear()
