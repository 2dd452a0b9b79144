"""The sweep: repairs the effects of crashes, lost messages and silent devices."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from edgefront.core.services import tasks, work
from edgefront.core.services.access import keys
from edgefront.core.services.jobs.queries import jobs as job_rows
from edgefront.core.services.measuring import anchors, expiry, quarantine
from edgefront.core.services.measuring.queries import launches, leases
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


def _leases(session: Session, now: datetime) -> None:
    leases.end_expired(session, now)
    expiry.return_stranded(session, now)
    launches.cancel_unwanted(session, now)


def _reports(session: Session, now: datetime) -> None:
    for late in launches.unsettled_targets(session, now - PROCESSED_WITHIN):
        outbox.enqueue(session, tasks.PROCESS_RESULTS, target_id=late)


def _targets(session: Session, now: datetime) -> None:
    stalled = advance.stalled(session, now)
    if len(stalled) > SENT_FOR:
        stalled = _some(stalled, job_rows.owners_of(session, stalled))
    for target_id in stalled:
        outbox.enqueue(session, tasks.ADVANCE, target_id=target_id)


def _some(target_ids: list[str], owners: Mapping[str, str]) -> list[str]:
    """`SENT_FOR` of them, as many of each owner as of any other, drawn by lot: the first of an owner's may wait for
    what takes long.
    """
    drawn = random.sample(target_ids, len(target_ids))
    places: Counter[str] = Counter()
    ranked = []
    for target_id in drawn:
        owner = owners.get(target_id, "")
        ranked.append((places[owner], target_id))
        places[owner] += 1
    ranked.sort(key=lambda entry: entry[0])
    return [target_id for _, target_id in ranked[:SENT_FOR]]


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
so that a failure does not undo the others.
"""


def sweep(session: Session, now: datetime) -> None:
    """One pass over all parts.

    Any number of sweepers may run at once, beside claims and reports: rows that others have locked are left for the
    next pass.
    """
    for part in PARTS:
        part(session, now)
