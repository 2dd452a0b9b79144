"""Queries on reported launches: what was measured, by which device, and with which results."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import NamedTuple

import orjson
from sqlalchemy import case, func, insert, select
from sqlalchemy.orm import Session, aliased

from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.services.stored import read_protocol
from edgefront.core.states import LaunchState, Purpose
from edgefront.core.store.sql import Document, Prepared, any_of, fetch, json_text, texts
from edgefront.core.store.tables import Candidate, Device, Launch, Measurement, random_ids

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


class _DoneLaunch(NamedTuple):
    measurement_id: str
    id: str
    result: Document | None


_DONE = Prepared(
    select(
        Launch.measurement_id,
        Launch.id,
        case((any_of(Launch.id, texts("known")), None), else_=Launch.result).label("result"),
    )
    .where(any_of(Launch.measurement_id, texts("ids")), Launch.state == LaunchState.DONE)
    .order_by(Launch.finished_at, Launch.id)
)


def done_results(
    session: Session, measurement_ids: Collection[str], results: Mapping[str, LaunchResult]
) -> dict[str, list[LaunchResult]]:
    """Measurement id → results of its done launches, oldest first. `results`: by launch id, those read before."""
    by_measurement: dict[str, list[LaunchResult]] = {}
    if measurement_ids:
        asked = {"ids": list(measurement_ids), "known": list(results)}
        for row in fetch(session, _DoneLaunch, _DONE, asked):
            result = results[row.id] if row.result is None else LaunchResult.model_validate(row.result)
            by_measurement.setdefault(row.measurement_id, []).append(result)
    return by_measurement


def add_launch(
    session: Session, measurement_id: str, target_id: str | None, device_key: str, purpose: Purpose, now: datetime
) -> None:
    """One wanted launch, ahead of all that take turns."""
    session.execute(
        insert(Launch).values(
            id=random_ids("lau", 1)[0],
            measurement_id=measurement_id,
            target_id=target_id,
            device_key=device_key,
            state=LaunchState.WANTED,
            purpose=purpose,
            turn=0.0,
            attempts=0,
            fence=0,
            created_at=now,
        )
    )
