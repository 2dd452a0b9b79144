"""Queries with which searches request measurements, and add and withdraw launches.

Queries with which devices claim launches and report on them are in `measuring.queries`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Row, and_, case, delete, func, insert, or_, select, update
from sqlalchemy.orm import Session, aliased, defer

from edgefront.core.common.states import (
    ACTIVE_TARGETS,
    LIVE_LAUNCHES,
    CandidateRole,
    CandidateState,
    JobState,
    LaunchState,
    MeasurementState,
    Purpose,
    TargetState,
)
from edgefront.core.services.fleet.device_keys import key_of_class, key_of_device, parsed
from edgefront.core.services.turns import TurnQueue, next_turns
from edgefront.core.store import sql
from edgefront.core.store.sql import Document, PreparedStatement, any_of, texts
from edgefront.core.store.tables import Candidate, Device, Job, Launch, Measurement, Target, new_id, random_ids
from edgefront.core.store.tables.measurement import LEASED, WANTED

NOT_WANTED = "no running job needs this launch any more"


@dataclass(frozen=True)
class Want:
    """Architecture to measure, with the seed of its random weights."""

    digest: str
    architecture: Document
    seed: int


def measurements(
    session: Session, device_key: str, protocol: Document, protocol_digest: str, wants: Iterable[Want]
) -> dict[str, Measurement]:
    """Returns architecture digest → measurement on this device key, and locks the measurements in the order of ids.
    Missing measurements are created in state `wanted`, and failed measurements are requested again, because the failure
    may be due to a broken device.

    The lock keeps reports from being processed before the candidates that refer to the measurement are committed. Rows
    are inserted in the order of digests, so that two targets cannot deadlock.
    """
    by_digest = {want.digest: want for want in wants}
    if not by_digest:
        return {}
    rows = [
        {
            "id": new_id("mea"),
            "digest": want.digest,
            "device_key": device_key,
            "protocol_digest": protocol_digest,
            "protocol": dict(protocol),
            "architecture": want.architecture,
            "seed": want.seed,
            "state": MeasurementState.WANTED,
        }
        for want in sorted(by_digest.values(), key=lambda want: want.digest)
    ]
    seeds = {want.seed for want in by_digest.values()}
    query = (
        select(Measurement)
        .where(
            Measurement.device_key == device_key,
            Measurement.protocol_digest == protocol_digest,
            Measurement.seed.in_(seeds),
            any_of(Measurement.digest, by_digest),
        )
        .order_by(Measurement.id)
        .with_for_update(key_share=True)
        .execution_options(populate_existing=True)
    )
    stored: dict[str, Measurement] = {}
    while len(stored) < len(by_digest):  # repeated if `forget_unmeasured` has removed a measurement meanwhile
        session.execute(sql.upsert(session, Measurement).on_conflict_do_nothing(), rows)
        stored = {row.digest: row for row in session.scalars(query) if row.seed == by_digest[row.digest].seed}
    for row in stored.values():
        if row.state == MeasurementState.FAILED:
            row.state, row.reason = MeasurementState.WANTED, None
    return stored


def unmeasured(session: Session, job_id: str) -> list[str]:
    """Returns the ids of measurements of the job's candidates that have no result yet."""
    query = select(Measurement.id).join(Candidate, Candidate.measurement_id == Measurement.id)
    return list(
        session.scalars(
            query.where(Candidate.job_id == job_id, Measurement.state == MeasurementState.WANTED).distinct()
        )
    )


def forget_unmeasured(session: Session, measurement_ids: Collection[str]) -> None:
    """Deletes these measurements, except measurements that have a result, a candidate or a launch."""
    lock = select(Measurement.id).where(
        any_of(Measurement.id, measurement_ids), Measurement.state == MeasurementState.WANTED
    )
    ids = list(session.scalars(lock.order_by(Measurement.id).with_for_update()))
    if not ids:
        return
    session.execute(
        # A separate statement sees all candidates and launches, because the lock prevents new ones.
        delete(Measurement).where(
            any_of(Measurement.id, ids),
            ~select(Candidate.id).where(Candidate.measurement_id == Measurement.id).exists(),
            ~select(Launch.id).where(Launch.measurement_id == Measurement.id).exists(),
        ),
        execution_options={"synchronize_session": False},
    )


