"""Supplies the agent with work: requests leases of launches, extends leases, and returns launches that will not run.

`LeasedItems` is the list of leases and launches, without any requests.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edgefront.agents.options import AgentOptions
from edgefront.agents.server.client import BRIEF, FOREVER, AgentClient, CopiedDataFolder, repeat
from edgefront.agents.server.credential import CredentialFile
from edgefront.agents.server.spool import Spool
from edgefront.core.common.errors import EdgefrontError, Gone, NotFound, Unauthenticated, Unavailable
from edgefront.core.schemas.agent import DeviceFacts, LeaseItem, LeaseRequest, LeaseResponse

_log = logging.getLogger(__name__)

_AIM_S = 20.0  # seconds of work per batch: hides network latency, and leaves work for other devices of the class
_FIRST_BATCH = 4
_DISK_S = 5.0
_MIN_HEARTBEAT_S = 0.05


class Leasing:
    """The agent's side of leases.

    Args:
        facts: the device's description, sent with the first request. rejoin: called when the server does not know this
        device any more or has revoked it; enrols the device again or raises. wait_s: how long the server may delay its
        answer to a request for work.
        spawn: runs a coroutine in the background; its failure ends the agent.
    """

    def __init__(
        self,
        options: AgentOptions,
        client: AgentClient,
        spool: Spool,
        facts: DeviceFacts,
        rejoin: Callable[[EdgefrontError], Awaitable[None]],
        wait_s: float,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self.leased = LeasedItems()
        self._most = options.batch
        self._wait_s = wait_s
        self._client = client
        self._spool = spool
        self._facts = facts
        self._rejoin = rejoin
        self._spawn = spawn
        self._credential_file = CredentialFile(options.folder)
        self._rejoined = self._told_facts = False
        self._logged = _state_message("active", None)
        self._work = asyncio.Event()
        self._hungry = asyncio.Event()
        self._closed = False
        self._mean_s: float | None = None
        self._hungry.set()

    async def run(self) -> None:
        """Requests work whenever all leased launches have started. Raises the server's errors about this device."""
        await repeat("requesting work", self._request_work)

    async def _request_work(self) -> None:
        await self._hungry.wait()
        if not self._spool.writable():
            await asyncio.sleep(_DISK_S)
            return
        facts = None if self._told_facts else self._facts
        batch = _FIRST_BATCH if self._mean_s is None else max(1, round(_AIM_S / max(self._mean_s, 1e-3)))
        request = LeaseRequest(max_items=min(batch, self._most), wait_s=self._wait_s, facts=facts)
        asked = time.monotonic()
        answer = await self._ask(request)
        self._told_facts = answer is not None
        if answer is None:
            return
        if (message := _state_message(answer.state, self._client.blocked_reason)) != self._logged:
            self._logged = message
            _log.log(logging.WARNING if self._client.blocked_reason else logging.INFO, "%s", message)
        if (lease := self.leased.add(answer)) is not None:
            self._spawn(self._keep(lease))
            self._hungry.clear()
            self._work.set()
        elif time.monotonic() - asked < min(1.0, self._wait_s):
            await asyncio.sleep(1.0)  # the server did not let the request wait: avoid a busy loop

    async def next(self) -> LeaseItem | None:
        """Waits for the next launch, marks it as started and returns it; None when no more launches will come."""
        while True:
            item = self.leased.begin()
            if self.leased.waiting == 0 and not self._closed:
                self._hungry.set()
            if item is not None or self._closed:
                return item
            self._work.clear()
            await self._work.wait()

    def took(self, seconds: float) -> None:
        """Records the duration of the latest launch, for choosing the number of launches of the next lease."""
        self._mean_s = seconds if self._mean_s is None else 0.7 * self._mean_s + 0.3 * seconds

    async def tell_start(self, item: LeaseItem | None, conditions: str | None = None) -> None:
        """Reports the start of this launch, or what it waits for. If the report fails, the launch continues, because
        the server accepts the launch's result anyway.
        """
        if item is None:
            return
        try:
            await BRIEF.run("reporting a start", lambda: self._client.start(item.launch_id, item.fence, conditions))
        except EdgefrontError as error:
            _log.debug("the start of %s was not accepted: %s", item.launch_id, error)

    def close(self) -> Mapping[str, tuple[str, ...]]:
        """Stops requesting work. Returns the ids of the launches that have not started, by lease, for `release`."""
        self._closed = True
        self._work.set()
        return self.leased.release()

    def unload(self, item: LeaseItem) -> Mapping[str, tuple[str, ...]]:
        """Removes this launch and all launches that have not started, and returns the removed ids by lease, for
        `release`. The agent may request more work later.
        """
        lease_id = self.leased.lease_of(item.launch_id)
        back = self.leased.release()
        self.leased.finish([item.launch_id])
        return back if lease_id is None else {**back, lease_id: (item.launch_id, *back.get(lease_id, ()))}

    async def release(self, back: Mapping[str, tuple[str, ...]]) -> None:
        """Returns launches to the server. If that fails, the server reclaims the launches when the lease expires."""
        for lease_id, launch_ids in back.items():
            try:
                await BRIEF.run("returning launches", lambda: self._client.release(lease_id, launch_ids))  # noqa: B023
            except EdgefrontError as error:
                _log.warning("%d launches could not be returned; their lease will expire: %s", len(launch_ids), error)
            else:
                _log.info("returned %d launches", len(launch_ids))

    async def _ask(self, request: LeaseRequest) -> LeaseResponse | None:
        """Sends a lease request and returns the response; None if the device had to enrol again. Raises the server's
        error if the server refuses the device again.
        """
        try:
            answer = await FOREVER.run("requesting work", lambda: self._client.lease(request))
        except (Unauthenticated, Gone) as error:
            if self._rejoined:
                raise
            await self._rejoin(error)
            self._rejoined = True
            return None
        except CopiedDataFolder:
            self._credential_file.refused(self._client.instance)
            raise
        self._credential_file.accepted()
        self._rejoined = False
        return answer

    async def _keep(self, lease: Lease) -> None:
        """Sends heartbeats until the server has all results of this lease or reports the end of the lease."""
        while True:
            await asyncio.sleep(max(_MIN_HEARTBEAT_S, lease.heartbeat_s))
            if self.leased.leases.get(lease.lease_id) is not lease:
                return
            try:
                beat = await self._client.heartbeat(lease.lease_id)
            except (NotFound, Gone) as error:
                lost = self.leased.lose(lease.lease_id)
                _log.warning("a lease ended before %d of its launches started: %s", len(lost), error)
                self._note_hunger()
                return
            except Exception as error:  # without heartbeats the lease would expire
                level = logging.DEBUG if isinstance(error, Unavailable) else logging.WARNING
                _log.log(level, "a heartbeat failed: %s", error or type(error).__name__)
                continue
            skipped = self.leased.skip(beat.cancelled)
            if skipped:
                _log.info("%d launches are no longer needed and are skipped", len(skipped))
                self._note_hunger()

    def _note_hunger(self) -> None:
        if self.leased.waiting == 0 and not self._closed:
            self._hungry.set()


