"""The sweep: repairs the effects of crashes, lost messages and silent devices."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from edgefront.core.common.states import LaunchState, Purpose
from edgefront.core.services import tasks, work
from edgefront.core.services.access import keys
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.jobs.queries import jobs as job_rows
from edgefront.core.services.measuring import anchors, quarantine
from edgefront.core.services.measuring.queries import launches, leases, reported
from edgefront.core.services.measuring.queries import measurements as measurement_rows
from edgefront.core.services.measuring.queries.launches import LeasedLaunch
from edgefront.core.services.measuring.reports import MAX_ATTEMPTS
from edgefront.core.services.measuring.result_processing import apply_results, mark_unsuccessful
from edgefront.core.services.quality import scoring
from edgefront.core.services.search import advance
from edgefront.core.services.trainings import claims as training_claims
from edgefront.core.store import outbox

PROCESSED_WITHIN = timedelta(seconds=1)
"""After this time the task of an unsettled report is assumed lost."""

SENT_FOR = 100
"""Targets that one sweep sends for. Where more are stalled, workers have not come to those of the last sweep yet."""

KEEP_ENDED_LEASES = timedelta(hours=1)
"""Time for which ended leases are kept, so that a late heartbeat gets 410 (ended) instead of 404."""

LOST = "the agent was lost while it measured this"


def _leases(session: Session, now: datetime) -> None:
    leases.end_expired(session, now)
    return_stranded(session, now)
    launches.cancel_unwanted(session, now)


def return_stranded(session: Session, now: datetime) -> None:
    """Gives back launches whose lease has ended without a report.

    Of each lease, the launch that was started last was being measured when its agent fell silent: it is charged an
    attempt, and has failed if that was its last; an anchor has failed at once. Its batch-mates lose nothing. The
    device has failed at one launch of each lease that it lost, if it can be the one that it measured (`quarantine`).
    """
    seen = launches.stranded(session)
    if not seen:
        return
    at_stake = [
        row.measurement_id
        for row in _running(seen)
        if row.attempts + 1 >= MAX_ATTEMPTS and row.purpose != Purpose.ANCHOR
    ]
    targets = [target for target, _ in measurement_rows.lock_live_targets(session, at_stake)]
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
        apply_results(session, targets, measurement_rows.candidates_of(session, ended), ended, now)
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


def _reports(session: Session, now: datetime) -> None:
    for late in reported.unprocessed_targets(session, now - PROCESSED_WITHIN):
        outbox.enqueue(session, tasks.PROCESS_RESULTS, target_id=late)


def _targets(session: Session, now: datetime) -> None:
    stalled = advance.stalled(session, now)
    if len(stalled) > SENT_FOR:
        # As many of each owner as of any other, drawn by lot: the first of an owner's may wait for what takes long.
        owners = job_rows.owners_of(session, stalled)
        places: Counter[str] = Counter()
        ranked = []
        for target_id in random.sample(stalled, len(stalled)):
            owner = owners.get(target_id, "")
            ranked.append((places[owner], target_id))
            places[owner] += 1
        ranked.sort(key=lambda entry: entry[0])
        stalled = [target_id for _, target_id in ranked[:SENT_FOR]]
    for target_id in stalled:
        outbox.enqueue(session, tasks.ADVANCE, target_id=target_id)


def _ended_leases(session: Session, now: datetime) -> None:
    launches.forget_leases(session)
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
"""Expired leases and unneeded launches, devices in quarantine, anchors that are due, reports and targets whose task was
lost, ended leases, lost trainings, work that nobody does, unclaimed scores, old sessions. Each has its own transaction,
so that a failure does not undo the others. Any number of sweepers may run at once, beside claims and reports: rows that
others have locked are left for the next pass.
"""
