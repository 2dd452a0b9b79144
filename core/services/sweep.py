"""Periodic sweep, which repairs the effects of crashes, lost messages and silent devices."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from operator import itemgetter

from sqlalchemy.orm import Session

from edgefront.core.common.states import LaunchState
from edgefront.core.services import tasks, work
from edgefront.core.services.access import keys
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.services.measuring import anchors, quarantine
from edgefront.core.services.measuring.decision import LAUNCH_ATTEMPTS, charged
from edgefront.core.services.measuring.queries import launches, leases
from edgefront.core.services.measuring.queries import measurements as measurement_queries
from edgefront.core.services.measuring.queries.launches import LaunchRow
from edgefront.core.services.measuring.result_processing import apply_results, fail_measurements
from edgefront.core.services.quality import scoring
from edgefront.core.services.search import advance
from edgefront.core.services.trainings import claims as training_claims
from edgefront.core.store.database import enqueue

PROCESSED_WITHIN = timedelta(seconds=1)
"""Age of an unprocessed report at which its task counts as lost."""

MAX_TARGETS = 100
"""Maximum number of targets resumed per sweep. If more are stalled, workers are still busy with the previous ones."""

KEEP_ENDED_LEASES = timedelta(hours=1)
"""Time for which ended leases are stored: a late heartbeat gets 410 (ended) instead of 404."""

LOST = "the agent was lost while it measured the model"


def _leases(session: Session, now: datetime) -> None:
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
    """Whether one more charged attempt makes the launch fail."""
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


def _reports(session: Session, now: datetime) -> None:
    for target_id in launches.unprocessed_targets(session, now - PROCESSED_WITHIN):
        enqueue(session, tasks.PROCESS_RESULTS, target_id=target_id)


def _targets(session: Session, now: datetime) -> None:
    stalled = advance.stalled(session, now)
    if len(stalled) > MAX_TARGETS:
        # Each owner gets an equal share, in random order, because an owner's first target may be slow to compute.
        owners, ranks = job_queries.owners_of(session, stalled), Counter[str]()
        ranked = []
        for target_id in random.sample(stalled, len(stalled)):
            owner = owners.get(target_id, "")
            ranked.append((ranks[owner], target_id))
            ranks[owner] += 1
        stalled = [target_id for _, target_id in sorted(ranked, key=itemgetter(0))[:MAX_TARGETS]]
    for target_id in stalled:
        enqueue(session, tasks.ADVANCE, target_id=target_id)


def _ended_leases(session: Session, now: datetime) -> None:
    leases.forget_leases(session)
    leases.forget_ended(session, now - KEEP_ENDED_LEASES)


PARTS: tuple[Callable[[Session, datetime], object], ...] = (
    _leases,
    quarantine.hand_over,
    anchors.request,
    _reports,
    _targets,
    _ended_leases,
    training_claims.return_expired,
    work.resend,
    scoring.resend,
    keys.purge_web_sessions,
)
"""Parts of a sweep: expired leases and unneeded launches, devices in quarantine, due anchors, reports and targets whose
task was lost, ended leases, lost trainings, unclaimed work, unclaimed scores, expired sessions.

Each part has its own transaction, so a failure does not undo the others. Several sweeps may run at once, beside claims
and reports, because a sweep skips locked rows and leaves them to the next sweep.
"""
