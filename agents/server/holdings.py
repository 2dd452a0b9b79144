"""The leases that this agent holds and the launches in them: state only, without requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from edgefront.core.wire.agent import LeaseItem, LeaseResponse

_HEARTBEAT_S = 10.0


@dataclass
class HeldLease:
    """A lease with launches whose results the server does not have yet."""

    lease_id: str
    heartbeat_s: float
    unfinished: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class HeldItem:
    lease_id: str
    item: LeaseItem


class Holdings:
    """Leased launches in the order in which they are run."""

    def __init__(self) -> None:
        self.leases: dict[str, HeldLease] = {}
        self._queue: deque[HeldItem] = deque()
        self.current: HeldItem | None = None

    @property
    def waiting(self) -> int:
        """Launches that have not started."""
        return len(self._queue)

    def add(self, answer: LeaseResponse) -> HeldLease | None:
        """Adds the launches of a lease; None if it has none."""
        if answer.lease_id is None or not answer.items:
            return None
        heartbeat_s = answer.heartbeat_s or answer.ttl_s / 3 or _HEARTBEAT_S
        lease = HeldLease(answer.lease_id, heartbeat_s, {item.launch_id for item in answer.items})
        self.leases[lease.lease_id] = lease
        self._queue.extend(HeldItem(lease.lease_id, item) for item in answer.items)
        return lease

    def begin(self) -> HeldItem | None:
        """Starts the next launch, which is `current` until `end`; None if there is none."""
        self.current = self._queue.popleft() if self._queue else None
        return self.current

    def end(self) -> None:
        """Ends the current launch; its lease is kept until `finish`."""
        self.current = None

    def finish(self, launch_ids: Iterable[str]) -> None:
        """The server has the results of these, or does not need them: leases without unfinished launches are
        dropped.
        """
        gone = set(launch_ids)
        for lease in list(self.leases.values()):
            lease.unfinished -= gone
            if not lease.unfinished:
                del self.leases[lease.lease_id]

    def skip(self, launch_ids: Iterable[str]) -> list[str]:
        """Removes those of these launches that have not started; returns them."""
        unwanted = set(launch_ids)
        skipped = [held.item.launch_id for held in self._queue if held.item.launch_id in unwanted]
        self._queue = deque(held for held in self._queue if held.item.launch_id not in unwanted)
        self.finish(skipped)
        return skipped

    def lose(self, lease_id: str) -> list[str]:
        """A lease has ended: removes its launches that have not started; returns them."""
        lost = [held.item.launch_id for held in self._queue if held.lease_id == lease_id]
        self._queue = deque(held for held in self._queue if held.lease_id != lease_id)
        self.leases.pop(lease_id, None)
        return lost

    def release(self) -> dict[str, tuple[str, ...]]:
        """Removes and returns all launches that have not started, by lease."""
        back: dict[str, tuple[str, ...]] = {}
        for held in self._queue:
            back[held.lease_id] = (*back.get(held.lease_id, ()), held.item.launch_id)
        self._queue.clear()
        for launch_ids in back.values():
            self.finish(launch_ids)
        return back
