"""Queries with which devices claim launches, report on them and give them back.

Queries for searches are in `jobs.queries.demand`. Lock order everywhere: targets, measurements, launches, jobs, each by
id.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, cast

from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    String,
    Table,
    bindparam,
    func,
    insert,
    or_,
    select,
    type_coerce,
    update,
)
from sqlalchemy.orm import Session, aliased

from edgefront.core.common.states import (
    ACTIVE_TARGETS,
    LIVE_JOBS,
    JobState,
    LaunchState,
    Purpose,
    TargetState,
)
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.services.jobs.queries.demand import NOT_WANTED, needed
from edgefront.core.services.stored import read_protocol
from edgefront.core.store.clock import MAX_TTL, over
from edgefront.core.store.sql import (
    Document,
    Parsed,
    PreparedStatement,
    any_of,
    fetch,
    json_text,
    texts,
    try_lock_name,
    update_rows,
)
from edgefront.core.store.tables import Job, Launch, Lease, Measurement, Target, new_id
from edgefront.core.store.tables.measurement import LEASED, REPORTED, WANTED

if TYPE_CHECKING:
    from typing_extensions import Unpack

RESULT = type_coerce(Launch.result, Parsed(LaunchResult)).label("result")
"""Column with the result of a launch, parsed as `LaunchResult`."""
Value = TypeVar("Value")


class LaunchRow(NamedTuple):
    """A launch with its measurement, and the state of its target and job."""

    id: str
    measurement_id: str
    target_id: str | None
    device_key: str
    device_id: str | None
    """Device with the present or latest lease; None after the device has given the launch back, or has lost it."""
    former_device_id: str | None
    lease_id: str | None
    purpose: Purpose
    state: LaunchState
    turn: float
    attempts: int
    fence: int
    reports: list[str]
    """Digests of the accepted reports."""
    reason: str | None
    busy_s: float
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    digest: str
    architecture: str
    """Stored JSON, like the protocol."""
    protocol_json: str
    protocol_digest: str
    seed: int
    leased_at: datetime | None
    """Time of the present lease."""
    target_state: TargetState | None
    job_state: JobState | None
    stored_result: LaunchResult | None
    """Result of the latest report; None before the first."""

    @property
    def protocol(self) -> MeasurementProtocol | None:
        """Protocol of the measurement; None if this release cannot read the protocol."""
        return read_protocol(self.protocol_json)

    @property
    def result(self) -> LaunchResult:
        """Result of a reported launch."""
        return _required(self.stored_result, "result")

    @property
    def holder(self) -> str:
        """Device that has leased or reported the launch."""
        return _required(self.device_id, "holder")

    @property
    def reported_at(self) -> datetime:
        """Time when the launch was reported."""
        return _required(self.finished_at, "report")

    @property
    def is_anchor(self) -> bool:
        return self.purpose == Purpose.ANCHOR

    @property
    def is_wanted(self) -> bool:
        """Whether the launch's target is active, and the job running or paused. Anchor launches are always wanted."""
        return self.is_anchor or (self.target_state in ACTIVE_TARGETS and self.job_state in LIVE_JOBS)


def _required(value: Value | None, name: str) -> Value:
    if value is None:
        raise ValueError(f"the launch has no {name}")
    return value


# Statements of the hot paths are built once, because SQLAlchemy builds a statement several times as long as it runs.
_LAUNCHES = cast(Table, Launch.__table__)
_LEASES = cast(Table, Lease.__table__)
_QUIET = {"synchronize_session": False}


def set_values(session: Session, launch_ids: Collection[str], **values: Any) -> None:
    """Updates these launches. Launches that the session has loaded are not refreshed."""
    if launch_ids:
        session.execute(update(Launch).where(any_of(Launch.id, launch_ids)).values(**values), execution_options=_QUIET)


Rows: TypeAlias = "Select[Unpack[tuple[Any, ...]]]"


def launch_rows(*conditions: ColumnElement[bool]) -> Rows:
    """Returns a query of launches as `LaunchRow`, ordered by id."""
    own = [getattr(Launch, name) for name in LaunchRow._fields[: LaunchRow._fields.index("digest")]]
    return (
        select(
            *own,
            Measurement.digest,
            json_text(Measurement.architecture).label("architecture"),
            json_text(Measurement.protocol).label("protocol_json"),
            Measurement.protocol_digest,
            Measurement.seed,
            Lease.created_at.label("leased_at"),
            Target.state.label("target_state"),
            Job.state.label("job_state"),
            RESULT.label("stored_result"),
        )
        .join(Measurement, Measurement.id == Launch.measurement_id)
        .outerjoin(Lease, Lease.id == Launch.lease_id)
        .outerjoin(Target, Target.id == Launch.target_id)
        .outerjoin(Job, Job.id == Target.job_id)
        .where(*conditions)
        .order_by(Launch.id)
    )


