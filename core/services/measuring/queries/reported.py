"""Queries on reports: which launches they are on, what was measured, by which device, and with which results."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import NamedTuple

import orjson
from sqlalchemy import Integer, bindparam, case, func, select, type_coerce, update
from sqlalchemy.orm import Session, aliased

from edgefront.core.common.states import ACTIVE_TARGETS, LIVE_JOBS, JobState, LaunchState, Purpose, TargetState
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.services.stored import read_protocol
from edgefront.core.store.clock import MAX_TTL, over
from edgefront.core.store.sql import Document, Parsed, Prepared, any_of, columns, fetch, json_text, texts
from edgefront.core.store.tables import Candidate, Device, Job, Launch, Lease, Measurement, Target
from edgefront.core.store.tables.measurement import REPORTED

RESULT = type_coerce(Launch.result, Parsed(LaunchResult)).label("result")
"""The result of a launch as a query reads it."""


class LaunchForReport(NamedTuple):
    """What the decision on a report and its receipt need."""

    id: str
    target_id: str | None
    device_key: str
    device_id: str | None
    """The device that holds it, or held it last; None once that has given it back, or was made to."""
    former_device_id: str | None
    purpose: Purpose
    state: LaunchState
    attempts: int
    fence: int
    reports: list[str]
    """Digests of the reports that counted."""
    created_at: datetime
    started_at: datetime | None
    leased_at: datetime | None
    protocol: str
    """JSON."""
    target_state: TargetState | None
    job_state: JobState | None

    @property
    def is_wanted(self) -> bool:
        """Whether its target is active, or its job paused. The service itself needs anchors."""
        if self.purpose == Purpose.ANCHOR:
            return True
        return self.target_state in ACTIVE_TARGETS and self.job_state in LIVE_JOBS


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


_WAITING = (
    select(Launch.id, Launch.measurement_id)
    .where(Launch.state == REPORTED)
    .order_by(Launch.finished_at, Launch.id)
    .limit(bindparam("most", type_=Integer))
)
_WAITING_OF_ONE = Prepared(_WAITING.where(Launch.target_id == bindparam("target")))
_WAITING_OF_NONE = Prepared(_WAITING.where(Launch.target_id.is_(None)))


def waiting(session: Session, target_id: str | None, limit: int) -> dict[str, str]:
    """Launch id → measurement id of reported launches that the target requested (None: a deleted one), oldest first."""
    query, asked = (_WAITING_OF_NONE, {}) if target_id is None else (_WAITING_OF_ONE, {"target": target_id})
    return dict(query.run(session, {**asked, "most": limit}))


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


_LOCK_REPORTED = Prepared(
    select(*[RESULT if column.key == "result" else column for column in columns(Launch, ReportedLaunch)])
    .where(any_of(Launch.id, texts("ids")), Launch.state == REPORTED)
    .order_by(Launch.id)
    .with_for_update(key_share=True)
)


def lock(session: Session, launch_ids: Collection[str]) -> list[ReportedLaunch]:
    """Locks those of these launches whose reports are not processed yet; with their results."""
    return fetch(session, ReportedLaunch, _LOCK_REPORTED, {"ids": list(launch_ids)})


def fail(session: Session, launch_id: str, reason: str) -> bool:
    """Marks the launch as failed if its report is not processed yet; whether it did."""
    statement = (
        update(Launch)
        .where(Launch.id == launch_id, Launch.state == REPORTED)
        .values(state=LaunchState.FAILED, reason=reason, busy_s=0.0)
        .returning(Launch.id)
    )
    return session.scalar(statement, execution_options={"synchronize_session": False}) is not None


def unprocessed_targets(session: Session, before: datetime) -> list[str | None]:
    """Targets that requested launches whose reports, from before then, are not processed; None for deleted targets."""
    is_late = over(Launch.finished_at, before, MAX_TTL)
    return list(session.scalars(select(Launch.target_id).where(Launch.state == REPORTED, is_late).distinct()))


_other = aliased(Candidate)
_OF_ONE = select(func.min(_other.id)).where(_other.measurement_id == Measurement.id).scalar_subquery()
_SUBJECTS = Prepared(
    select(
        Measurement.id,
        json_text(Measurement.architecture).label("architecture_json"),
        Measurement.architecture["source"].as_string().is_not(None).label("translates"),
        json_text(Measurement.protocol).label("protocol_json"),
        Measurement.protocol["provider"].as_string().label("provider"),
        Candidate.flops,
        Candidate.weight_bytes,
        Candidate.decoder_parameters,
        Candidate.total_parameters,
    )
    .outerjoin(Candidate, Candidate.id == _OF_ONE)
    .where(any_of(Measurement.id, texts("ids")))
)


class Subject(NamedTuple):
    """What was measured; costs are those of its first candidate, None without one."""

    id: str
    architecture_json: str
    translates: bool
    protocol_json: str
    provider: str
    flops: int | None
    weight_bytes: int | None
    decoder_parameters: int | None
    total_parameters: int | None

    @property
    def protocol(self) -> MeasurementProtocol | None:
        """It is None for a form that this release does not have."""
        return read_protocol(self.protocol_json)

    @property
    def architecture(self) -> Document:
        """The canonical description. It is parsed at each call, because few are needed."""
        description: Document = orjson.loads(self.architecture_json)
        return description


def subjects(session: Session, measurement_ids: Collection[str]) -> dict[str, Subject]:
    """Measurement id → what was measured."""
    return {row.id: row for row in fetch(session, Subject, _SUBJECTS, {"ids": list(measurement_ids)})}


class ReportingDevice(NamedTuple):
    """A device that has reported."""

    id: str
    facts: Document
    failing: list[str] | None


_REPORTING = Prepared(select(Device.id, Device.facts, Device.failing).where(any_of(Device.id, texts("ids"))))


def devices(session: Session, device_ids: Collection[str]) -> dict[str, ReportingDevice]:
    """Device id → device."""
    return {row.id: row for row in fetch(session, ReportingDevice, _REPORTING, {"ids": list(device_ids)})}


_DONE = Prepared(
    select(Launch.measurement_id, Launch.id, case((any_of(Launch.id, texts("known")), None), else_=Launch.result))
    .where(any_of(Launch.measurement_id, texts("ids")), Launch.state == LaunchState.DONE)
    .order_by(Launch.finished_at, Launch.id)
)


def done_results(
    session: Session, measurement_ids: Collection[str], results: Mapping[str, LaunchResult]
) -> dict[str, list[LaunchResult]]:
    """Measurement id → results of its done launches, oldest first. `results`: by launch id, those read before."""
    by_measurement: dict[str, list[LaunchResult]] = {}
    if measurement_ids:
        for measurement_id, id_, stored in _DONE.run(session, {"ids": list(measurement_ids), "known": list(results)}):
            result = results[id_] if stored is None else LaunchResult.model_validate(stored)
            by_measurement.setdefault(measurement_id, []).append(result)
    return by_measurement
