"""Queries on launches from the devices' side: claims, starts, returns, reports.

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
    and_,
    bindparam,
    func,
    or_,
    select,
    type_coerce,
    update,
)
from sqlalchemy.orm import Session, aliased

from edgefront.core.measurement.record import LaunchResult
from edgefront.core.services.jobs.queries.demand import NOT_WANTED
from edgefront.core.states import (
    ACTIVE_TARGETS,
    LIVE_LAUNCHES,
    CandidateRole,
    CandidateState,
    JobState,
    LaunchState,
    Purpose,
    TargetState,
)
from edgefront.core.store.clock import MAX_TTL, over
from edgefront.core.store.sql import (
    Document,
    Parsed,
    Prepared,
    any_of,
    columns,
    fetch,
    json_text,
    texts,
    typed,
    update_rows,
)
from edgefront.core.store.tables import Candidate, Job, Launch, Lease, Measurement, Target
from edgefront.core.store.tables.measurement import REPORTED, WANTED

RESULT = type_coerce(Launch.result, Parsed(LaunchResult)).label("result")
"""The result of a launch as a query reads it."""


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


class LaunchForReport(NamedTuple):
    """What the decision on a report and its receipt need."""

    id: str
    target_id: str | None
    device_key: str
    device_id: str | None
    former_device_id: str | None
    purpose: Purpose
    state: LaunchState
    attempts: int
    fence: int
    reports: list[str]
    created_at: datetime
    started_at: datetime | None
    leased_at: datetime | None
    protocol: str
    """JSON."""
    target_state: TargetState | None
    job_state: JobState | None


class UnprocessedLaunch(NamedTuple):
    """A launch with a report that is not processed yet."""

    id: str
    measurement_id: str


class ReportedLaunch(NamedTuple):
    """A launch with its reported result; its attempts are charged already."""

    id: str
    measurement_id: str
    target_id: str | None
    device_id: str
    device_key: str
    purpose: Purpose
    attempts: int
    reason: str | None
    result: LaunchResult
    busy_s: float
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime


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


def unfinished_of(session: Session, lease_id: str) -> list[str]:
    return list(
        session.scalars(select(Launch.id).where(Launch.lease_id == lease_id, Launch.state == LaunchState.LEASED))
    )


def held_by(session: Session, device_id: str) -> list[str]:
    return list(
        session.scalars(select(Launch.id).where(Launch.device_id == device_id, Launch.state == LaunchState.LEASED))
    )


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


_FOR_REPORT = Prepared(
    select(
        Launch.id,
        Launch.target_id,
        Launch.device_key,
        Launch.device_id,
        Launch.former_device_id,
        Launch.purpose,
        Launch.state,
        Launch.attempts,
        Launch.fence,
        Launch.reports,
        Launch.created_at,
        Launch.started_at,
        Lease.created_at.label("leased_at"),
        json_text(Measurement.protocol).label("protocol"),
        Target.state.label("target_state"),
        Job.state.label("job_state"),
    )
    .join(Measurement, Measurement.id == Launch.measurement_id)
    .outerjoin(Target, Target.id == Launch.target_id)
    .outerjoin(Job, Job.id == Target.job_id)
    .outerjoin(Lease, Lease.id == Launch.lease_id)
    .where(any_of(Launch.id, texts("ids")))
    .order_by(Launch.id)
    .with_for_update(of=Launch, key_share=True)
)


def lock_for_report(session: Session, launch_ids: Collection[str]) -> list[LaunchForReport]:
    """These launches, locked."""
    return fetch(session, LaunchForReport, _FOR_REPORT, {"ids": list(launch_ids)})


_REPORTED = (
    select(Launch.id, Launch.measurement_id)
    .where(Launch.state == REPORTED)
    .order_by(Launch.finished_at, Launch.id)
    .limit(bindparam("most", type_=Integer))
)
_REPORTED_OF_ONE = Prepared(_REPORTED.where(Launch.target_id == bindparam("target")))
_REPORTED_OF_NONE = Prepared(_REPORTED.where(Launch.target_id.is_(None)))


def reported(session: Session, target_id: str | None, limit: int) -> list[UnprocessedLaunch]:
    """Launches that wait to be settled, oldest first: those that the target requested; None: of deleted targets."""
    query, asked = (_REPORTED_OF_NONE, {}) if target_id is None else (_REPORTED_OF_ONE, {"target": target_id})
    return fetch(session, UnprocessedLaunch, query, {**asked, "most": limit})


_LOCK_REPORTED = Prepared(
    select(*[RESULT if column.key == "result" else column for column in columns(Launch, ReportedLaunch)])
    .where(any_of(Launch.id, texts("ids")), Launch.state == REPORTED)
    .order_by(Launch.id)
    .with_for_update(key_share=True)
)


def lock_reported(session: Session, launch_ids: Collection[str]) -> list[ReportedLaunch]:
    """Locks those of these launches that still wait to be settled; with their reported results."""
    return fetch(session, ReportedLaunch, _LOCK_REPORTED, {"ids": list(launch_ids)})


def unsettled_targets(session: Session, before: datetime) -> list[str | None]:
    """Targets that requested launches with unsettled reports from before then; contains None for launches of deleted
    targets.
    """
    query = (
        select(Launch.target_id).where(Launch.state == REPORTED, over(Launch.finished_at, before, MAX_TTL)).distinct()
    )
    return list(session.scalars(query))


def _still_wanted() -> ColumnElement[bool]:
    """An active target of a running job waits for the launch's measurement, or requested the launch itself."""
    candidate, target, job = aliased(Candidate), aliased(Target), aliased(Job)
    return (
        select(candidate.id)
        .join(target, target.id == candidate.target_id)
        .join(job, job.id == target.job_id)
        .where(
            candidate.measurement_id == Launch.measurement_id,
            job.state == JobState.RUNNING,
            target.state.in_(ACTIVE_TARGETS),
            or_(
                candidate.state == CandidateState.WAITING,
                Launch.target_id == target.id,
                and_(target.state == TargetState.BASELINES, candidate.role == CandidateRole.BASELINE),
            ),
        )
        .exists()
    )


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
    needed = or_(Launch.purpose == Purpose.ANCHOR, _still_wanted())
    still_wanted = set(session.scalars(select(Launch.id).where(any_of(Launch.id, launch_ids), needed)))
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
        .where(Launch.state == WANTED, Launch.purpose != Purpose.ANCHOR, ~own.exists(), ~_still_wanted())
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


def fail_reported(session: Session, launch_id: str, reason: str) -> bool:
    """Marks the launch as failed if it waits to be settled; whether it did."""
    statement = (
        update(Launch)
        .where(Launch.id == launch_id, Launch.state == LaunchState.REPORTED)
        .values(state=LaunchState.FAILED, reason=reason, busy_s=0.0)
        .returning(Launch.id)
    )
    return session.scalar(statement, execution_options=_QUIET) is not None


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
