"""Queries on jobs, targets and generations.

Row locks are `FOR NO KEY UPDATE`: they exclude each other, but not inserts of rows with a foreign key to the locked
row. SQLite ignores row locks, because it has one writer at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, delete, func, or_, select
from sqlalchemy.orm import Session

from edgefront.core.common.states import (
    ACTIVE_TARGETS,
    LIVE_LAUNCHES,
    CandidateRole,
    CandidateState,
    DeviceState,
    JobEventKind,
    JobState,
    TargetState,
    WorkKind,
)
from edgefront.core.services.fleet.device_keys import ids_and_classes, key_of_class, key_of_device, parsed
from edgefront.core.store.sql import Document, Items, PreparedStatement, any_of, texts
from edgefront.core.store.tables import (
    Candidate,
    Device,
    Event,
    Generation,
    Job,
    Launch,
    Target,
    WorkItem,
)


def find(session: Session, job_id: str) -> Job | None:
    return session.get(Job, job_id)


def find_by_key(session: Session, owner: str, idempotency_key: str) -> Job | None:
    return session.scalar(select(Job).where(Job.owner == owner, Job.idempotency_key == idempotency_key))


def targets(session: Session, job_ids: Sequence[str]) -> list[Target]:
    """Returns the targets of these jobs in the order of their positions."""
    return list(session.scalars(select(Target).where(any_of(Target.job_id, job_ids)).order_by(Target.position)))


_OWNERS = PreparedStatement(
    select(Target.id, Job.owner).join(Job, Job.id == Target.job_id).where(any_of(Target.id, texts("targets")))
)


def owners_of(session: Session, target_ids: Collection[str]) -> dict[str, str]:
    """Target id → owner of the target's job, for existing targets."""
    return dict(_OWNERS.run(session, {"targets": list(target_ids)}))


def lock_target(session: Session, target_id: str) -> Target | None:
    query = select(Target).where(Target.id == target_id).with_for_update(key_share=True)
    return session.scalar(query.execution_options(populate_existing=True))


def lock_targets(session: Session, job_id: str) -> list[Target]:
    """Locks all targets of a job in the order of their ids; returns them in the order of their positions."""
    query = select(Target).where(Target.job_id == job_id).order_by(Target.id).with_for_update(key_share=True)
    return sorted(session.scalars(query.execution_options(populate_existing=True)), key=lambda target: target.position)


def lock_job(session: Session, job_id: str) -> Job | None:
    query = select(Job).where(Job.id == job_id).with_for_update(key_share=True)
    return session.scalar(query.execution_options(populate_existing=True))


def remove(session: Session, job_id: str) -> None:
    """Deletes the job; the database also deletes the job's targets, candidates, generations and events."""
    session.execute(delete(Job).where(Job.id == job_id), execution_options={"synchronize_session": False})
    session.expire_all()


def target_states(session: Session, job_id: str) -> dict[str, str]:
    """Target id → state, as committed or changed by this session. The caller must hold the job's lock."""
    return dict(session.execute(select(Target.id, Target.state).where(Target.job_id == job_id)).all())


def add_generation(session: Session, target_id: str, number: int, snapshot: Items, now: datetime) -> Generation:
    row = Generation(target_id=target_id, number=number, snapshot=snapshot, created_at=now)
    session.add(row)
    session.flush()
    return row


def find_generation(session: Session, target_id: str, number: int) -> Generation | None:
    query = select(Generation).where(Generation.target_id == target_id, Generation.number == number)
    return session.scalar(query.execution_options(populate_existing=True))


def remove_generation(session: Session, generation_id: str | None) -> None:
    session.execute(
        delete(Generation).where(Generation.id == generation_id), execution_options={"synchronize_session": False}
    )


def snapshots(session: Session, target_id: str, up_to: int) -> list[Items]:
    """Returns the stored snapshots of generations 0 to `up_to`, in order."""
    query = select(Generation.snapshot).where(Generation.target_id == target_id, Generation.number <= up_to)
    return list(session.scalars(query.order_by(Generation.number)))


def last_event_of_kind(session: Session, job_id: str, kind: JobEventKind) -> Event | None:
    return session.scalar(
        select(Event).where(Event.job_id == job_id, Event.kind == kind).order_by(Event.number.desc()).limit(1)
    )


_active = (
    select(Target.id)
    .join(Job, Job.id == Target.job_id)
    .where(Job.state == JobState.RUNNING, Target.state.in_(ACTIVE_TARGETS))
)


def idle_targets(session: Session) -> list[str]:
    """Returns active targets of running jobs that wait neither for a launch nor for a worker.

    For such a target, either the task of the next search step was lost, or launches are missing.
    """
    waiting = (Candidate.target_id == Target.id) & (Candidate.state == CandidateState.WAITING)
    baseline = (
        (Target.state == TargetState.BASELINES)
        & (Candidate.target_id == Target.id)
        & (Candidate.role == CandidateRole.BASELINE)
    )
    live = (
        select(Candidate.target_id)
        .join(Launch, Launch.measurement_id == Candidate.measurement_id)
        .where(Launch.state.in_(LIVE_LAUNCHES))
    )
    refined = select(Launch.id).where(Launch.target_id == Target.id, Launch.state.in_(LIVE_LAUNCHES))
    idle = _active.where(
        ~live.where(waiting).exists(),
        ~live.where(baseline).exists(),
        ~((Target.state == TargetState.REFINING) & refined.exists()),
        ~_has_work(),
    )
    return list(session.scalars(idle))


