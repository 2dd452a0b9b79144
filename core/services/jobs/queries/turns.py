"""The queue of launches of a device class, and of each of its devices alone: they share their turns (`services.turns`),
so that a device compares what waits for it with what waits for its class.
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from edgefront.core.services.fleet.device_keys import key_of_class, key_of_device, parsed
from edgefront.core.services.turns import TurnQueue, next_turns
from edgefront.core.store.sql import any_of
from edgefront.core.store.tables import Device, Job, Launch, Target
from edgefront.core.store.tables.measurement import LEASED, WANTED


def launch_turns(session: Session, target: Target, count: int) -> list[float]:
    """The turns of `count` launches that the target requests, rising. The target is locked."""
    if not count:
        return []
    kind, name = parsed(target.device_key)
    if kind == "device":
        name = session.scalar(select(Device.device_class).where(Device.id == name)) or ""
    devices = session.scalars(select(Device.id).where(Device.device_class == name))
    there = any_of(Launch.device_key, [target.device_key, key_of_class(name), *map(key_of_device, devices)])
    owner = select(Job.owner).where(Job.id == target.job_id).scalar_subquery()
    owned = Launch.target_id.in_(select(Target.id).join(Job, Job.id == Target.job_id).where(Job.owner == owner))
    queue = TurnQueue(
        Launch,
        waiting=(Launch.state == WANTED, there, Launch.turn > 0),
        served=(Launch.state == LEASED, there),
    )
    return next_turns(session, queue, owned, count)
