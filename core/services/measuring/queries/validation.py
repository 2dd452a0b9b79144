"""Queries on what speaks for and against reported results, and on the devices that reported them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, cast

import orjson
from sqlalchemy import ColumnElement, Table, bindparam, case, func, insert, or_, select, true, update
from sqlalchemy.orm import Session, aliased

from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.services.fleet.device_keys import parsed
from edgefront.core.services.stored import read_protocol
from edgefront.core.states import (
    FINISHED_LAUNCHES,
    LIVE_LAUNCHES,
    CandidateRole,
    CandidateState,
    DeviceState,
    LaunchState,
    MeasurementState,
)
from edgefront.core.store.sql import Document, Prepared, any_of, fetch, json_text, texts, typed
from edgefront.core.store.tables import Candidate, Device, Launch, Measurement, random_ids
from edgefront.core.store.tables.measurement import IMPLAUSIBLE

DISBELIEVED = "implausible: "
"""Begins the reason of a launch that cannot be true, or that other devices contradict."""
NOT_MEASURED = "the device that was to confirm this did not measure it in time"
"""Reason of a launch that says nothing of its model."""
PEERS_READ = 50
"""Other measurements whose speed is looked at: the first by id, so that the same rows give the same answer."""
NEWEST = 1000
"""The latest measurements, among which those of further devices are looked for."""

_other = aliased(Candidate)
_OF_ONE = select(func.min(_other.id)).where(_other.measurement_id == Measurement.id).scalar_subquery()
_BASELINE = (
    select(func.min(_other.id))
    .where(_other.measurement_id == Measurement.id, _other.role == CandidateRole.BASELINE)
    .scalar_subquery()
)
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
        Candidate.predicted,
        _BASELINE.is_not(None).label("is_baseline"),
    )
    .outerjoin(Candidate, Candidate.id == _OF_ONE)
    .where(any_of(Measurement.id, texts("ids")))
)


class Subject(NamedTuple):
    """What was measured; costs and predictions are those of its first candidate, None without one."""

    id: str
    architecture_json: str
    translates: bool
    protocol_json: str
    provider: str
    flops: int | None
    weight_bytes: int | None
    decoder_parameters: int | None
    total_parameters: int | None
    predicted: Document | None
    is_baseline: bool

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
    name: str
    device_class: str
    facts: Document
    drift: dict[str, str] | None
    quarantine: str | None
    failing: list[str] | None


_REPORTING = Prepared(
    select(
        Device.id,
        Device.name,
        Device.device_class,
        Device.facts,
        Device.drift,
        Device.quarantine,
        Device.failing,
    ).where(any_of(Device.id, texts("ids")))
)


def devices(session: Session, device_ids: Collection[str]) -> dict[str, ReportingDevice]:
    """Device id → device."""
    return {row.id: row for row in fetch(session, ReportingDevice, _REPORTING, {"ids": list(device_ids)})}


class Peer(NamedTuple):
    """What another measurement took there."""

    flops: float
    weight_bytes: float
    latency_ms: float
    memory_bytes: float
    times: tuple[float, ...]
    """Time to the first token and that of each further one (ms), if it is a generation."""


_THERE = (
    Measurement.device_key == bindparam("device_key"),
    Measurement.protocol_digest == bindparam("protocol"),
    Measurement.state == MeasurementState.MEASURED,
    ~any_of(Measurement.id, texts("but")),
)
_PEERS = (
    select(
        Candidate.flops,
        Candidate.weight_bytes,
        Measurement.latency_ms,
        Measurement.memory_bytes,
        Measurement.first_token_ms,
        Measurement.token_ms,
    )
    .select_from(Measurement)
    .join(Candidate, Candidate.id == _OF_ONE)
    .where(*_THERE)
    .order_by(Measurement.id)
    .limit(PEERS_READ)
)
_NEWEST = (
    select(Measurement.id)
    .where(*_THERE)
    .order_by(Measurement.measured_at.desc(), Measurement.id)
    .limit(NEWEST)
    .subquery()
)
_PEERS_OF_OTHERS = _PEERS.where(
    Measurement.id.in_(select(_NEWEST.c.id)),
    select(Launch.id)
    .join(Device, Device.id == Launch.device_id)
    .where(
        Launch.measurement_id == Measurement.id,
        Launch.state == LaunchState.DONE,
        ~any_of(Launch.device_id, texts("but_devices")),
        Device.quarantine.is_(None),
    )
    .exists(),
)


def peers(
    session: Session, device_key: str, protocol_digest: str, but: Collection[str], but_devices: Collection[str] = ()
) -> list[Peer]:
    """Measurements there that are believed, without the ones named; if devices are, only what a further one that is not
    in quarantine measured too.
    """
    values = {"device_key": device_key, "protocol": protocol_digest, "but": list(but)}
    query = _PEERS
    if but_devices:
        query, values["but_devices"] = _PEERS_OF_OTHERS, list(but_devices)
    believed = []
    for *sizes, first_token_ms, token_ms in session.execute(query, values):
        figures = [float(size) for size in sizes if size is not None]
        if len(figures) == len(sizes):
            times = () if first_token_ms is None or token_ms is None else (first_token_ms, token_ms)
            flops, weight_bytes, latency_ms, memory_bytes = figures
            believed.append(Peer(flops, weight_bytes, latency_ms, memory_bytes, times))
    return believed


class DoneLaunch(NamedTuple):
    """A launch of a measurement with its result."""

    measurement_id: str
    id: str
    device_id: str
    result: LaunchResult
    in_quarantine: bool
    """Whether its device is."""


_DONE = Prepared(
    select(
        Launch.measurement_id,
        Launch.id,
        Launch.device_id,
        case((any_of(Launch.id, texts("known")), None), else_=Launch.result).label("result"),
        Device.quarantine.is_not(None).label("in_quarantine"),
    )
    .outerjoin(Device, Device.id == Launch.device_id)
    .where(any_of(Launch.measurement_id, texts("ids")), Launch.state == LaunchState.DONE)
    .order_by(Launch.finished_at, Launch.id)
)


def done_launches(
    session: Session, measurement_ids: Collection[str], results: Mapping[str, LaunchResult] | None = None
) -> dict[str, list[DoneLaunch]]:
    """Measurement id → its done launches, oldest first. `results`: launch id → result of those read before."""
    by_measurement: dict[str, list[DoneLaunch]] = {}
    results = results or {}
    if measurement_ids:
        asked = {"ids": list(measurement_ids), "known": list(results)}
        for row in fetch(session, DoneLaunch, _DONE, asked):
            result = results[row.id] if row.result is None else LaunchResult.model_validate(row.result)
            by_measurement.setdefault(row.measurement_id, []).append(row._replace(result=result))
    return by_measurement


def makers(session: Session, measurement_ids: Collection[str]) -> dict[str, set[str]]:
    """Measurement id → devices that are not in quarantine of which a launch of it counts."""
    return _trusted_devices(session, measurement_ids, Launch.state == LaunchState.DONE)


def ended_badly(session: Session, measurement_ids: Collection[str]) -> dict[str, set[str]]:
    """Measurement id → devices that are not in quarantine on which a launch of it was infeasible or failed."""
    return _trusted_devices(
        session,
        measurement_ids,
        Launch.state.in_((LaunchState.INFEASIBLE, LaunchState.FAILED)),
        or_(Launch.reason.is_(None), Launch.reason != NOT_MEASURED),
    )


def _trusted_devices(
    session: Session, measurement_ids: Collection[str], *conditions: ColumnElement[bool]
) -> dict[str, set[str]]:
    """Measurement id → devices that are not in quarantine and have a launch of it that meets the conditions."""
    query = (
        select(Launch.measurement_id, Device.id)
        .join(Device, Device.id == Launch.device_id)
        .where(any_of(Launch.measurement_id, measurement_ids), Device.quarantine.is_(None), *conditions)
    )
    devices_of: dict[str, set[str]] = {}
    for measurement_id, device_id in session.execute(query):
        devices_of.setdefault(measurement_id, set()).add(device_id)
    return devices_of


def members(session: Session, target_id: str) -> list[str]:
    """Measurements of the target's frontier points and baselines."""
    query = select(Candidate.measurement_id).where(
        Candidate.target_id == target_id,
        Candidate.state == CandidateState.MEASURED,
        Candidate.measurement_id.is_not(None),
        or_(Candidate.on_frontier == true(), Candidate.role == CandidateRole.BASELINE),
    )
    return list(dict.fromkeys(str(id_) for id_ in session.scalars(query.order_by(Candidate.number))))


