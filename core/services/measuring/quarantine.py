"""Quarantine of devices that fail at several models, fail at the reference model (anchor), or change their speed. A
device in quarantine gets no launches until its owner or an admin trusts it again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from edgefront.core.services.measuring.leases import end_leases
from edgefront.core.store.sql import any_of
from edgefront.core.store.tables import Device, Lease

MAX_FAILING = 5
"""Number of different models whose failures, less the models done since, quarantine a device."""
FAILED_HERE = "models failed on this device, were leased without a result, or had an impossible result"
_REMEMBERED = 20

_log = logging.getLogger(__name__)


def put_in(session: Session, device_id: str, reason: str) -> None:
    """Quarantines a device; users read `reason`. The periodic sweep reassigns its leased launches to other devices."""
    statement = (
        update(Device)
        .where(Device.id == device_id, Device.quarantine.is_(None))
        .values(quarantine=reason)
        .returning(Device.id)
    )
    if session.scalar(statement, execution_options={"synchronize_session": False}) is not None:
        _log.warning("device %s is in quarantine: %s", device_id, reason)


def lock(session: Session, device_ids: Collection[str]) -> None:
    """Locks several devices in the order of their ids, to avoid deadlocks. A single device is not locked."""
    if len(device_ids) > 1:
        query = select(Device.id).where(any_of(Device.id, device_ids)).order_by(Device.id)
        session.execute(query.with_for_update(key_share=True))


def add_failing(session: Session, device_id: str, failed: Sequence[str]) -> None:
    """Adds the first of the measurements `failed` that is not yet in the device's list of failures, and quarantines the
    device if the list is too long. An empty `failed` stands for a done measurement, which removes the oldest failure.
    """
    query = select(Device.failing).where(Device.id == device_id).with_for_update(key_share=True)
    failing = list(session.scalar(query) or ())
    if not failed:
        del failing[:1]
    failing += [measurement_id for measurement_id in failed if measurement_id not in failing][:1]
    session.execute(
        update(Device).where(Device.id == device_id).values(failing=failing[-_REMEMBERED:] or None),
        execution_options={"synchronize_session": False},
    )
    if len(failing) >= MAX_FAILING:
        put_in(session, device_id, f"{len(failing)} {FAILED_HERE}, more than were measured since")


def hand_over(session: Session, now: datetime) -> None:
    """Takes leased launches from quarantined devices, for other devices; charges no attempts. The sweep calls this."""
    held = select(Lease.id).where(Lease.device_id == Device.id, Lease.ended_at.is_(None)).exists()
    for device_id in session.scalars(select(Device.id).where(Device.quarantine.is_not(None), held).order_by(Device.id)):
        end_leases(session, device_id, now)
