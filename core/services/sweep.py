"""The sweeper: puts right what a crash, a lost message or a silent device left behind."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row
from sqlalchemy.orm import Session

from edgefront.core.services import tasks
from edgefront.core.services.access import keys
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.measuring.queries import launches, leases
from edgefront.core.services.measuring.queries import measurements as rows
from edgefront.core.services.measuring.settling import end_badly, settle
from edgefront.core.services.measuring.verdict import MAX_ATTEMPTS
from edgefront.core.services.quality import scoring
from edgefront.core.services.search import advance
from edgefront.core.services.trainings import claims as training_claims
from edgefront.core.store import outbox

KEEP_ENDED_LEASES = timedelta(hours=1)
"""So long a late heartbeat is told that its lease ended, rather than that there is none."""

LOST = "the agent was lost while it measured this"


def sweep(session: Session, now: datetime) -> None:
    """One pass: expired leases, launches that nobody wants, stalled targets, lost trainings, scores that nobody
    computes, old sessions.

    Any number of sweepers may run at once, beside claims and reports: rows that somebody else is working on are left
    for the next pass.
    """
    leases.end_expired(session, now)
    return_stranded(session, now)
    launches.cancel_unwanted(session, now)
    for target_id in advance.stalled(session, now):
        outbox.enqueue(session, tasks.ADVANCE, target_id=target_id)
    launches.forget_leases(session)
    leases.forget_ended(session, now - KEEP_ENDED_LEASES)
    training_claims.return_expired(session, now)
    scoring.resend(session, now)
    keys.purge_web_sessions(session, now)


def return_stranded(session: Session, now: datetime) -> None:
    """Gives back launches whose lease has ended.

    Of each lease, the launch that was started last was being measured when its agent fell silent: it is charged an
    attempt, and has failed if that was its last. Its batch-mates lose nothing.
    """
    seen = launches.stranded(session)
    if not seen:
        return
    at_stake = [row.measurement_id for row in _running(seen) if row.attempts + 1 >= MAX_ATTEMPTS]
    targets = [target for target, _ in rows.lock_live_targets(session, at_stake)]
    measurements = demand.lock(session, at_stake) if at_stake else {}
    locked = launches.lock_leased(session, [row.id for row in seen], skip_locked=True)
    running = {row.id: row for row in _running(locked)}
    spent = [row for row in running.values() if row.attempts + 1 >= MAX_ATTEMPTS and row.measurement_id in measurements]
    launches.add_attempts(session, running)
    launches.write(
        session,
        [{"id": row.id, "state": "failed", "reason": LOST, "lease_id": None, "finished_at": now} for row in spent],
    )
    lost = {row.id for row in spent}
    launches.give_back(session, [row.id for row in locked if row.id not in lost], now)
    if spent:
        reason = f"{MAX_ATTEMPTS} attempts; the last: {LOST}"
        known = end_badly(session, [], [(measurements[row.measurement_id], reason) for row in spent], now)
        session.flush()
        settle(session, targets, rows.candidates_of(session, known), known, now)


def _running(held: Sequence[Row[Any]]) -> list[Row[Any]]:
    """Of each lease, the launch that was started last."""
    last: dict[str, Row[Any]] = {}
    for row in held:
        if row.started_at is not None:
            best = last.get(row.lease_id)
            if best is None or (best.started_at, best.id) < (row.started_at, row.id):
                last[row.lease_id] = row
    return list(last.values())