def set_aside(session: Session, launch_id: str, reason: str) -> None:
    """Marks a done launch as implausible: it stays, and counts for nothing."""
    session.execute(
        update(Launch).where(Launch.id == launch_id).values(state=LaunchState.IMPLAUSIBLE, reason=reason),
        execution_options={"synchronize_session": False},
    )


def tried_on(session: Session, measurement_ids: Collection[str]) -> dict[str, dict[str, datetime]]:
    """Measurement id → devices that have finished a launch of it, with or without a result → when they enrolled."""
    query = (
        select(Launch.measurement_id, Device.id, Device.enrolled_at)
        .join(Launch, Launch.device_id == Device.id)
        .where(any_of(Launch.measurement_id, measurement_ids), Launch.state.in_(FINISHED_LAUNCHES))
    )
    tried: dict[str, dict[str, datetime]] = {id_: {} for id_ in measurement_ids}
    for measurement_id, device_id, enrolled_at in session.execute(query):
        tried[measurement_id][device_id] = enrolled_at
    return tried


def waited_for(session: Session, measurement_ids: Collection[str]) -> dict[str, int]:
    """Measurement id → how many devices were asked for a launch of it and did not make it in time."""
    query = (
        select(Launch.measurement_id, func.count(Launch.device_id.distinct()))
        .where(any_of(Launch.measurement_id, measurement_ids), Launch.reason == NOT_MEASURED)
        .group_by(Launch.measurement_id)
    )
    return {row[0]: row[1] for row in session.execute(query)}


