"""Launches whose lease has ended without a report: given back, and the one that was being measured is charged.

A device whose heartbeats kept its launches until their lease ended has failed at all of them (`quarantine`).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.measuring import anchors, quarantine
from edgefront.core.services.measuring.queries import launches, validation
from edgefront.core.services.measuring.queries import measurements as rows
from edgefront.core.services.measuring.queries.launches import LeasedLaunch
from edgefront.core.services.measuring.report_policy import MAX_ATTEMPTS
from edgefront.core.services.measuring.result_processing import apply_results, mark_unsuccessful
from edgefront.core.services.measuring.result_validation import ResultValidator
from edgefront.core.states import LaunchState, Purpose

LOST = "the agent was lost while it measured this"


def return_stranded(session: Session, now: datetime) -> None:
    """Gives back launches whose lease has ended.

    Of each lease, the launch that was started last was being measured when its agent fell silent: it is charged an
    attempt, and has failed if that was its last; an anchor has failed at once. Its batch-mates lose nothing.
    """
    seen = launches.stranded(session)
    if not seen:
        return
    at_stake = [
        row.measurement_id
        for row in _running(launch for launch, _ in seen)
        if row.attempts + 1 >= MAX_ATTEMPTS and row.purpose != Purpose.ANCHOR
    ]
    targets = [target for target, _ in rows.lock_live_targets(session, at_stake)]
    measurements = demand.lock(session, at_stake) if at_stake else {}
    locked = launches.lock_leased(session, [launch.id for launch, _ in seen], skip_locked=True)
    running = {row.id: row for row in _running(locked)}
    of_anchors = [row for row in running.values() if row.purpose == Purpose.ANCHOR]
    spent = [row for row in running.values() if row.attempts + 1 >= MAX_ATTEMPTS and row.measurement_id in measurements]
    launches.add_attempts(session, running)
    lost = {row.id for row in [*spent, *of_anchors]}
    launches.write(
        session,
        [
            {"id": id_, "state": LaunchState.FAILED, "reason": LOST, "lease_id": None, "finished_at": now}
            for id_ in sorted(lost)
        ],
    )
    launches.release(session, [row.id for row in locked if row.id not in lost], now)
    if spent:
        reason = f"{MAX_ATTEMPTS} attempts; the last: {LOST}"
        validator = ResultValidator(session, now, validation.subjects(session, measurements), {})
        failed = []
        for row in spent:
            measurement = measurements[row.measurement_id]
            final = validator.is_final(measurement, row.id, LaunchState.FAILED, LOST)
            if final or not validator.confirm(measurement, row.target_id):
                failed.append((measurement, reason))
        ended = mark_unsuccessful(session, [], failed, now)
        apply_results(session, targets, rows.candidates_of(session, ended), ended, now)
    overdue = {launch.lease_id for launch, is_overdue in seen if is_overdue}
    failing: dict[str, list[str]] = {}
    for launch in locked:
        if launch.purpose != Purpose.ANCHOR and (launch.id in running or launch.lease_id in overdue):
            failing.setdefault(launch.device_id, []).append(launch.measurement_id)
    if len(concerned := failing.keys() | {row.device_id for row in of_anchors}) > 1:
        validation.lock_devices(session, concerned)
    for device_id, measurement_ids in sorted(failing.items()):
        quarantine.add_failing(session, device_id, measurement_ids)
    subjects = validation.subjects(session, {row.measurement_id for row in of_anchors}) if of_anchors else {}
    for anchor in sorted(of_anchors, key=lambda launch: launch.device_id):
        anchors.count_failed(session, anchor.device_id, subjects[anchor.measurement_id].provider, LOST)


def _running(held: Iterable[LeasedLaunch]) -> list[LeasedLaunch]:
    """The launch of each lease that was started last."""
    last: dict[str, LeasedLaunch] = {}
    for row in held:
        if row.started_at is not None:
            best = last.get(row.lease_id)
            if best is None or best.started_at is None or (best.started_at, best.id) < (row.started_at, row.id):
                last[row.lease_id] = row
    return list(last.values())
