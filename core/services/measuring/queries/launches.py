"""Queries on launches from the devices' side: claims and returns. Those on reports are in `queries.reported`.

The searches' side is in `jobs.queries.demand`. Lock order everywhere: targets, measurements, launches, jobs, each by
id.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple, cast

from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    String,
    Table,
    bindparam,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.orm import Session, aliased

from edgefront.core.common.states import (
    ACTIVE_TARGETS,
    LIVE_LAUNCHES,
    JobState,
    LaunchState,
    Purpose,
)
from edgefront.core.services.jobs.queries.demand import NOT_WANTED, needed
from edgefront.core.store.sql import (
    Document,
    Prepared,
    any_of,
    columns,
    fetch,
    json_text,
    typed,
    update_rows,
)
from edgefront.core.store.tables import Job, Launch, Lease, Measurement, Target
from edgefront.core.store.tables.measurement import WANTED


class WantedLaunch(NamedTuple):
    """What an agent has to know of a launch."""

    id: str
    fence: int
    device_key: str
    turn: float
    digest: str
    architecture: str
    """JSON, as it is stored: it is passed on, not read."""
    protocol: str
    """JSON (`stored.read_protocol`)."""
    protocol_digest: str
    seed: int


class LeasedLaunch(NamedTuple):
    """A launch that a device holds."""

    id: str
    measurement_id: str
    target_id: str | None
    lease_id: str
    device_id: str
    purpose: Purpose
    attempts: int
    started_at: datetime | None


# Statements of the hot paths are built once: SQLAlchemy takes several times as long to build one as to run it.
_LAUNCHES = cast(Table, Launch.__table__)
_QUIET = {"synchronize_session": False}


def _set(session: Session, launch_ids: Collection[str], **values: Any) -> None:
    """Updates these launches. Launches that the session has loaded are not refreshed."""
    if launch_ids:
        session.execute(update(Launch).where(any_of(Launch.id, launch_ids)).values(**values), execution_options=_QUIET)


ClaimQuery = Select[str, int, str, float, str, str, str, str, int]


def _claimable(device_key: ColumnElement[str]) -> ClaimQuery:
    return (
        select(
            Launch.id,
            Launch.fence,
            Launch.device_key,
            Launch.turn,
            Measurement.digest,
            json_text(Measurement.architecture).label("architecture"),
            json_text(Measurement.protocol).label("protocol"),
            Measurement.protocol_digest,
            Measurement.seed,
        )
        .join(Measurement, Measurement.id == Launch.measurement_id)
        .where(Launch.state == WANTED, Launch.device_key == device_key)
        .order_by(Launch.turn, Launch.id)
        .limit(bindparam("most", type_=Integer))
        .with_for_update(of=Launch, key_share=True, skip_locked=True)
    )


_other = aliased(Launch)
_OWN, _SHARED = bindparam("own", type_=String), bindparam("shared", type_=String)
# The order makes the planner use the index whatever its estimate for an average key.
_OWN_WANTED = (
    select(_other.device_key)
    .where(_other.state == WANTED, _other.device_key == _OWN)
    .order_by(_other.turn, _other.id)
    .limit(1)
    .scalar_subquery()
)
_CLAIMABLE = Prepared(_claimable(func.coalesce(_OWN_WANTED, _SHARED)))
_CLAIMABLE_SHARED = Prepared(_claimable(_SHARED))


def claimable(
    session: Session,
    own_key: str,
    shared_key: str,
    excluded_protocols: Collection[str],
    limit: int,
) -> list[WantedLaunch]:
    """The first wanted launches of both keys that no other claim has locked, locked, with the columns that an agent
    needs.
    """

    def claim(query: Prepared) -> list[WantedLaunch]:
        asked = {"own": own_key, "shared": shared_key, "most": limit}
        if not excluded_protocols:
            return fetch(session, WantedLaunch, query, asked)
        fit = cast(ClaimQuery, query.statement)
        fit = fit.where(~any_of(Measurement.protocol_digest, excluded_protocols))
        return fetch(session, WantedLaunch, fit, asked)

    own = claim(_CLAIMABLE)
    if all(row.device_key == shared_key for row in own):
        return own
    return sorted([*own, *claim(_CLAIMABLE_SHARED)], key=lambda row: (row.turn, row.id))[:limit]


def held_by(session: Session, device_id: str) -> list[str]:
    own = (Launch.device_id == device_id, Launch.state == LaunchState.LEASED)
    return list(session.scalars(select(Launch.id).where(*own)))


def unfinished_of(session: Session, lease_id: str) -> list[str]:
    own = (Launch.lease_id == lease_id, Launch.state == LaunchState.LEASED)
    return list(session.scalars(select(Launch.id).where(*own)))


_LEASED_ROW = columns(Launch, LeasedLaunch)


def stranded(session: Session) -> list[LeasedLaunch]:
    """Leased launches whose lease has ended."""
    query = select(*_LEASED_ROW).join(Lease, Lease.id == Launch.lease_id)
    ended = query.where(Launch.state == LaunchState.LEASED, Lease.ended_at.is_not(None))
    return typed(LeasedLaunch, session.execute(ended))


def lock_leased(session: Session, launch_ids: Collection[str], *, skip_locked: bool = False) -> list[LeasedLaunch]:
    """Locks those of these launches that are leased."""
    query = (
        select(*_LEASED_ROW)
        .where(any_of(Launch.id, launch_ids), Launch.state == LaunchState.LEASED)
        .order_by(Launch.id)
        .with_for_update(key_share=True, skip_locked=skip_locked)
    )
    return typed(LeasedLaunch, session.execute(query))


def forget_holder(session: Session, launch_ids: Collection[str]) -> None:
    """The holder of these locked launches has given them back unmeasured: it reports on them no more."""
    _set(session, launch_ids, device_id=None, former_device_id=None)


def transfer(session: Session, launch_ids: Collection[str]) -> None:
    """These locked launches were taken from their holder: what it measured counts until another device holds them."""
    _set(session, launch_ids, device_id=None, former_device_id=Launch.device_id, fence=Launch.fence + 1)


def release(session: Session, launch_ids: Collection[str], now: datetime) -> None:
    """Releases locked launches: they become wanted again, or cancelled if no running job needs them any more. Anchors
    are the service's own.
    """
    if not launch_ids:
        return
    is_wanted = or_(Launch.purpose == Purpose.ANCHOR, needed())
    still_wanted = set(session.scalars(select(Launch.id).where(any_of(Launch.id, launch_ids), is_wanted)))
    free = {"lease_id": None, "started_at": None}  # and the device stays the one that held it last
    _set(session, still_wanted, **free, state=LaunchState.WANTED)
    unwanted = set(launch_ids) - still_wanted
    _set(session, unwanted, **free, state=LaunchState.CANCELLED, finished_at=now, reason=NOT_WANTED)


def cancel_unwanted(session: Session, now: datetime) -> None:
    """Cancels wanted launches that no running job needs, because the process that ended their job crashed."""
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
    _set(session, ids, state=LaunchState.CANCELLED, finished_at=now, reason=NOT_WANTED)


def forget_leases(session: Session) -> None:
    """Clears the lease of withdrawn launches whose lease has ended."""
    query = (
        select(Launch.id)
        .join(Lease, Lease.id == Launch.lease_id)
        .where(Launch.state == LaunchState.CANCELLED, Lease.ended_at.is_not(None))
        .order_by(Launch.id)
        .with_for_update(of=Launch, key_share=True, skip_locked=True)
    )
    _set(session, session.scalars(query).all(), lease_id=None)


def add_attempts(session: Session, launch_ids: Collection[str]) -> None:
    """Adds an attempt and raises the fence, so that the former holder is not charged again."""
    _set(session, launch_ids, attempts=Launch.attempts + 1, fence=Launch.fence + 1)


def conditions(session: Session, target_id: str) -> tuple[int, int]:
    """Done launches that the target requested, and those of them whose conditions were out of the ordinary."""
    query = select(func.count(), func.count(Launch.mark)).where(
        Launch.target_id == target_id, Launch.state == LaunchState.DONE
    )
    done, marked = session.execute(query).one()
    return done, marked


def write(session: Session, rows: Sequence[Document]) -> None:
    """Updates launches by id; all rows name the same columns. Launches that the session has loaded are not
    refreshed.
    """
    update_rows(session, Launch, rows)


def cancel_siblings(session: Session, measurement_ids: Collection[str], now: datetime) -> None:
    """Cancels further wanted launches of infeasible or failed measurements."""
    if measurement_ids:
        session.execute(
            update(Launch)
            .where(any_of(Launch.measurement_id, measurement_ids), Launch.state == WANTED)
            .values(state=LaunchState.CANCELLED, finished_at=now, reason="the measurement has ended"),
            execution_options=_QUIET,
        )


def with_open_launches(session: Session, measurement_ids: Collection[str]) -> set[str]:
    """Finds the measurements that have a live launch."""
    return set(
        session.scalars(
            select(Launch.measurement_id)
            .where(any_of(Launch.measurement_id, measurement_ids), Launch.state.in_(LIVE_LAUNCHES))
            .distinct()
        )
    )