def count_disbelieved(session: Session, device_id: str, since: datetime) -> int:
    """Launches of a device that cannot be true, or that others contradict, since then and since it was last trusted."""
    last = session.scalar(select(Device.trusted_at).where(Device.id == device_id))
    query = select(func.count()).where(
        Launch.device_id == device_id,
        Launch.state == IMPLAUSIBLE,
        Launch.reason.startswith(DISBELIEVED),
        Launch.finished_at > (since if last is None else max(since, last)),
    )
    return int(session.scalar(query) or 0)


class AbleDevice(NamedTuple):
    """A device that could measure now."""

    id: str
    facts: Document
    last_seen_at: datetime
    reported_at: datetime | None


def able_devices(session: Session, device_key: str, seen_since: datetime) -> Sequence[AbleDevice]:
    """Devices of a class that could measure now, those that had a result last first. Empty for the key of one
    device.
    """
    kind, name = parsed(device_key)
    return () if kind == "device" else _able(session, seen_since, Device.device_class == name)


def able_among(session: Session, device_ids: Collection[str], seen_since: datetime) -> dict[str, Document]:
    """Id → facts of those of these devices that could measure now."""
    return {row.id: row.facts for row in _able(session, seen_since, any_of(Device.id, device_ids))}


def _able(session: Session, seen_since: datetime, *conditions: ColumnElement[bool]) -> list[AbleDevice]:
    query = select(Device.id, Device.facts, Device.last_seen_at, Device.reported_at).where(
        *conditions, Device.state == DeviceState.ACTIVE, Device.quarantine.is_(None), Device.last_seen_at > seen_since
    )
    return typed(AbleDevice, session.execute(query.order_by(Device.reported_at.desc().nulls_last(), Device.id)))


def count_of(session: Session, measurement_id: str, *conditions: ColumnElement[bool]) -> int:
    """How many launches of the measurement meet the conditions."""
    query = select(func.count()).where(Launch.measurement_id == measurement_id, *conditions)
    return int(session.scalar(query) or 0)


def has_live(session: Session, measurement_id: str) -> bool:
    return count_of(session, measurement_id, Launch.state.in_(LIVE_LAUNCHES)) > 0


def add_launch(
    session: Session, measurement_id: str, target_id: str | None, device_key: str, purpose: str, now: datetime
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


_DEVICES = cast(Table, Device.__table__)
_AUDITED = (
    update(_DEVICES)
    .where(_DEVICES.c.id == bindparam("device"))
    .values(audits=_DEVICES.c.audits + bindparam("made"), audits_held=_DEVICES.c.audits_held + bindparam("held"))
)


def audited(session: Session, device_id: str, made: int, held: int) -> None:
    """Counts further launches of what was measured before, and those of them within the interval known before."""
    session.execute(_AUDITED, {"device": device_id, "made": made, "held": held})


def quarantine(session: Session, device_id: str, reason: str) -> bool:
    """Puts the device into quarantine unless it is in already; whether it did."""
    statement = (
        update(_DEVICES)
        .where(_DEVICES.c.id == device_id, _DEVICES.c.quarantine.is_(None))
        .values(quarantine=reason)
        .returning(_DEVICES.c.id)
    )
    return session.scalar(statement) is not None


def lock_devices(session: Session, device_ids: Collection[str]) -> None:
    """Locks these devices, in the order of their ids."""
    query = select(Device.id).where(any_of(Device.id, device_ids)).order_by(Device.id)
    session.execute(query.with_for_update(key_share=True))


class FailingDevice(NamedTuple):
    """What has failed on a device."""

    device_class: str
    failing: list[str] | None
    quarantine: str | None


def lock_failing(session: Session, device_id: str) -> FailingDevice:
    """Locks one device and reads its failures."""
    query = select(Device.device_class, Device.failing, Device.quarantine).where(Device.id == device_id)
    (row,) = typed(FailingDevice, session.execute(query.with_for_update(key_share=True)))
    return row


def set_failing(session: Session, device_id: str, measurement_ids: Sequence[str]) -> None:
    """Stores the measurements that have failed on a device since one was done there."""
    session.execute(update(_DEVICES).where(_DEVICES.c.id == device_id).values(failing=list(measurement_ids) or None))


def failing_elsewhere(session: Session, device_id: str, device_class: str) -> set[str]:
    """Measurements that have failed on other devices of the class since one was done there."""
    query = select(Device.failing).where(
        Device.device_class == device_class, Device.id != device_id, Device.failing.is_not(None)
    )
    return {measurement_id for failing in session.scalars(query) for measurement_id in failing or ()}


def set_drift(session: Session, device_id: str, drift: Mapping[str, str]) -> None:
    """How the device's anchor has moved, by what it was measured on."""
    session.execute(update(_DEVICES).where(_DEVICES.c.id == device_id).values(drift=dict(drift) or None))