def _locked(rows: Rows, *, skip_locked: bool = False) -> Rows:
    return rows.with_for_update(of=Launch, key_share=True, skip_locked=skip_locked)


def _claimable(device_key: ColumnElement[str]) -> Rows:
    wanted = launch_rows(Launch.state == WANTED, Launch.device_key == device_key)
    first = wanted.order_by(None).order_by(Launch.turn, Launch.id).limit(bindparam("most", type_=Integer))
    return _locked(first, skip_locked=True)


_other = aliased(Launch)
_OWN, _SHARED = bindparam("own", type_=String), bindparam("shared", type_=String)
# The order makes the planner use the index, whatever its estimate for an average key.
_OWN_WANTED = (
    select(_other.device_key)
    .where(_other.state == WANTED, _other.device_key == _OWN)
    .order_by(_other.turn, _other.id)
    .limit(1)
    .scalar_subquery()
)
_CLAIMABLE = PreparedStatement(_claimable(func.coalesce(_OWN_WANTED, _SHARED)))
_CLAIMABLE_SHARED = PreparedStatement(_claimable(_SHARED))


def claimable(
    session: Session,
    own_key: str,
    shared_key: str,
    excluded_protocols: Collection[str],
    limit: int,
) -> list[LaunchRow]:
    """Locks and returns the first wanted launches of both keys, except launches that other claims have locked."""

    def claim(query: PreparedStatement) -> list[LaunchRow]:
        asked = {"own": own_key, "shared": shared_key, "most": limit}
        if not excluded_protocols:
            return fetch(session, LaunchRow, query, asked)
        fit = cast(Rows, query.statement).where(~any_of(Measurement.protocol_digest, excluded_protocols))
        return fetch(session, LaunchRow, fit, asked)

    own = claim(_CLAIMABLE)
    if all(row.device_key == shared_key for row in own):
        return own
    return sorted([*own, *claim(_CLAIMABLE_SHARED)], key=lambda row: (row.turn, row.id))[:limit]


_HELD = PreparedStatement(
    select(func.count()).select_from(Launch).where(Launch.device_id == bindparam("device"), Launch.state == LEASED)
)
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
_ADD_AND_LEASE_OUT = PreparedStatement(_LEASE_OUT.add_cte(_ADD.cte("made")))


def claims_alone(session: Session, device_id: str) -> bool:
    """Whether the device has no other claim in progress. Excludes other claims until the transaction ends."""
    return try_lock_name(session, "device", device_id)


def held(session: Session, device_id: str) -> int:
    """Number of launches leased to the device. This is a separate statement, because only a statement that begins after
    an earlier claim has released its lock sees the launches of that claim.
    """
    ((count,),) = _HELD.run(session, {"device": device_id})
    return int(count)


def lease_out(
    session: Session, device_id: str, launch_ids: Collection[str], now: datetime, expires_at: datetime
) -> str:
    """Adds a lease of the device on launches that the caller has locked. Returns the lease's id."""
    lease_id = new_id("lse")
    values: Document = {
        "lease": lease_id,
        "device": device_id,
        "now": now,
        "until": expires_at,
        "ids": list(launch_ids),
    }
    if session.get_bind().dialect.name == "sqlite":  # SQLite has no common table expressions that insert
        session.execute(_ADD, values)
        session.execute(_LEASE_OUT, values)
    else:
        _ADD_AND_LEASE_OUT.run(session, values)
    return lease_id


_IDS = any_of(Launch.id, texts("ids"))
_LEASED = launch_rows(_IDS, Launch.state == LEASED)
_LEASED_ONES, _LEASED_AND_FREE = (PreparedStatement(_locked(_LEASED, skip_locked=skip)) for skip in (False, True))
_FOR_REPORT = PreparedStatement(_locked(launch_rows(_IDS)))
_UNPROCESSED = PreparedStatement(_locked(launch_rows(_IDS, Launch.state == REPORTED)))


def lock_leased(session: Session, launch_ids: Collection[str], *, skip_locked: bool = False) -> list[LaunchRow]:
    """Locks and returns the launches with these ids that are leased."""
    query = _LEASED_AND_FREE if skip_locked else _LEASED_ONES
    return fetch(session, LaunchRow, query, {"ids": list(launch_ids)})


def lock_for_report(session: Session, launch_ids: Collection[str]) -> list[LaunchRow]:
    """Locks and returns these launches."""
    return fetch(session, LaunchRow, _FOR_REPORT, {"ids": list(launch_ids)})


