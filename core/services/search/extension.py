"""The candidates of a job that a target added later chooses among."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from edgefront.core.services.jobs.queries import candidates as candidate_rows
from edgefront.core.services.jobs.queries import jobs as job_rows
from edgefront.core.services.jobs.queries.candidates import ScoredCandidate
from edgefront.core.states import ACTIVE_TARGETS
from edgefront.core.store.tables import Target
from edgefront.core.wire.jobs import JobRequest


def offers(session: Session, target: Target, request: JobRequest) -> Sequence[ScoredCandidate] | None:
    """Every candidate that the job's own targets have proposed.

    None while one of them is active: once all have ended nothing is added, so the same question gets the same answer.
    """
    own = [
        sibling for sibling in job_rows.targets(session, [target.job_id]) if not request.targets[sibling.position].added
    ]
    if any(sibling.state in ACTIVE_TARGETS for sibling in own):
        return None
    return candidate_rows.scored(session, [sibling.id for sibling in own])
