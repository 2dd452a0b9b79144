"""Launches whose lease has ended without a report: given back, and the one that was being measured is charged.

A device has failed at one launch of each lease that it lost, if it can be the one that it measured (`quarantine`).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.measuring import anchors, quarantine
from edgefront.core.services.measuring.queries import launches, reported
from edgefront.core.services.measuring.queries import measurements as rows
from edgefront.core.services.measuring.queries.launches import LeasedLaunch
from edgefront.core.services.measuring.report_policy import MAX_ATTEMPTS
from edgefront.core.services.measuring.result_processing import apply_results, mark_unsuccessful
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
        for row in _running(seen)
        if row.attempts + 1 >= MAX_ATTEMPTS and row.purpose != Purpose.ANCHOR
    ]
    targets = [target for target, _ in rows.lock_live_targets(session, at_stake)]
    measurements = demand.lock(session, at_stake) if at_stake else {}
    locked = launches.lock_leased(session, [launch.id for launch in seen], skip_locked=True)
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
        ended = mark_unsuccessful(session, [], [(measurements[row.measurement_id], reason) for row in spent], now)
        apply_results(session, targets, rows.candidates_of(session, ended), ended, now)
    by_lease: dict[tuple[str, str], list[LeasedLaunch]] = {}
    for launch in (*running.values(), *locked):  # the one that was being measured first
        by_lease.setdefault((launch.device_id, launch.lease_id), []).append(launch)
    quarantine.lock(session, {device_id for device_id, _ in by_lease})
    for (device_id, _), of_lease in sorted(by_lease.items()):
        if of_lease[0].purpose != Purpose.ANCHOR:
            quarantine.add_failing(session, device_id, [launch.measurement_id for launch in of_lease])
    subjects = reported.subjects(session, {row.measurement_id for row in of_anchors}) if of_anchors else {}
    for anchor in sorted(of_anchors, key=lambda launch: launch.device_id):
        anchors.count_failed(session, anchor.device_id, subjects[anchor.measurement_id].provider, LOST, now)


def _running(held: Iterable[LeasedLaunch]) -> list[LeasedLaunch]:
    """The launch of each lease that was started last."""
    last: dict[str, LeasedLaunch] = {}
    for row in held:
        if row.started_at is not None:
            best = last.get(row.lease_id)
            if best is None or best.started_at is None or (best.started_at, best.id) < (row.started_at, row.id):
                last[row.lease_id] = row
    return list(last.values())
