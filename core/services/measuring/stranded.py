"""Leases and reports that nobody finishes: their agent fell silent, or their task was lost."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from edgefront.core.common.states import LaunchState
from edgefront.core.services import tasks
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.measuring import anchors, quarantine
from edgefront.core.services.measuring.decision import LAUNCH_ATTEMPTS, charged
from edgefront.core.services.measuring.queries import launches, leases
from edgefront.core.services.measuring.queries import measurements as measurement_queries
from edgefront.core.services.measuring.queries.launches import LaunchRow
from edgefront.core.services.measuring.result_processing import apply_results, fail_measurements
from edgefront.core.store.database import enqueue

PROCESSED_WITHIN = timedelta(seconds=1)
"""Age of an unprocessed report at which its task counts as lost."""

KEEP_ENDED_LEASES = timedelta(hours=1)
"""Time for which ended leases are stored: a late heartbeat gets 410 (ended) instead of 404."""

LOST = "the agent was lost while it measured the model"


def end_leases(session: Session, now: datetime) -> None:
    """Ends expired leases, and releases launches that are stranded or no longer needed."""
    leases.end_expired(session, now)
    return_stranded(session, now)
    leases.cancel_unwanted(session, now)


def return_stranded(session: Session, now: datetime) -> None:
    """Releases launches whose lease has ended without a report.

    Of each lease, the launch that was started most recently was running when the agent fell silent. Only this launch is
    charged an attempt. It fails after `LAUNCH_ATTEMPTS` attempts, or at once if it measures the device's reference
    model (anchor). Each lost lease counts as a failure of the device (`quarantine`), unless the anchor was running.
    """
    stranded = leases.stranded(session)
    if not stranded:
        return
    last_attempts = [row.measurement_id for row in _running(stranded) if not row.is_anchor and _fails(row)]
    targets = [target for target, _ in measurement_queries.lock_live_targets(session, last_attempts)]
    measurements = demand.lock(session, last_attempts) if last_attempts else {}
    locked = launches.lock_leased(session, [launch.id for launch in stranded], skip_locked=True)
    running = {row.id: row for row in _running(locked)}
    of_anchors = [row for row in running.values() if row.is_anchor]
    spent = [row for row in running.values() if _fails(row) and row.measurement_id in measurements]
    leases.add_attempts(session, running)
    lost = {row.id for row in [*spent, *of_anchors]}
    failed = {"state": LaunchState.FAILED, "reason": LOST, "lease_id": None, "finished_at": now}
    launches.write(session, [{"id": id_, **failed} for id_ in sorted(lost)])
    launches.release(session, [row.id for row in locked if row.id not in lost], now)
    if spent:
        reason = f"{LAUNCH_ATTEMPTS} attempts; the last: {LOST}"
        ended = fail_measurements(session, [(measurements[row.measurement_id], reason) for row in spent], now)
        apply_results(session, targets, measurement_queries.candidates_of(session, ended), ended, now)
    by_lease: dict[tuple[str, str | None], list[LaunchRow]] = {}
    for launch in (*running.values(), *locked):  # running ones first
        by_lease.setdefault((launch.holder, launch.lease_id), []).append(launch)
    quarantine.lock(session, {device_id for device_id, _ in by_lease})
    for (device_id, _), of_lease in sorted(by_lease.items()):
        if not of_lease[0].is_anchor:
            quarantine.add_failing(session, device_id, [launch.measurement_id for launch in of_lease])
    for anchor in sorted(of_anchors, key=lambda launch: launch.holder):
        anchors.count_failed(session, anchor, LOST, now)


def _fails(row: LaunchRow) -> bool:
    """Whether the launch fails if one more attempt is counted against it."""
    return charged(row) == "failed"


def _running(leased: Iterable[LaunchRow]) -> list[LaunchRow]:
    """Returns the most recently started launch of each lease."""
    last: dict[str | None, LaunchRow] = {}
    for row in leased:
        if row.started_at is not None:
            best = last.get(row.lease_id)
            if best is None or best.started_at is None or (best.started_at, best.id) < (row.started_at, row.id):
                last[row.lease_id] = row
    return list(last.values())


def request_processing(session: Session, now: datetime) -> None:
    """Enqueues the processing of reports whose task was lost."""
    for target_id in launches.unprocessed_targets(session, now - PROCESSED_WITHIN):
        enqueue(session, tasks.PROCESS_RESULTS, target_id=target_id)


def forget_ended_leases(session: Session, now: datetime) -> None:
    """Deletes ended leases after `KEEP_ENDED_LEASES`."""
    leases.forget_leases(session)
    leases.forget_ended(session, now - KEEP_ENDED_LEASES)
