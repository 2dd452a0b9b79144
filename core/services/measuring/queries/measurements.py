"""Queries on measurements: targets that wait for results, launch variance by device, and evidence on reports."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Select,
    func,
    select,
)
from sqlalchemy.orm import Session, aliased, defer

from edgefront.core.common.states import (
    ACTIVE_TARGETS,
    LIVE_JOBS,
    CandidateState,
    LaunchState,
)
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.measurement.statistics import DECISIVE, LaunchVariance, LogLaunches
from edgefront.core.services.jobs.queries.candidates import COPIED
from edgefront.core.services.measuring.queries.launches import RESULT, LaunchRow
from edgefront.core.store.sql import Document, PreparedStatement, any_of, fetch, texts, write_back
from edgefront.core.store.tables import Candidate, Device, Job, Launch, Measurement, Target

_FOUND = ("state", "reason", "log_m2", *COPIED)
_PROGRESS = (
    "settled",
    "launches_done",
    "busy_s",
    "measuring_s",
    "started_at",
    "frontier_size",
    "hypervolume",
)


MAX_POOLED = 1000
"""Maximum number of measurements, by id, over which the launch variance is pooled; more would hardly change it."""

# Statements of the hot paths are built once, because SQLAlchemy builds a statement several times as long as it runs.
_KEY = (Measurement.device_key, Measurement.protocol_digest)
_NUMBERED = (
    select(
        *_KEY,
        Measurement.launches,
        Measurement.log_m2,
        Measurement.waited_share,
        func.row_number().over(partition_by=_KEY, order_by=Measurement.id).label("number"),
    )
    .where(
        any_of(Measurement.device_key, texts("device_keys")),
        any_of(Measurement.protocol_digest, texts("protocols")),
        Measurement.launches > 1,
    )
    .subquery()
)
_POOLED = PreparedStatement(select(_NUMBERED).where(_NUMBERED.c.number <= MAX_POOLED))

SAME_TIME = timedelta(minutes=10)
"""Launches within this time of each other are compared as launches of one time."""

MeasurementKey = tuple[str, str]
"""Device key and digest of a protocol."""


def launch_variance(session: Session, device_key: str, protocol_digest: str) -> LaunchVariance:
    """Returns the variance between launches, pooled over the device's measurements with at least two launches."""
    key = (device_key, protocol_digest)
    return launch_variances(session, [key])[key]


def launch_variances(session: Session, keys: Collection[MeasurementKey]) -> dict[MeasurementKey, LaunchVariance]:
    """Returns (device key, protocol digest) → the result of `launch_variance`."""
    device_keys, protocols = ({key[part] for key in keys} for part in (0, 1))
    pools: dict[MeasurementKey, list[LogLaunches]] = {key: [] for key in keys}
    asked = {"device_keys": sorted(device_keys), "protocols": sorted(protocols)}
    for device_key, protocol, launches, log_m2, waited, _ in _POOLED.run(session, asked):
        if (device_key, protocol) in pools:
            pools[device_key, protocol].append(LogLaunches(launches, float(log_m2 or 0.0), waited or 0.0))
    return {key: LaunchVariance.pooled(each) for key, each in pools.items()}


def _live_targets(condition: ColumnElement[bool]) -> Select[Target, Job]:
    return (
        select(Target, Job)
        .join(Job, Job.id == Target.job_id)
        .where(
            Target.id.in_(select(Candidate.target_id).where(condition)),
            Target.state.in_(ACTIVE_TARGETS),
            Job.state.in_(LIVE_JOBS),
        )
        .order_by(Target.id)
        .with_for_update(of=Target, key_share=True)
        .execution_options(populate_existing=True)
    )


_LIVE_TARGETS = _live_targets(any_of(Candidate.measurement_id, texts("ids")))


def lock_live_targets(session: Session, measurement_ids: Collection[str]) -> list[tuple[Target, Job]]:
    """Locks and returns the live targets that have a candidate with one of these measurements, in the order of ids.

    Each target is returned with its job, which is not locked: only constant columns of the job may be used. A target is
    live if it has not ended and its job is running or paused (launches that ran at the pause count).
    """
    if not measurement_ids:
        return []
    return [(target, job) for target, job in session.execute(_LIVE_TARGETS, {"ids": list(measurement_ids)})]


