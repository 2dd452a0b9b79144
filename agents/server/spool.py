"""The spool: unsent results, stored on disk until the server has acknowledged them, and sent in batches, oldest first.

Each result is one JSON file, written atomically; file names rise with time, so the oldest file is the first by name. If
the disk is full, results wait in memory and `writable` returns False, so that the agent requests no new work.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from edgefront.agents.server.client import FOREVER, AgentClient, repeat
from edgefront.core.common.errors import (
    Conflict,
    EdgefrontError,
    Gone,
    InvalidInput,
    NotFound,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from edgefront.core.common.files import whole_file
from edgefront.core.common.states import ReportOutcome
from edgefront.core.schemas.agent import MAX_BATCH, LaunchReport, ReportRequest

_log = logging.getLogger(__name__)

_SUFFIX = ".json"


class SpooledReport(BaseModel):
    """One file of the spool: a report, and the wall time, since the previous report, in which the agent had work."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    report: LaunchReport
    busy_s: float = 0.0


class Spool:
    """The unsent results in `folder`. Each agent needs its own folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._count = 0
        self._waiting: dict[str, SpooledReport] = {}
        self._unstored: set[str] = set()
        for path in sorted(folder.glob(f"*{_SUFFIX}")):
            spooled = _read(path)
            if spooled is not None:
                self._waiting[path.name] = spooled
        for draft in folder.glob(".*.part"):
            draft.unlink()  # truncated by a crash; its launch was never reported and is run again

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, spooled: SpooledReport) -> bool:
        """Adds a result. Returns True if the disk stores the result, False if only memory does (the disk is full)."""
        self._count += 1
        name = f"{time.time_ns():020d}-{os.getpid()}-{self._count}{_SUFFIX}"
        self._waiting[name] = spooled
        self._unstored.add(name)
        return self._store(name)

    def oldest(self, count: int) -> dict[str, SpooledReport]:
        """Returns the oldest results, by file name."""
        return {name: self._waiting[name] for name in sorted(self._waiting)[:count]}

    def drop(self, names: Iterable[str]) -> None:
        """Removes results that the server has acknowledged."""
        for name in names:
            self._waiting.pop(name)
            if not self._was_unstored(name):
                self._path(name).unlink(missing_ok=True)

    def set_aside(self, name: str, why: str) -> None:
        """Sets aside a result that the server refuses: keeps the file for inspection and never sends it again."""
        launch_id = self._waiting.pop(name).report.launch_id
        _log.error("the result of launch %s was refused and is kept in a .refused file: %s", launch_id, why)
        if not self._was_unstored(name):
            self._path(name).replace(self._path(name).with_suffix(".refused"))

    def _was_unstored(self, name: str) -> bool:
        """Returns whether a result was in memory only, and forgets that result."""
        unstored = name in self._unstored
        self._unstored.discard(name)
        return unstored

    def writable(self) -> bool:
        """Returns whether the disk can store results, after trying to write the results that are in memory only."""
        if not all(self._store(name) for name in sorted(self._unstored)):
            return False
        try:
            with whole_file(self.folder / "probe") as file:
                file.write(b"\0" * 4096)
            (self.folder / "probe").unlink()
        except (OSError, Unavailable) as error:
            _log.error(
                "the spool %s cannot be written to; no new work is requested until it can: %s", self.folder, error
            )
            return False
        return True

    def _store(self, name: str) -> bool:
        try:
            with whole_file(self._path(name)) as file:
                file.write(self._waiting[name].model_dump_json().encode())
        except (OSError, Unavailable) as error:
            _log.error("a result could not be written and waits in memory: %s", error)
            return False
        self._unstored.discard(name)
        return True

    def _path(self, name: str) -> Path:
        return self.folder / name


def _read(path: Path) -> SpooledReport | None:
    try:
        text = path.read_bytes()
    except OSError as error:
        _log.error("%s cannot be read and is left in place: %s", path, error)
        return None
    try:
        return SpooledReport.model_validate_json(text)
    except ValidationError as error:
        aside = path.with_suffix(".corrupt")
        _log.error("%s is not a result; it is kept as %s: %s", path, aside.name, error)
        with suppress(OSError):
            path.replace(aside)
        return None


# Errors after which a report will never be accepted.
_REFUSALS = (InvalidInput, TooLarge, Conflict, NotFound)
_REJOIN_S = 3.0


class BusyClock:
    """Measures the wall time in which the agent has work."""

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
        """Returns the seconds with work since the previous call."""
        self._collect()
        total_s, self._total_s = self._total_s, 0.0
        return total_s

    def _collect(self) -> None:
        if self._since is not None:
            now = time.monotonic()
            self._total_s += now - self._since
            self._since = now


class Sender:
    """Sends the results in the spool to the server while `run` runs; calls `finished` with the ids of launches that
    need no further action.
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
        """Adds a result to the spool. The result is then on disk, unless the disk is full."""
        self._spool.put(SpooledReport(report=report, busy_s=self.clock.take_s()))
        self._update_events()

    async def flush(self, timeout_s: float) -> bool:
        """Waits until all results are sent; returns False if that takes longer than `timeout_s`."""
        try:
            await asyncio.wait_for(self._empty.wait(), timeout_s)
        except asyncio.TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Sends results forever. Raises the server's errors, except errors about the device's credential."""
        await repeat("sending results", self._send_oldest)

    async def _send_oldest(self) -> None:
        await self._filled.wait()
        waiting = self._spool.oldest(MAX_BATCH)
        try:
            try:
                await self._send(waiting)
            except _REFUSALS as error:
                await self._one_by_one(waiting, error)
        except (Unauthenticated, Gone) as error:  # the lease requests handle this error
            _log.warning("results wait until the server accepts this device: %s", error)
            await asyncio.sleep(_REJOIN_S)
        self._update_events()

    async def _send(self, waiting: Mapping[str, SpooledReport]) -> None:
        request = ReportRequest(
            reports=tuple(each.report for each in waiting.values()),
            busy_s=sum(each.busy_s for each in waiting.values()),
        )
        answer = await FOREVER.run("reporting", lambda: self._client.report(request))
        for receipt in answer.receipts:
            if receipt.outcome not in (ReportOutcome.ACCEPTED, ReportOutcome.DUPLICATE):
                _log.info("result of launch %s: %s %s", receipt.launch_id, receipt.outcome, receipt.detail)
        self._spool.drop(waiting)
        self._finished(each.report.launch_id for each in waiting.values())

    async def _one_by_one(self, waiting: Mapping[str, SpooledReport], refusal: EdgefrontError) -> None:
        """Sends the results of a refused batch one by one, so that one bad result does not block the others."""
        for name, spooled in waiting.items():
            try:
                if len(waiting) == 1:
                    raise refusal
                await self._send({name: spooled})
            except _REFUSALS as error:
                self._spool.set_aside(name, str(error))
                self._finished([spooled.report.launch_id])

    def _update_events(self) -> None:
        full = len(self._spool) > 0
        for event, state in ((self._filled, full), (self._empty, not full)):
            if state:
                event.set()
            else:
                event.clear()
