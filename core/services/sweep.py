"""The sweep: repairs the effects of crashes, lost messages and silent devices."""

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
"""After this time the task of an unsettled report is assumed lost."""

KEEP_ENDED_LEASES = timedelta(hours=1)
"""Time for which ended leases are kept, so that a late heartbeat gets 410 (ended) instead of 404."""


def sweep(session: Session, now: datetime) -> None:
    """One pass: expired leases, unneeded launches, stalled targets, lost trainings, unclaimed scores, old sessions.

    Any number of sweepers may run at once, beside claims and reports: rows that others have locked are left for the
    next pass.
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
