"""The leases that this agent holds and the launches in them: state only, nothing is sent from here."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from edgefront.core.wire.agent import LeaseItem, LeaseResponse

_HEARTBEAT_S = 10.0


@dataclass
class HeldLease:
    """A lease with launches that the server has not yet got a result of."""

    lease_id: str
    heartbeat_s: float
    unfinished: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class HeldItem:
    lease_id: str
    item: LeaseItem


class Holdings:
    """Launches in the order in which they are made."""

    def __init__(self) -> None:
        self.leases: dict[str, HeldLease] = {}
        self._queue: deque[HeldItem] = deque()
        self.current: HeldItem | None = None

    @property
    def waiting(self) -> int:
        """Launches not yet begun."""
        return len(self._queue)

    def add(self, answer: LeaseResponse) -> HeldLease | None:
        """Take what a lease brought; None if that was nothing."""
        if answer.lease_id is None or not answer.items:
            return None
        heartbeat_s = answer.heartbeat_s or answer.ttl_s / 3 or _HEARTBEAT_S
        lease = HeldLease(answer.lease_id, heartbeat_s, {item.launch_id for item in answer.items})
        self.leases[lease.lease_id] = lease
        self._queue.extend(HeldItem(lease.lease_id, item) for item in answer.items)
        return lease

    def begin(self) -> HeldItem | None:
        """The next launch, which is `current` until it is `end`ed; None if there is none."""
        self.current = self._queue.popleft() if self._queue else None
        return self.current

    def end(self) -> None:
        """The current launch is over; its lease is kept until it is `settle`d."""
        self.current = None

    def settle(self, launch_ids: Iterable[str]) -> None:
        """The server has the results of these, or wants none: leases without unfinished launches are held no more."""
        gone = set(launch_ids)
        for lease in list(self.leases.values()):
            lease.unfinished -= gone
            if not lease.unfinished:
                del self.leases[lease.lease_id]

    def skip(self, launch_ids: Iterable[str]) -> list[str]:
        """Leave out those of these launches that have not begun; returns them."""
        unwanted = set(launch_ids)
        skipped = [held.item.launch_id for held in self._queue if held.item.launch_id in unwanted]
        self._queue = deque(held for held in self._queue if held.item.launch_id not in unwanted)
        self.settle(skipped)
        return skipped

    def lose(self, lease_id: str) -> list[str]:
        """A lease has ended: its launches that have not begun are someone else's; returns them."""
        lost = [held.item.launch_id for held in self._queue if held.lease_id == lease_id]
        self._queue = deque(held for held in self._queue if held.lease_id != lease_id)
        self.leases.pop(lease_id, None)
        return lost

    def give_back(self) -> dict[str, tuple[str, ...]]:
        """All launches that have not begun, by lease; they are held no more."""
        back: dict[str, tuple[str, ...]] = {}
        for held in self._queue:
            back[held.lease_id] = (*back.get(held.lease_id, ()), held.item.launch_id)
        self._queue.clear()
        for launch_ids in back.values():
            self.settle(launch_ids)
        return back