def _state_message(state: str, blocked_reason: str | None) -> str:
    """Returns the log message about the device's state, which the response to a lease request contains."""
    if blocked_reason is not None:
        return f"this device gets no launches: {blocked_reason}"
    return f"the server reports this device as {state}"


_HEARTBEAT_S = 10.0


@dataclass
class Lease:
    """A lease of launches, kept until the server has the results of all its launches."""

    lease_id: str
    heartbeat_s: float
    unfinished: set[str] = field(default_factory=set)


class LeasedItems:
    """The leased launches, in the order in which the agent runs them."""

    def __init__(self) -> None:
        self.leases: dict[str, Lease] = {}
        self._queue: deque[LeaseItem] = deque()
        self.current: LeaseItem | None = None

    @property
    def waiting(self) -> int:
        """Number of leased launches that have not started."""
        return len(self._queue)

    def add(self, answer: LeaseResponse) -> Lease | None:
        """Adds the launches of a response and returns their lease; None if the response has no launches."""
        if answer.lease_id is None or not answer.items:
            return None
        heartbeat_s = answer.heartbeat_s or answer.ttl_s / 3 or _HEARTBEAT_S
        lease = Lease(answer.lease_id, heartbeat_s, {item.launch_id for item in answer.items})
        self.leases[lease.lease_id] = lease
        self._queue.extend(answer.items)
        return lease

    def lease_of(self, launch_id: str) -> str | None:
        """Returns the id of the lease of an unfinished launch; None if the lease has ended."""
        return next((id_ for id_, lease in self.leases.items() if launch_id in lease.unfinished), None)

    def begin(self) -> LeaseItem | None:
        """Makes the next launch `current` until `end` and returns the launch; None if no launch is left."""
        self.current = self._queue.popleft() if self._queue else None
        return self.current

    def end(self) -> None:
        """Ends the current launch. The launch's lease stays until `finish`."""
        self.current = None

    def finish(self, launch_ids: Iterable[str]) -> None:
        """Removes launches whose results the server has or does not need, and leases without unfinished launches."""
        gone = set(launch_ids)
        for lease in list(self.leases.values()):
            lease.unfinished -= gone
            if not lease.unfinished:
                del self.leases[lease.lease_id]

    def skip(self, launch_ids: Iterable[str]) -> list[str]:
        """Removes the launches that have not started, and returns the removed ids."""
        skipped = self._drop(set(launch_ids))
        self.finish(skipped)
        return skipped

    def lose(self, lease_id: str) -> list[str]:
        """Ends a lease: removes the lease's launches that have not started, and returns the ids of these launches."""
        lease = self.leases.pop(lease_id, None)
        return self._drop(set() if lease is None else lease.unfinished)

    def _drop(self, launch_ids: set[str]) -> list[str]:
        dropped = [item.launch_id for item in self._queue if item.launch_id in launch_ids]
        self._queue = deque(item for item in self._queue if item.launch_id not in launch_ids)
        return dropped

    def release(self) -> dict[str, tuple[str, ...]]:
        """Removes all launches that have not started, and returns the removed ids by lease."""
        back: dict[str, tuple[str, ...]] = {}
        for item in self._queue:
            lease_id = self.lease_of(item.launch_id) or ""  # every queued launch has a lease
            back[lease_id] = (*back.get(lease_id, ()), item.launch_id)
        self._queue.clear()
        for launch_ids in back.values():
            self.finish(launch_ids)
        return back
