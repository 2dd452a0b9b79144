"""Queries on leases."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Row, Table, bindparam, delete, func, insert, select, update
from sqlalchemy.orm import Session

from edgefront.core.common.states import LaunchState
from edgefront.core.store.clock import MAX_TTL, over
from edgefront.core.store.sql import Document, Prepared, any_of, texts, try_lock_name
from edgefront.core.store.tables import Device, Launch, Lease, Measurement, new_id
from edgefront.core.store.tables.base import UtcDateTime
from edgefront.core.store.tables.measurement import LEASED, WANTED

_AT_ONCE = 10_000


_LEASES = cast(Table, Lease.__table__)
_LAUNCHES = cast(Table, Launch.__table__)
_HELD = Prepared(
    select(func.count()).select_from(Launch).where(Launch.device_id == bindparam("device"), Launch.state == LEASED)
)
_OF_DEVICE = (Device.reported_at, Device.state, Device.last_seen_at)
_DEVICE_OF = select(Device.id).where(Device.id == bindparam("device"))
_ADD = insert(_LEASES).values(
    id=bindparam("lease"),
    device_id=bindparam("device"),
    created_at=bindparam("now"),
    expires_at=bindparam("until"),
)
_LEASE_OUT = (
    update(_LAUNCHES)
    .where(any_of(_LAUNCHES.c.id, texts("ids")))
    .values(
        state=LaunchState.LEASED,
        fence=_LAUNCHES.c.fence + 1,
        device_id=bindparam("device"),
        former_device_id=_LAUNCHES.c.device_id,
        lease_id=bindparam("lease"),
        started_at=None,
    )
)
_ADD_AND_LEASE_OUT = Prepared(_LEASE_OUT.add_cte(_ADD.cte("made")))
_WITHDRAWN = select(func.aggregate_strings(Launch.id, " ")).where(
    Launch.lease_id == bindparam("lease"), Launch.state == LaunchState.CANCELLED
)
_EXTEND = (
    update(_LEASES)
    .where(
        _LEASES.c.id == bindparam("lease"),
        _LEASES.c.device_id == bindparam("device"),
        _LEASES.c.ended_at.is_(None),
        _LEASES.c.expires_at > bindparam("now"),
    )
    .values(expires_at=bindparam("until", type_=UtcDateTime))
    .returning(
        _LEASES.c.expires_at,
        _LEASES.c.created_at,
        *(_DEVICE_OF.with_only_columns(column).scalar_subquery().label(column.key) for column in _OF_DEVICE),
        _WITHDRAWN.scalar_subquery().label("withdrawn"),
    )
)


def claims_alone(session: Session, device_id: str) -> bool:
    """Whether no other claim of the same device is under way; none begins before the transaction ends."""
    return try_lock_name(session, "device", device_id)


def held(session: Session, device_id: str) -> int:
    """Launches that the device holds. A statement of its own: what an earlier claim took is seen by those that begin
    after its lock was released.
    """
    ((count,),) = _HELD.run(session, {"device": device_id})
    return int(count)


def longest_limit_s(session: Session, device_id: str) -> float:
    """The longest time limit of the launches that the device holds."""
    limit = func.max(Measurement.protocol["time_limit_s"].as_float())
    query = select(limit).join(Launch, Launch.measurement_id == Measurement.id)
    return float(session.scalar(query.where(Launch.device_id == device_id, Launch.state == LEASED)) or 0.0)


def add(session: Session, device_id: str, launch_ids: Collection[str], now: datetime, expires_at: datetime) -> str:
    """A new lease of the device on launches that the caller has locked; returns its id."""
    lease_id = new_id("lse")
    values: Document = {
        "lease": lease_id,
        "device": device_id,
        "now": now,
        "until": expires_at,
        "ids": list(launch_ids),
    }
    if session.get_bind().dialect.name == "sqlite":  # it runs one statement where Postgres takes several
        session.execute(_ADD, values)
        session.execute(_LEASE_OUT, values)
    else:
        _ADD_AND_LEASE_OUT.run(session, values)
    return lease_id


def extend(session: Session, device_id: str, lease_id: str, now: datetime, expires_at: datetime) -> Row[Any] | None:
    """Extends a lease that has neither expired nor ended; None if there is no such lease.

    The row has when it expires now, when it was made, when its device had a result last, in which state that is and
    when it was seen last, and the ids of the launches that were withdrawn, separated by spaces.
    """
    values = {"lease": lease_id, "device": device_id, "now": now, "until": expires_at}
    return session.execute(_EXTEND, values).one_or_none()


def expire(session: Session, lease_id: str, now: datetime) -> None:
    session.execute(
        update(_LEASES).where(_LEASES.c.id == lease_id).values(expires_at=now),
        execution_options={"synchronize_session": False},
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
            execution_options={"synchronize_session": False},
        )


def end_all(session: Session, device_id: str, now: datetime) -> None:
    session.execute(
        update(Lease).where(Lease.device_id == device_id, Lease.ended_at.is_(None)).values(ended_at=now),
        execution_options={"synchronize_session": False},
    )


def forget_ended(session: Session, before: datetime) -> None:
    """Deletes leases that ended before then and that no launch refers to any more."""
    held = select(Launch.id).where(Launch.lease_id == Lease.id).exists()
    old = select(Lease.id).where(Lease.ended_at < before, ~held).order_by(Lease.id).limit(_AT_ONCE)
    ids = session.scalars(old.with_for_update(skip_locked=True)).all()
    if ids:
        session.execute(delete(Lease).where(any_of(Lease.id, ids)), execution_options={"synchronize_session": False})


_START = (
    update(_LAUNCHES)
    .where(
        _LAUNCHES.c.id == bindparam("launch"),
        _LAUNCHES.c.state == LaunchState.LEASED,
        _LAUNCHES.c.device_id == bindparam("device"),
        _LAUNCHES.c.fence == bindparam("held"),
        select(Lease.id)
        .where(Lease.id == _LAUNCHES.c.lease_id, Lease.ended_at.is_(None), Lease.expires_at > bindparam("now"))
        .exists(),
    )
    .values(started_at=func.coalesce(_LAUNCHES.c.started_at, bindparam("now", type_=UtcDateTime)))
    .returning(_LAUNCHES.c.id)
)


def start(session: Session, device_id: str, launch_id: str, fence: int, now: datetime) -> bool:
    """Marks a launch as started if this device holds it under this fence and its lease has not expired."""
    values = {"launch": launch_id, "device": device_id, "held": fence, "now": now}
    return session.scalar(_START, values) is not None


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