_LOCK = (
    select(Measurement)
    .where(any_of(Measurement.id, texts("ids")))
    .order_by(Measurement.id)
    .with_for_update(key_share=True)
    .options(defer(Measurement.architecture), defer(Measurement.protocol))
    .execution_options(populate_existing=True)
)


def lock(session: Session, measurement_ids: Collection[str]) -> dict[str, Measurement]:
    """Measurement id → measurement, locked in the order of ids. Architecture and protocol are loaded on access."""
    return {row.id: row for row in session.scalars(_LOCK, {"ids": list(measurement_ids)})}


def launch_counts(session: Session, measurement_ids: Collection[str]) -> dict[str, Counter[str]]:
    """Measurement id → number of launches by state."""
    counts: dict[str, Counter[str]] = {id_: Counter() for id_ in measurement_ids}
    rows = session.execute(
        select(Launch.measurement_id, Launch.state, func.count())
        .where(any_of(Launch.measurement_id, measurement_ids))
        .group_by(Launch.measurement_id, Launch.state)
    )
    for measurement_id, state, count in rows:
        counts[measurement_id][state] = count
    return counts


def add_launches(
    session: Session, target: Target, measurement_ids: Collection[str], *, purpose: Purpose, now: datetime
) -> None:
    """Adds a wanted launch per item of `measurement_ids`, which may repeat an id. The target must be locked."""
    number = len(measurement_ids)
    rows = [
        _launch(id_, target.id, target.device_key, purpose, now) | {"id": launch_id, "turn": turn}
        for launch_id, id_, turn in zip(
            random_ids("lau", number), measurement_ids, launch_turns(session, target, number), strict=True
        )
    ]
    if rows:
        session.execute(insert(Launch), rows)


def add_first(
    session: Session, measurement_id: str, target_id: str | None, device_key: str, purpose: Purpose, now: datetime
) -> None:
    """Adds a wanted launch that devices lease before all other launches (turn 0)."""
    row = _launch(measurement_id, target_id, device_key, purpose, now)
    session.execute(insert(Launch), [row | {"id": random_ids("lau", 1)[0]}])


def _launch(measurement_id: str, target_id: str | None, device_key: str, purpose: Purpose, now: datetime) -> Document:
    return {
        "measurement_id": measurement_id,
        "target_id": target_id,
        "device_key": device_key,
        "state": LaunchState.WANTED,
        "purpose": purpose,
        "created_at": now,
    }


def has_live_launch(session: Session, target: Target, purpose: Purpose | None = None) -> bool:
    """Whether a launch that this target requested (for `purpose`, if given) is still wanted, leased or reported."""
    query = select(Launch.id).where(Launch.target_id == target.id, Launch.state.in_(LIVE_LAUNCHES))
    if purpose is not None:
        query = query.where(Launch.purpose == purpose)
    return bool(session.scalar(select(query.exists())))


def live_launches(session: Session, target_ids: Collection[str]) -> dict[str, tuple[int, datetime | None]]:
    """Target id → number of launches that are still wanted, leased or reported, and start of the first that runs, for
    targets with such launches.
    """
    started = func.min(case((Launch.state == LaunchState.LEASED, Launch.started_at)))
    query = select(Launch.target_id, func.count(), started).where(
        any_of(Launch.target_id, target_ids), Launch.state.in_(LIVE_LAUNCHES)
    )
    return {str(id_): (count, start) for id_, count, start in session.execute(query.group_by(Launch.target_id))}


def finished_before(session: Session, target: Target, launches: int) -> datetime | None:
    """Returns the finish time of the launch before the target's latest `launches` ones; None if there is none."""
    query = select(Launch.finished_at).where(Launch.target_id == target.id, Launch.finished_at.is_not(None))
    return session.scalar(query.order_by(Launch.finished_at.desc()).offset(launches).limit(1))


