"""Targets whose search has stalled, because a task was lost, a worker died or time is over."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime
from operator import itemgetter

from sqlalchemy.orm import Session

from edgefront.core.common.errors import InvalidInput
from edgefront.core.schemas.jobs import JobRequest
from edgefront.core.services import tasks
from edgefront.core.services.jobs import progress
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.services.stored import JOB_REQUEST, LIMITS, PROTOCOL
from edgefront.core.store.database import enqueue
from edgefront.core.store.tables import Target

MAX_TARGETS = 100
"""Maximum number of targets resumed per sweep. If more are stalled, workers are still busy with the previous ones."""


def resume_stalled(session: Session, now: datetime) -> None:
    """Enqueues the next step (`advance`) of stalled targets."""
    target_ids = stalled(session, now)
    if len(target_ids) > MAX_TARGETS:
        # Each owner gets an equal share, in random order, because an owner's first target may be slow to compute.
        owners, ranks = job_queries.owners_of(session, target_ids), Counter[str]()
        ranked = []
        for target_id in random.sample(target_ids, len(target_ids)):
            owner = owners.get(target_id, "")
            ranked.append((ranks[owner], target_id))
            ranks[owner] += 1
        target_ids = [target_id for _, target_id in sorted(ranked, key=itemgetter(0))[:MAX_TARGETS]]
    for target_id in target_ids:
        enqueue(session, tasks.ADVANCE, target_id=target_id)


def stalled(session: Session, now: datetime) -> list[str]:
    """Returns ids of the targets of running jobs that the periodic sweep must advance again."""
    active = job_queries.active_targets(session)
    requests = {job.id: job.request for _, job in active}
    read = {job_id: JOB_REQUEST.read_or(request, None) for job_id, request in requests.items()}
    began = job_queries.first_starts(
        session, [id_ for id_, request in read.items() if request and request.budget.minutes]
    )
    ending = [
        target.id
        for target, job in active
        if _must_end(target, read[job.id], began.get((job.id, target.device_key)), now)
    ]
    unfinished = job_queries.unfinished_targets(session)
    return list(dict.fromkeys(job_queries.idle_targets(session) + unfinished + ending))


def _must_end(target: Target, request: JobRequest | None, began: datetime | None, now: datetime) -> bool:
    """Whether a target's time is over, or this release cannot read the job's request."""
    try:
        PROTOCOL.read(target.protocol)
        LIMITS.read(target.limits)
    except InvalidInput:
        return True
    return request is None or progress.is_spent(request, began, now)
