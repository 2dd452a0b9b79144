"""The sweeper: puts right what a crash, a lost message or a silent device left behind."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from edgefront.core.services import tasks
from edgefront.core.services.access import keys
from edgefront.core.services.measuring import expiry
from edgefront.core.services.measuring.queries import launches, leases
from edgefront.core.services.quality import scoring
from edgefront.core.services.search import advance
from edgefront.core.services.trainings import claims as training_claims
from edgefront.core.store import outbox

SETTLED_WITHIN = timedelta(seconds=1)
"""Reports that are not settled by then had their task lost."""

KEEP_ENDED_LEASES = timedelta(hours=1)
"""So long a late heartbeat is told that its lease ended, rather than that there is none."""


def sweep(session: Session, now: datetime) -> None:
    """One pass: expired leases, launches that nobody wants, stalled targets, lost trainings, scores that nobody
    computes, old sessions.

    Any number of sweepers may run at once, beside claims and reports: rows that somebody else is working on are left
    for the next pass.
    """
    leases.end_expired(session, now)
    expiry.return_stranded(session, now)
    launches.cancel_unwanted(session, now)
    for late in launches.unsettled_targets(session, now - SETTLED_WITHIN):
        outbox.enqueue(session, tasks.SETTLE, target_id=late)
    for target_id in advance.stalled(session, now):
        outbox.enqueue(session, tasks.ADVANCE, target_id=target_id)
    launches.forget_leases(session)
    leases.forget_ended(session, now - KEEP_ENDED_LEASES)
    training_claims.return_expired(session, now)
    scoring.resend(session, now)
    keys.purge_web_sessions(session, now)
