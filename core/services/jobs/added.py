"""What answers about a target that was added to a job later rest on."""

from __future__ import annotations

from sqlalchemy.orm import Session

from edgefront.core.search.interface import PREDICTED, SPREAD
from edgefront.core.services.jobs.queries import candidates as rows
from edgefront.core.services.jobs.queries import jobs as job_rows
from edgefront.core.store.tables import Target
from edgefront.core.wire.jobs import JobRequest


def added_note(session: Session, request: JobRequest, target: Target) -> str:
    """How many of the job's candidates were measured for such a target, and why these; empty for the job's own."""
    if not request.targets[target.position].added:
        return ""
    own = [one.id for one in job_rows.targets(session, [target.job_id]) if not request.targets[one.position].added]
    every, measured = rows.architectures_scored(session, own), rows.measured_by_operator(session, target.id)
    return (
        f"Added to the job later: {sum(measured.values())} of its {every} candidates were measured here "
        f"({measured.get(SPREAD, 0)} spread out to learn from, {measured.get(PREDICTED, 0)} predicted to matter), the "
        "others only predicted."
    )