def lock_unprocessed(session: Session, launch_ids: Collection[str]) -> list[LaunchRow]:
    """Locks and returns the launches with these ids whose reports are not processed yet."""
    return fetch(session, LaunchRow, _UNPROCESSED, {"ids": list(launch_ids)})


_WAITING = (
    select(Launch.id, Launch.measurement_id)
    .where(Launch.state == REPORTED)
    .order_by(Launch.finished_at, Launch.id)
    .limit(bindparam("most", type_=Integer))
)
_WAITING_OF_ONE = PreparedStatement(_WAITING.where(Launch.target_id == bindparam("target")))
_WAITING_OF_NONE = PreparedStatement(_WAITING.where(Launch.target_id.is_(None)))


def unprocessed(session: Session, target_id: str | None, limit: int) -> dict[str, str]:
    """Returns launch id → measurement id of reported launches of a target (None: deleted targets), oldest first."""
    query, asked = (_WAITING_OF_NONE, {}) if target_id is None else (_WAITING_OF_ONE, {"target": target_id})
    return dict(query.run(session, {**asked, "most": limit}))


def unprocessed_targets(session: Session, before: datetime) -> list[str | None]:
    """Returns the ids of targets with unprocessed reports older than `before`; None stands for deleted targets."""
    is_late = over(Launch.finished_at, before, MAX_TTL)
    return list(session.scalars(select(Launch.target_id).where(Launch.state == REPORTED, is_late).distinct()))


def fail(session: Session, launch_id: str, reason: str) -> bool:
    """Marks the launch as failed if its report is not processed yet. Returns whether the launch was marked."""
    statement = (
        update(Launch)
        .where(Launch.id == launch_id, Launch.state == REPORTED)
        .values(state=LaunchState.FAILED, reason=reason, busy_s=0.0)
        .returning(Launch.id)
    )
    return session.scalar(statement, execution_options=_QUIET) is not None


def forget_holder(session: Session, launch_ids: Collection[str]) -> None:
    """Clears the devices of these locked launches, which were given back unmeasured. Later reports do not count."""
    set_values(session, launch_ids, device_id=None, former_device_id=None)


def transfer(session: Session, launch_ids: Collection[str]) -> None:
    """Takes these locked launches from their device. The device may still report until another device leases them."""
    set_values(session, launch_ids, device_id=None, former_device_id=Launch.device_id, fence=Launch.fence + 1)


def still_needed(session: Session, launch_ids: Collection[str]) -> set[str]:
    """Returns the ids of those launches that a running job needs, and of launches of the reference model (anchor)."""
    is_needed = or_(Launch.purpose == Purpose.ANCHOR, needed())
    return set(session.scalars(select(Launch.id).where(any_of(Launch.id, launch_ids), is_needed)))


def release(session: Session, launch_ids: Collection[str], now: datetime) -> None:
    """Releases locked launches: they become wanted again, or cancelled if no running job needs them any more."""
    if launch_ids:
        give_back(session, launch_ids, still_needed(session, launch_ids), now)


def give_back(session: Session, launch_ids: Collection[str], wanted: Collection[str], now: datetime) -> None:
    """Releases locked launches: those in `wanted` become wanted again, the others are cancelled."""
    free = {"lease_id": None, "started_at": None}  # `device_id` stays, so that a late report can count
    unwanted = set(launch_ids).difference(wanted)
    set_values(session, set(launch_ids).intersection(wanted), **free, state=LaunchState.WANTED)
    set_values(session, unwanted, **free, state=LaunchState.CANCELLED, finished_at=now, reason=NOT_WANTED)


def conditions(session: Session, target_id: str) -> tuple[int, int]:
    """Returns a target's number of done launches, and the number of done launches in disturbed conditions."""
    query = select(func.count(), func.count(Launch.mark)).where(
        Launch.target_id == target_id, Launch.state == LaunchState.DONE
    )
    done, marked = session.execute(query).one()
    return done, marked


def write(session: Session, rows: Sequence[Document]) -> None:
    """Updates launches by id; all rows must have the same columns. Launches that the session has loaded are not
    refreshed.
    """
    update_rows(session, Launch, rows)


def cancel_siblings(session: Session, measurement_ids: Collection[str], now: datetime) -> None:
    """Cancels the remaining wanted launches of infeasible or failed measurements."""
    if measurement_ids:
        session.execute(
            update(Launch)
            .where(any_of(Launch.measurement_id, measurement_ids), Launch.state == WANTED)
            .values(state=LaunchState.CANCELLED, finished_at=now, reason="the measurement has ended"),
            execution_options=_QUIET,
        )