def needed(*conditions: Callable[[type[Candidate]], ColumnElement[bool]]) -> ColumnElement[bool]:
    """Condition that an active target of a running job needs a launch, because the target waits for the measurement,
    has requested the launch, or has the measurement as a baseline that needs further launches. `conditions` restrict
    the target's candidate.
    """
    candidate, target, job = aliased(Candidate), aliased(Target), aliased(Job)
    return (
        select(candidate.id)
        .join(target, target.id == candidate.target_id)
        .join(job, job.id == target.job_id)
        .where(
            candidate.measurement_id == Launch.measurement_id,
            *(condition(candidate) for condition in conditions),
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


def withdraw(
    session: Session, target_ids: Collection[str], now: datetime
) -> Sequence[Row[str, str | None, Purpose, int]]:
    """Withdraws launches that only these targets need and that no device has started. Leased launches are cancelled.
    Other launches are deleted, so repeated requests and withdrawals leave no rows. Returns the rows (id, target_id,
    purpose, fence) of the withdrawn launches.

    Must be called before the candidates change their state, with the targets locked.
    """
    wanted_by_us = select(Candidate.id).where(
        Candidate.target_id.in_(target_ids), Candidate.measurement_id == Launch.measurement_id
    )
    query = (
        select(Launch.id, Launch.target_id, Launch.purpose, Launch.fence)
        .where(
            or_(
                Launch.state == LaunchState.WANTED,
                and_(Launch.state == LaunchState.LEASED, Launch.started_at.is_(None)),
            ),
            wanted_by_us.exists(),
            ~needed(lambda candidate: candidate.target_id.not_in(target_ids)),
        )
        .order_by(Launch.id)
        .with_for_update(key_share=True)
    )
    rows = session.execute(query).all()
    leased = [row.id for row in rows if row.fence]
    if leased:
        session.execute(
            update(Launch)
            .where(any_of(Launch.id, leased))
            .values(state=LaunchState.CANCELLED, finished_at=now, reason=NOT_WANTED),
            execution_options={"synchronize_session": "fetch"},
        )
    remove_launches(session, [row.id for row in rows if not row.fence])
    return rows


def remove_launches(session: Session, launch_ids: Collection[str]) -> None:
    if launch_ids:
        session.execute(
            delete(Launch).where(any_of(Launch.id, launch_ids)), execution_options={"synchronize_session": "fetch"}
        )


_MARKED = PreparedStatement(
    select(Launch.measurement_id).where(
        any_of(Launch.measurement_id, texts("ids")), Launch.state == LaunchState.DONE, Launch.mark.is_not(None)
    )
)


def marked(session: Session, measurement_ids: Collection[str]) -> set[str]:
    """Returns the ids among `measurement_ids` of measurements with a valid but flagged launch."""
    return {row[0] for row in _MARKED.run(session, {"ids": list(measurement_ids)})} if measurement_ids else set()


def launches_of(session: Session, measurement_id: str) -> list[Launch]:
    """Returns all launches of a measurement, oldest first."""
    return list(
        session.scalars(
            select(Launch).where(Launch.measurement_id == measurement_id).order_by(Launch.created_at, Launch.id)
        )
    )


def launch_turns(session: Session, target: Target, count: int) -> list[float]:
    """Returns rising turns for `count` launches that the target requests. The target must be locked."""
    if not count:
        return []
    kind, name = parsed(target.device_key)
    if kind == "device":
        name = session.scalar(select(Device.device_class).where(Device.id == name)) or ""
    devices = session.scalars(select(Device.id).where(Device.device_class == name))
    in_queue = any_of(Launch.device_key, [target.device_key, key_of_class(name), *map(key_of_device, devices)])
    owner = select(Job.owner).where(Job.id == target.job_id).scalar_subquery()
    owned = Launch.target_id.in_(select(Target.id).join(Job, Job.id == Target.job_id).where(Job.owner == owner))
    queue = TurnQueue(
        Launch,
        waiting=(Launch.state == WANTED, in_queue, Launch.turn > 0),
        served=(Launch.state == LEASED, in_queue),
    )
    return next_turns(session, queue, owned, count)
