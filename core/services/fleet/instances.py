"""Detects two agents with the same device credential, for example in a copied data folder. Only the first continues.

Each agent process sends a random instance id with its requests for work. A new id usually means a restart. If the
previous instance asks for work afterwards, both instances are running, and the newer instance is refused.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from edgefront.core.common.errors import Conflict
from edgefront.core.services.fleet import queries as device_queries
from edgefront.core.store.clock import elapsed_s

ONLINE = timedelta(minutes=1)
"""A device counts as online if it sent a request within this time."""

MAX_DELAY = timedelta(seconds=5)
"""Maximum time by which a stopped agent's final request may arrive after the next agent's first request."""


@dataclass(frozen=True)
class Instances:
    """Instance ids of a device's current, former and refused agent, and the current one's start (Unix time, s)."""

    current: str
    since: float
    former: str | None = None
    refused: str | None = None


def admit(session: Session, device: device_queries.OwnDevice, instance: str, now: datetime) -> None:
    """Records the agent instance that asks for work. Raises `Conflict` if another instance is already running."""
    before = None if device.instances is None else Instances(**device.instances)
    online = device.last_seen_at is not None and elapsed_s(device.last_seen_at, now) < ONLINE.total_seconds()
    after = _after(before, instance, now.timestamp(), online=online)
    if after is None:
        raise Conflict(
            "another agent already works as this device, because the data folder was copied. Start this agent with an "
            "empty --data-dir, its own --name and a token (edgefront token create), or stop the other agent for a "
            "minute and start this one again",
            second_agent=True,
        )
    if after != before:
        device_queries.set_instances(session, device.id, asdict(after))


def _after(before: Instances | None, instance: str, now_s: float, *, online: bool) -> Instances | None:
    """Returns the instances after a request; None if the request is refused. `online`: the device was seen recently."""
    if before is None:
        return Instances(instance, now_s)
    if instance == before.current:
        return before
    if instance == before.refused and online:
        return None
    if instance != before.former:
        return replace(before, current=instance, since=now_s, former=before.current)
    if now_s - before.since < MAX_DELAY.total_seconds():
        return before
    return Instances(instance, now_s, refused=before.current)
