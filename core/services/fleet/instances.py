"""Which devices are online; and which of two agents with one credential goes on, as when a data folder was copied.

Each process of an agent names itself at random with its requests for work. A new one is usually the same agent, started
again; but if the one before it asks for work after that, both run. Then the first goes on, and the second is refused.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from edgefront.core.common.errors import Conflict
from edgefront.core.services.fleet import queries as rows
from edgefront.core.store.clock import elapsed_s

ONLINE = timedelta(minutes=1)
"""A device is online if it was seen within this time."""

UNDER_WAY = timedelta(seconds=5)
"""A request of an agent that has ended may arrive so long after the first one of its successor."""


@dataclass(frozen=True)
class Instances:
    """The processes of a device's agent: the current one, since when (seconds), the one before it, and the one that was
    refused beside it.
    """

    current: str
    since: float
    former: str | None = None
    refused: str | None = None


def admit(session: Session, device: rows.OwnDevice, instance: str, now: datetime) -> None:
    """Notes which process of the device's agent asks for work. `Conflict` for one that runs beside another."""
    before = None if device.instances is None else Instances(**device.instances)
    online = device.last_seen_at is not None and elapsed_s(device.last_seen_at, now) < ONLINE.total_seconds()
    after = _after(before, instance, now.timestamp(), online=online)
    if after is None:
        raise Conflict(
            "another agent works as this device: its data folder was copied. Measurements of two machines must not "
            "count as one device's: start this agent with an empty --data-dir, a --name of its own and a token "
            "(edgefront token create); or stop the other agent for a minute, and start this one again",
            second_agent=True,
        )
    if after != before:
        rows.set_instances(session, device.id, asdict(after))


def _after(before: Instances | None, instance: str, now_s: float, *, online: bool) -> Instances | None:
    """What is known after this process has asked; None if it is refused. `online`: one that was not has been seen."""
    if before is None:
        return Instances(instance, now_s)
    if instance == before.current:
        return before
    if instance == before.refused and online:
        return None
    if instance != before.former:
        return replace(before, current=instance, since=now_s, former=before.current)
    if now_s - before.since < UNDER_WAY.total_seconds():
        return before
    return Instances(instance, now_s, refused=before.current)