def write(session: Session, measurements: Sequence[Measurement]) -> None:
    """Writes the columns of these measurements that result processing changes."""
    write_back(session, measurements, _FOUND)


def write_targets(session: Session, targets: Sequence[Target]) -> None:
    """Writes the columns of these targets that result processing changes."""
    write_back(session, targets, _PROGRESS)


def lock_jobs(session: Session, job_ids: Collection[str]) -> None:
    query = select(Job.id).where(any_of(Job.id, job_ids)).order_by(Job.id).with_for_update(key_share=True)
    session.execute(query)


_CANDIDATES_OF = (
    select(Candidate)
    .join(Target, Target.id == Candidate.target_id)
    .join(Job, Job.id == Candidate.job_id)
    .where(
        any_of(Candidate.measurement_id, texts("ids")),
        Candidate.state != CandidateState.CANCELLED,
        Target.state.in_(ACTIVE_TARGETS),
        Job.state.in_(LIVE_JOBS),
    )
    .order_by(Candidate.target_id, Candidate.number)
    .options(defer(Candidate.genome), defer(Candidate.architecture))
)


def candidates_of(session: Session, measurement_ids: Collection[str]) -> Sequence[Candidate]:
    """Returns candidates of live targets with these measurements. Within each target the order is that of proposal."""
    return session.scalars(_CANDIDATES_OF, {"ids": list(measurement_ids)}).all()


_other = aliased(Candidate)
_OF_ONE = select(func.min(_other.id)).where(_other.measurement_id == Measurement.id).scalar_subquery()
_COSTS = PreparedStatement(
    select(
        Measurement.id,
        Measurement.architecture["source"].as_string().is_not(None).label("translates"),
        Candidate.flops,
        Candidate.weight_bytes,
        Candidate.decoder_parameters,
        Candidate.total_parameters,
    )
    .outerjoin(Candidate, Candidate.id == _OF_ONE)
    .where(any_of(Measurement.id, texts("ids")))
)


class MeasuredCosts(NamedTuple):
    """Computational costs of a measured architecture, from its first candidate; all None if there is no candidate."""

    id: str
    translates: bool
    flops: int | None
    weight_bytes: int | None
    decoder_parameters: int | None
    total_parameters: int | None


def costs(session: Session, measurement_ids: Collection[str]) -> dict[str, MeasuredCosts]:
    """Returns measurement id → computational costs of the measurement's architecture."""
    return {row.id: row for row in fetch(session, MeasuredCosts, _COSTS, {"ids": list(measurement_ids)})}


class ReportingDevice(NamedTuple):
    """A device that has reported launches: the facts that its agent reports, and its failed measurements."""

    id: str
    facts: Document
    failing: list[str] | None


_REPORTING = PreparedStatement(select(Device.id, Device.facts, Device.failing).where(any_of(Device.id, texts("ids"))))


def reporting_devices(session: Session, device_ids: Collection[str]) -> dict[str, ReportingDevice]:
    """Returns device id → device's facts and failed measurements."""
    return {row.id: row for row in fetch(session, ReportingDevice, _REPORTING, {"ids": list(device_ids)})}


_DONE = PreparedStatement(
    select(Launch.measurement_id, Launch.finished_at, Launch.id, RESULT)
    .where(any_of(Launch.measurement_id, texts("ids")), Launch.state == LaunchState.DONE)
    .order_by(Launch.finished_at, Launch.id)
)


def done_results(session: Session, rows: Sequence[LaunchRow]) -> dict[str, list[LaunchResult]]:
    """Returns measurement id → results of its done launches and of `rows` (launches that become done), oldest first.

    If at least two of them finished within `SAME_TIME` of the latest, only these count: the device may have been busier
    before.
    """
    found: dict[str, list[tuple[Any, ...]]] = {row.measurement_id: [] for row in rows}
    if found:
        for measurement_id, *launch in _DONE.run(session, {"ids": list(found)}):
            found[measurement_id].append(tuple(launch))
    for row in rows:
        found[row.measurement_id].append((row.reported_at, row.id, row.result))
    return {id_: _of_one_time(sorted(launches)) for id_, launches in found.items()}


def _of_one_time(launches: Sequence[tuple[Any, ...]]) -> list[LaunchResult]:
    latest = launches[-1][0] - SAME_TIME
    recent = [result for finished_at, _, result in launches if finished_at >= latest]
    return recent if len(recent) >= DECISIVE else [result for *_, result in launches]
