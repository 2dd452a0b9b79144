"""Queries on leases, and on launches whose lease has ended."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Row, Table, bindparam, delete, func, select, update
from sqlalchemy.orm import Session

from edgefront.core.common.states import ACTIVE_TARGETS, JobState, LaunchState, Purpose
from edgefront.core.services.jobs.queries.demand import NOT_WANTED, needed
from edgefront.core.services.measuring.queries.launches import LaunchRow, launch_rows, set_values
from edgefront.core.store.clock import MAX_TTL, over
from edgefront.core.store.sql import PreparedStatement, any_of, fetch
from edgefront.core.store.tables import Device, Job, Launch, Lease, Measurement, Target
from edgefront.core.store.tables.base import UtcDateTime
from edgefront.core.store.tables.measurement import LEASED, WANTED

_AT_ONCE = 10_000


_LEASES = cast(Table, Lease.__table__)
_LAUNCHES = cast(Table, Launch.__table__)
_OF_DEVICE = (Device.reported_at, Device.state, Device.last_seen_at)
_DEVICE_OF = select(Device.id).where(Device.id == bindparam("device"))
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


def longest_limit_s(session: Session, device_id: str) -> float:
    """Longest time limit among the launches that are leased to the device, s."""
    limit = func.max(Measurement.protocol["time_limit_s"].as_float())
    query = select(limit).join(Launch, Launch.measurement_id == Measurement.id)
    return float(session.scalar(query.where(Launch.device_id == device_id, Launch.state == LEASED)) or 0.0)


def extend(session: Session, device_id: str, lease_id: str, now: datetime, expires_at: datetime) -> Row[Any] | None:
    """Extends a lease that has neither expired nor ended. Returns None if there is no such lease.

    The row contains the lease's new expiry and creation time, the device's `reported_at`, `state` and `last_seen_at`,
    and the ids of withdrawn launches, separated by spaces.
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
    """Ends expired leases. Heartbeats that wait for the row of an expired lease then fail."""
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
    """Deletes leases that ended before `before`, except leases to which a launch still refers."""
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
    """Marks a launch as started if this device leases it with this fencing token and the lease has not expired."""
    values = {"launch": launch_id, "device": device_id, "held": fence, "now": now}
    return session.scalar(_START, values) is not None


def wanted_keys(session: Session) -> set[str]:
    """Returns distinct device keys of wanted launches, by an index skip scan from key to key."""
    first = select(func.min(Launch.device_key)).where(Launch.state == WANTED).scalar_subquery()
    hops = select(first.label("device_key")).cte("hops", recursive=True)
    following = (
        select(func.min(Launch.device_key))
        .where(Launch.state == WANTED, Launch.device_key > hops.c.device_key)
        .scalar_subquery()
    )
    hops = hops.union_all(select(following).where(hops.c.device_key.is_not(None)))
    return set(session.scalars(select(hops.c.device_key).where(hops.c.device_key.is_not(None))))


def held_by(session: Session, device_id: str) -> list[str]:
    own = (Launch.device_id == device_id, Launch.state == LaunchState.LEASED)
    return list(session.scalars(select(Launch.id).where(*own)))


def unfinished_of(session: Session, lease_id: str) -> list[str]:
    own = (Launch.lease_id == lease_id, Launch.state == LaunchState.LEASED)
    return list(session.scalars(select(Launch.id).where(*own)))


_ENDED = select(Lease.id).where(Lease.ended_at.is_not(None))
_STRANDED = PreparedStatement(launch_rows(Launch.state == LEASED, Launch.lease_id.in_(_ENDED)))


def stranded(session: Session) -> list[LaunchRow]:
    """Returns launches in state leased whose lease has ended. Locks nothing."""
    return fetch(session, LaunchRow, _STRANDED, {})


def cancel_unwanted(session: Session, now: datetime) -> None:
    """Cancels wanted launches that no running job needs. They remain if the process that ended their job crashed."""
    own = (
        select(Target.id)
        .join(Job)
        .where(Target.id == Launch.target_id, Target.state.in_(ACTIVE_TARGETS), Job.state == JobState.RUNNING)
    )
    ids = session.scalars(
        select(Launch.id)
        .where(Launch.state == WANTED, Launch.purpose != Purpose.ANCHOR, ~own.exists(), ~needed())
        .order_by(Launch.id)
        .with_for_update(key_share=True, skip_locked=True)
    ).all()
    set_values(session, ids, state=LaunchState.CANCELLED, finished_at=now, reason=NOT_WANTED)


def forget_leases(session: Session) -> None:
    """Removes the reference to the lease from withdrawn launches of ended leases."""
    query = (
        select(Launch.id)
        .join(Lease, Lease.id == Launch.lease_id)
        .where(Launch.state == LaunchState.CANCELLED, Lease.ended_at.is_not(None))
        .order_by(Launch.id)
        .with_for_update(of=Launch, key_share=True, skip_locked=True)
    )
    set_values(session, session.scalars(query).all(), lease_id=None)


def add_attempts(session: Session, launch_ids: Collection[str]) -> None:
    """Charges launches an attempt, and raises the fencing tokens, so later reports of a failure are not charged."""
    set_values(session, launch_ids, attempts=Launch.attempts + 1, fence=Launch.fence + 1)