def unfinished_targets(session: Session) -> list[str]:
    """Returns active targets of running jobs with a partly stored generation that no worker is storing."""
    last = (Generation.target_id == Target.id) & (Generation.number == Target.generation)
    unfinished = _active.join(Generation, last).where(Generation.stored < Generation.proposals, ~_has_work())
    return list(session.scalars(unfinished))


def _has_work() -> ColumnElement[bool]:
    """Whether a search step of the target is requested or in progress."""
    steps = (WorkKind.ADVANCE, WorkKind.SEARCH)
    return select(WorkItem.subject).where(WorkItem.subject == Target.id, WorkItem.kind.in_(steps)).exists()


def active_targets(session: Session) -> list[tuple[Target, Job]]:
    """Returns active targets of running jobs, each with its job."""
    return [(target, job) for target, job in session.execute(_active.with_only_columns(Target, Job))]


def first_start(session: Session, target: Target) -> datetime | None:
    """Returns the start of the job's first started target on this device key; None if no target has started there."""
    others = select(func.min(Target.started_at)).where(
        Target.job_id == target.job_id, Target.device_key == target.device_key, Target.id != target.id
    )
    return min((at for at in (target.started_at, session.scalar(others)) if at is not None), default=None)


def first_starts(session: Session, job_ids: Collection[str]) -> dict[tuple[str, str], datetime]:
    """(Job id, device key) → start of the job's first started target on this device key, for started targets."""
    rows = session.execute(
        select(Target.job_id, Target.device_key, func.min(Target.started_at))
        .where(any_of(Target.job_id, job_ids), Target.started_at.is_not(None))
        .group_by(Target.job_id, Target.device_key)
    )
    return {(job_id, device_key): began for job_id, device_key, began in rows if began is not None}


def _devices(
    session: Session, device_keys: Sequence[str], columns: Sequence[Any], *conditions: ColumnElement[bool]
) -> dict[str, list[Any]]:
    """Device key → rows with `columns` of the key's devices that meet `conditions`, in the order of device ids."""
    ids, classes = ids_and_classes(device_keys)
    matches = or_(any_of(Device.id, ids), any_of(Device.device_class, classes))
    query = select(Device.id, Device.device_class, *columns).where(matches, *conditions).order_by(Device.id)
    by_key: dict[str, list[Any]] = {key: [] for key in device_keys}
    for row in session.execute(query):
        for key in (key_of_device(row.id), key_of_class(row.device_class)):
            if key in by_key:
                by_key[key].append(row)
    return by_key


def _seen(since: datetime) -> tuple[ColumnElement[bool], ...]:
    return Device.state == DeviceState.ACTIVE, Device.quarantine.is_(None), Device.last_seen_at >= since


def devices_seen(session: Session, device_keys: Sequence[str], since: datetime) -> dict[str, int]:
    """Device key → number of active devices outside quarantine that were seen since `since`."""
    return {key: len(rows) for key, rows in _devices(session, device_keys, (), *_seen(since)).items()}


def facts_seen(
    session: Session, device_keys: Sequence[str], since: datetime
) -> dict[str, list[tuple[Document, str | None]]]:
    """Device key → facts and conditions of the devices that `devices_seen` counts."""
    found = _devices(session, device_keys, (Device.facts, Device.conditions), *_seen(since))
    return {key: [(row.facts, row.conditions) for row in rows] for key, rows in found.items()}


def blocked_devices(session: Session, device_keys: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Device key → (name, what blocks it: `in quarantine`, `draining` or `revoked`) of a device that gets no launches,
    if there is one. Of a class, a revoked device blocks nothing.
    """
    is_blocked = or_(Device.quarantine.is_not(None), Device.state.in_((DeviceState.DRAINING, DeviceState.REVOKED)))
    blocked = {}
    for key, rows in _devices(session, device_keys, (Device.name, Device.quarantine, Device.state), is_blocked).items():
        for row in rows:
            is_revoked = row.state == DeviceState.REVOKED
            if key == key_of_device(row.id) or not is_revoked:
                blocked[key] = row.name, "revoked" if is_revoked else "in quarantine" if row.quarantine else "draining"
                break
    return blocked


def devices_of(session: Session, device_key: str) -> list[Device]:
    """Returns the devices of a device key, except revoked devices."""
    kind, name = parsed(device_key)
    column = Device.id if kind == "device" else Device.device_class
    query = select(Device).where(column == name, Device.state != DeviceState.REVOKED)
    return list(session.scalars(query.order_by(Device.id)))


def device_classes(session: Session) -> list[str]:
    """Returns the device classes with at least one device that is not revoked."""
    query = select(Device.device_class).where(Device.state != DeviceState.REVOKED).distinct()
    return list(session.scalars(query.order_by(Device.device_class)))
