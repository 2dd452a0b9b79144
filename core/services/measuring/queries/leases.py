"""Queries on leases."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from sqlalchemy import Table, bindparam, case, delete, func, insert, select, update
from sqlalchemy.orm import Session

from edgefront.core.states import DeviceState, LaunchState
from edgefront.core.store.sql import Document, Prepared, any_of, texts, try_lock_name
from edgefront.core.store.tables import Device, Launch, Lease, Measurement, new_id
from edgefront.core.store.tables.base import UtcDateTime
from edgefront.core.store.tables.measurement import LEASED

_AT_ONCE = 10_000


_LEASES = cast(Table, Lease.__table__)
_LAUNCHES = cast(Table, Launch.__table__)
_LIMIT = Measurement.protocol["time_limit_s"].as_float()
_WAITS = Measurement.protocol["when_busy"].as_string() == "wait"
# A statement of its own: what an earlier claim took is seen by those that begin after its lock was released.
_HOLDING = Prepared(
    select(
        func.count(),
        func.coalesce(func.sum(_LIMIT), 0.0),
        func.coalesce(func.max(_LIMIT), 0.0),
        func.coalesce(func.sum(case((_WAITS, 1), else_=0)), 0),
    )
    .select_from(Launch)
    .join(Measurement, Measurement.id == Launch.measurement_id)
    .where(Launch.device_id == bindparam("device"), Launch.state == LEASED)
)
_DEVICE_OF = select(Device.id).where(Device.id == bindparam("device"))
_ADD = insert(_LEASES).values(
    id=bindparam("lease"),
    device_id=bindparam("device"),
    created_at=bindparam("now"),
    expires_at=bindparam("until"),
    ends_at=bindparam("end"),
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
_UNTIL = bindparam("until", type_=UtcDateTime)
_EXTEND = (
    update(_LEASES)
    .where(
        _LEASES.c.id == bindparam("lease"),
        _LEASES.c.device_id == bindparam("device"),
        _LEASES.c.ended_at.is_(None),
        _LEASES.c.expires_at > bindparam("now"),
    )
    .values(expires_at=case((_LEASES.c.ends_at < _UNTIL, _LEASES.c.ends_at), else_=_UNTIL))
    .returning(
        _LEASES.c.expires_at,
        _LEASES.c.created_at,
        _DEVICE_OF.with_only_columns(Device.reported_at).scalar_subquery(),
        _DEVICE_OF.with_only_columns(Device.state).scalar_subquery(),
        _DEVICE_OF.with_only_columns(Device.last_seen_at).scalar_subquery(),
        _WITHDRAWN.scalar_subquery(),
    )
)


@dataclass(frozen=True)
class Holding:
    """What a device holds: launches that have no result yet, the sum and the longest of their time limits, and how many
    of them wait for better conditions (`when_busy`).
    """

    launches: int
    limits_s: float
    longest_limit_s: float
    waiting: int


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


def holding(session: Session, device_id: str) -> Holding:
    (row,) = _HOLDING.run(session, {"device": device_id})
    return Holding(*row)


def add(
    session: Session,
    device_id: str,
    launch_ids: Collection[str],
    now: datetime,
    expires_at: datetime,
    ends_at: datetime,
) -> str:
    """A new lease of the device on launches that the caller has locked; returns its id."""
    lease_id = new_id("lse")
    values: Document = {"lease": lease_id, "device": device_id, "now": now, "until": expires_at, "end": ends_at}
    values["ids"] = list(launch_ids)
    if _sqlite(session):
        session.execute(_ADD, values)
        session.execute(_LEASE_OUT, values)
    else:
        _ADD_AND_LEASE_OUT.run(session, values)
    return lease_id


def _sqlite(session: Session) -> bool:
    """It has one writer at a time, and runs one statement where Postgres takes several."""
    return session.get_bind().dialect.name == "sqlite"


def extend(session: Session, device_id: str, lease_id: str, now: datetime, expires_at: datetime) -> Extended | None:
    """Extends a lease that has neither expired nor ended, at most to its end; None if there is no such lease."""
    values = {"lease": lease_id, "device": device_id, "now": now, "until": expires_at}
    row = session.execute(_EXTEND, values).one_or_none()
    if row is None:
        return None
    return Extended(row[0], row[1], row[2], row[3], row[4], tuple(sorted((row[5] or "").split())))


def end_now(session: Session, lease_id: str, now: datetime) -> None:
    """The lease is at its end: no heartbeat extends it any more."""
    session.execute(
        update(_LEASES).where(_LEASES.c.id == lease_id).values(expires_at=now, ends_at=now),
        execution_options={"synchronize_session": False},
    )


def find(session: Session, device_id: str, lease_id: str) -> Lease | None:
    return session.scalars(select(Lease).where(Lease.id == lease_id, Lease.device_id == device_id)).one_or_none()


def lock(session: Session, device_id: str, lease_id: str) -> Lease | None:
    query = select(Lease).where(Lease.id == lease_id, Lease.device_id == device_id).with_for_update(key_share=True)
    return session.scalars(query.execution_options(populate_existing=True)).one_or_none()


def lost(session: Session, device_id: str, since: datetime | None) -> tuple[int, datetime | None]:
    """How many leases that the device took since then ran out with launches unfinished, and when the last ended. Those
    that the sweep has forgotten do not count.
    """
    query = select(func.count(), func.max(Lease.ended_at)).where(
        Lease.device_id == device_id, Lease.ended_at > Lease.expires_at
    )
    row = session.execute(query if since is None else query.where(Lease.created_at > since)).one()
    return row[0], row[1]


def end_expired(session: Session, now: datetime) -> None:
    """Ends expired leases. A heartbeat that waits for such a row then finds the lease ended.

    Those with launches unfinished end now, after their time; the others ended when they expired (`lost`).
    """
    unfinished = select(Launch.id).where(Launch.lease_id == Lease.id, Launch.state == LEASED).exists()
    expired = select(Lease.id).where(Lease.expires_at <= now, Lease.ended_at.is_(None)).order_by(Lease.id)
    ids = session.scalars(expired.with_for_update(key_share=True, skip_locked=True)).all()
    if ids:
        session.execute(
            update(Lease)
            .where(any_of(Lease.id, ids))
            .values(ended_at=case((unfinished, bindparam("now", now, UtcDateTime)), else_=Lease.expires_at)),
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
