"""Devices that were caught, or fail at whatever they are given: they get no launches until their owner or an admin
trusts them again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from edgefront.core.services.fleet.capability import can_run
from edgefront.core.services.fleet.device_keys import DEVICE, parsed
from edgefront.core.services.fleet.online import ONLINE
from edgefront.core.services.measuring import release_leases
from edgefront.core.services.measuring.queries import validation
from edgefront.core.services.measuring.queries.launches import ReportedLaunch
from edgefront.core.services.measuring.queries.validation import ReportingDevice
from edgefront.core.services.stored import PROTOCOL
from edgefront.core.states import LaunchOutcome, LaunchState, Purpose
from edgefront.core.store.sql import Document
from edgefront.core.store.tables import Device, Launch, Lease, Measurement
from edgefront.core.store.tables.measurement import WANTED

MAX_FAILING = 5
"""Different models that may fail on a device beyond those that are done."""
FAILED_HERE = "models failed here, or were held without a result"
WAITED_FOR = timedelta(minutes=10)
"""Time that a launch which is to confirm a result waits for the one device that it is for."""
_REMEMBERED = 20

_log = logging.getLogger(__name__)


def put_in(session: Session, device_id: str, reason: str) -> None:
    """Quarantines a device, for a reason that people read. The sweep hands over what it holds."""
    if validation.quarantine(session, device_id, reason):
        _log.warning("device %s is in quarantine: %s", device_id, reason)


def apply_results(
    session: Session,
    launches: Iterable[ReportedLaunch],
    devices: Mapping[str, ReportingDevice],
    unlikely: Collection[str],
) -> None:
    """Quarantines devices on which model after model fails, or is infeasible though that is `unlikely` (ids).

    `launches` are not of anchors.
    """
    outcomes: dict[str, list[str | None]] = {}
    for launch in sorted(launches, key=lambda launch: launch.finished_at):
        outcome, reason = launch.result.outcome, launch.result.reason
        if outcome == LaunchOutcome.DONE:
            outcomes.setdefault(launch.device_id, []).append(None)
        elif launch.id in unlikely or (outcome == LaunchOutcome.FAILED and reason != "unsupported"):
            outcomes.setdefault(launch.device_id, []).append(launch.measurement_id)
    for device_id, of_device in sorted(outcomes.items()):
        if devices[device_id].failing or any(of_device):
            add_failing(session, device_id, of_device)


def add_failing(session: Session, device_id: str, outcomes: Sequence[str | None]) -> None:
    """Notes what came of launches on a device, and quarantines it if too many failed by now.

    Those that fail on other devices of its class too do not count: the models are at fault. `outcomes`: in order, the
    measurement that failed, or None for one that was done, which makes up for an earlier failure.
    """
    device = validation.lock_failing(session, device_id)
    failing = list(device.failing or ())
    for measurement_id in outcomes:
        if measurement_id is None:
            del failing[:1]
        elif measurement_id not in failing:
            failing.append(measurement_id)
    failing = failing[-_REMEMBERED:]
    validation.set_failing(session, device_id, failing)
    if len(failing) < MAX_FAILING or device.quarantine is not None:
        return
    own = set(failing) - validation.failing_elsewhere(session, device_id, device.device_class)
    if len(own) >= MAX_FAILING:
        put_in(session, device_id, f"{len(own)} {FAILED_HERE}, more than were measured since")


def hand_over(session: Session, now: datetime) -> None:
    """What devices in quarantine hold goes to others, at no cost of attempts. The sweep calls it."""
    held = select(Lease.id).where(Lease.device_id == Device.id, Lease.ended_at.is_(None)).exists()
    for device_id in session.scalars(select(Device.id).where(Device.quarantine.is_not(None), held).order_by(Device.id)):
        release_leases.end_leases(session, device_id, now)


def redirect(session: Session, now: datetime) -> None:
    """Launches that were to confirm a result on one device of a class, which cannot, go to the whole class again.

    Where it can and does not, the launch has failed there, and the class gets another: the device is not asked again.
    """
    rows = session.execute(
        select(
            Launch.id,
            Launch.measurement_id,
            Launch.target_id,
            Launch.device_key,
            Launch.created_at,
            Measurement.device_key.label("of_measurement"),
            Measurement.protocol,
            Measurement.architecture,
        )
        .join(Measurement, Measurement.id == Launch.measurement_id)
        .where(
            Launch.state == WANTED,
            Launch.device_key.startswith(DEVICE, autoescape=True),
            Launch.purpose == Purpose.CONFIRM,
            Launch.device_key != Measurement.device_key,
        )
        .order_by(Launch.id)
        .with_for_update(of=Launch, key_share=True, skip_locked=True)
    ).all()
    if not rows:
        return
    able = validation.able_among(session, {parsed(row.device_key)[1] for row in rows}, now - ONLINE)
    for row in rows:
        device_id, protocol = parsed(row.device_key)[1], PROTOCOL.read_or(row.protocol, None)
        facts = able.get(device_id)
        changes: Document = {"device_key": row.of_measurement}
        if facts is not None and protocol is not None and can_run(facts, protocol):
            if row.created_at > now - WAITED_FOR:
                continue
            changes = {
                "state": LaunchState.FAILED,
                "reason": validation.NOT_MEASURED,
                "device_id": device_id,
                "finished_at": now,
            }
            validation.add_launch(session, row.measurement_id, row.target_id, row.of_measurement, Purpose.CONFIRM, now)
        session.execute(
            update(Launch).where(Launch.id == row.id).values(**changes),
            execution_options={"synchronize_session": False},
        )
