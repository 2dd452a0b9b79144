"""Queries on leases."""

from __future__ import annotations

from datetime import datetime
from typing import cast

from sqlalchemy import Table, bindparam, delete, insert, select, update
from sqlalchemy.orm import Session

from core.store.tables import Launch, Lease, new_id

_AT_ONCE = 10_000


_LEASES = cast(Table, Lease.__table__)
_ADD = insert(_LEASES)
_EXTEND = (
    update(_LEASES)
    .where(
        _LEASES.c.id == bindparam("lease"),
        _LEASES.c.device_id == bindparam("device"),
        _LEASES.c.ended_at.is_(None),
        _LEASES.c.expires_at > bindparam("now"),
    )
    .values(expires_at=bindparam("until"))
    .returning(_LEASES.c.id)
)


def add(session: Session, device_id: str, now: datetime, expires_at: datetime) -> str:
    lease_id = new_id("lse")
    session.execute(_ADD, {"id": lease_id, "device_id": device_id, "created_at": now, "expires_at": expires_at})
    return lease_id


def extend(session: Session, device_id: str, lease_id: str, now: datetime, expires_at: datetime) -> bool:
    """Moves the expiry of a lease that has neither expired nor ended; False if there is none such."""
    values = {"lease": lease_id, "device": device_id, "now": now, "until": expires_at}
    return session.scalar(_EXTEND, values) is not None


def find(session: Session, device_id: str, lease_id: str) -> Lease | None:
    return session.scalars(select(Lease).where(Lease.id == lease_id, Lease.device_id == device_id)).one_or_none()


def lock(session: Session, device_id: str, lease_id: str) -> Lease | None:
    query = select(Lease).where(Lease.id == lease_id, Lease.device_id == device_id).with_for_update(key_share=True)
    return session.scalars(query.execution_options(populate_existing=True)).one_or_none()


def end_expired(session: Session, now: datetime) -> None:
    """Ends what has expired. A heartbeat that waits for such a row then finds the lease ended."""
    expired = select(Lease.id).where(Lease.expires_at <= now, Lease.ended_at.is_(None)).order_by(Lease.id)
    ids = session.scalars(expired.with_for_update(key_share=True, skip_locked=True)).all()
    if ids:
        session.execute(
            update(Lease).where(Lease.id.in_(ids)).values(ended_at=now),
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
    old = select(Lease.id).where(Lease.ended_at < before, ~held).limit(_AT_ONCE)
    ids = session.scalars(old.with_for_update(skip_locked=True)).all()
    if ids:
        session.execute(delete(Lease).where(Lease.id.in_(ids)), execution_options={"synchronize_session": False})
