"""Queries on leases."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, func, literal, select, update
from sqlalchemy.orm import Session

from edgefront.core.states import DeviceState, LaunchState
from edgefront.core.store.clock import MAX_TTL, over
from edgefront.core.store.sql import any_of, try_lock_name
from edgefront.core.store.tables import Device, Launch, Lease, Measurement, new_id
from edgefront.core.store.tables.base import UtcDateTime
from edgefront.core.store.tables.measurement import LEASED, WANTED

_AT_ONCE = 10_000
_QUIET = {"synchronize_session": False}


@dataclass(frozen=True)
class Extended:
    """An extended lease: when it expires now, the state and last result of its device, and which of its launches were
    withdrawn.
    """

    expires_at: datetime
    created_at: datetime
    reported_at: datetime | None
    device_state: DeviceState
    last_seen_at: datetime | None
    withdrawn: tuple[str, ...]


def claims_alone(session: Session, device_id: str) -> bool:
    """Whether no other claim of the same device is under way; none begins before the transaction ends."""
    return try_lock_name(session, "device", device_id)


def held(session: Session, device_id: str) -> int:
    """Launches that the device holds. A statement of its own: what an earlier claim took is seen by those that begin
    after its lock was released.
    """
    query = select(func.count()).select_from(Launch).where(Launch.device_id == device_id, Launch.state == LEASED)
    return session.scalar(query) or 0


def longest_limit_s(session: Session, device_id: str) -> float:
    """The longest time limit of the launches that the device holds."""
    limit = func.max(Measurement.protocol["time_limit_s"].as_float())
    query = select(limit).join(Launch, Launch.measurement_id == Measurement.id)
    return float(session.scalar(query.where(Launch.device_id == device_id, Launch.state == LEASED)) or 0.0)


def add(session: Session, device_id: str, launch_ids: Collection[str], now: datetime, expires_at: datetime) -> str:
    """A new lease of the device on launches that the caller has locked; returns its id."""
    lease = Lease(id=new_id("lse"), device_id=device_id, created_at=now, expires_at=expires_at)
    session.add(lease)
    session.flush()
    session.execute(
        update(Launch)
        .where(any_of(Launch.id, launch_ids))
        .values(
            state=LaunchState.LEASED,
            fence=Launch.fence + 1,
            device_id=device_id,
            former_device_id=Launch.device_id,
            lease_id=lease.id,
            started_at=None,
        ),
        execution_options=_QUIET,
    )
    return lease.id


def extend(session: Session, device_id: str, lease_id: str, now: datetime, expires_at: datetime) -> Extended | None:
    """Extends a lease that has neither expired nor ended; None if there is no such lease."""
    device = select(Device.id).where(Device.id == device_id)
    withdrawn = select(func.aggregate_strings(Launch.id, " ")).where(
        Launch.lease_id == lease_id, Launch.state == LaunchState.CANCELLED
    )
    row = session.execute(
        update(Lease)
        .where(Lease.id == lease_id, Lease.device_id == device_id, Lease.ended_at.is_(None), Lease.expires_at > now)
        .values(expires_at=expires_at)
        .returning(
            Lease.expires_at,
            Lease.created_at,
            device.with_only_columns(Device.reported_at).scalar_subquery(),
            device.with_only_columns(Device.state).scalar_subquery(),
            device.with_only_columns(Device.last_seen_at).scalar_subquery(),
            withdrawn.scalar_subquery(),
        ),
        execution_options=_QUIET,
    ).one_or_none()
    if row is None:
        return None
    return Extended(row[0], row[1], row[2], row[3], row[4], tuple(sorted((row[5] or "").split())))


def expire(session: Session, lease_id: str, now: datetime) -> None:
    session.execute(
        update(Lease).where(Lease.id == lease_id).values(expires_at=now),
        execution_options=_QUIET,
    )


def find(session: Session, device_id: str, lease_id: str) -> Lease | None:
    return session.scalars(select(Lease).where(Lease.id == lease_id, Lease.device_id == device_id)).one_or_none()


def lock(session: Session, device_id: str, lease_id: str) -> Lease | None:
    query = select(Lease).where(Lease.id == lease_id, Lease.device_id == device_id).with_for_update(key_share=True)
    return session.scalars(query.execution_options(populate_existing=True)).one_or_none()


def end_expired(session: Session, now: datetime) -> None:
    """Ends expired leases. A heartbeat that waits for such a row then finds the lease ended."""
    expired = select(Lease.id).where(over(Lease.expires_at, now, MAX_TTL), Lease.ended_at.is_(None)).order_by(Lease.id)
    ids = session.scalars(expired.with_for_update(key_share=True, skip_locked=True)).all()
    if ids:
        session.execute(
            update(Lease).where(any_of(Lease.id, ids)).values(ended_at=now),
            execution_options=_QUIET,
        )


def end_all(session: Session, device_id: str, now: datetime) -> None:
    session.execute(
        update(Lease).where(Lease.device_id == device_id, Lease.ended_at.is_(None)).values(ended_at=now),
        execution_options=_QUIET,
    )


def forget_ended(session: Session, before: datetime) -> None:
    """Deletes leases that ended before then and that no launch refers to any more."""
    held = select(Launch.id).where(Launch.lease_id == Lease.id).exists()
    old = select(Lease.id).where(Lease.ended_at < before, ~held).order_by(Lease.id).limit(_AT_ONCE)
    ids = session.scalars(old.with_for_update(skip_locked=True)).all()
    if ids:
        session.execute(delete(Lease).where(any_of(Lease.id, ids)), execution_options=_QUIET)


def start(session: Session, device_id: str, launch_id: str, fence: int, now: datetime) -> bool:
    """Marks a launch as started if this device holds it under this fence and its lease has not expired."""
    alive = select(Lease.id).where(Lease.id == Launch.lease_id, Lease.ended_at.is_(None), Lease.expires_at > now)
    statement = (
        update(Launch)
        .where(
            Launch.id == launch_id,
            Launch.state == LaunchState.LEASED,
            Launch.device_id == device_id,
            Launch.fence == fence,
            alive.exists(),
        )
        .values(started_at=func.coalesce(Launch.started_at, literal(now, UtcDateTime)))
        .returning(Launch.id)
    )
    return session.scalar(statement, execution_options=_QUIET) is not None


def wanted_keys(session: Session) -> set[str]:
    """Distinct device keys of wanted launches, by an index skip scan from key to key."""
    first = select(func.min(Launch.device_key)).where(Launch.state == WANTED).scalar_subquery()
    hops = select(first.label("device_key")).cte("hops", recursive=True)
    following = (
        select(func.min(Launch.device_key))
        .where(Launch.state == WANTED, Launch.device_key > hops.c.device_key)
        .scalar_subquery()
    )
    hops = hops.union_all(select(following).where(hops.c.device_key.is_not(None)))
    return set(session.scalars(select(hops.c.device_key).where(hops.c.device_key.is_not(None))))
