"""Rows → what the API shows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from core.store.tables import Candidate, Job
from core.wire.jobs import CandidateView, JobView


def candidate_view(candidate: Candidate) -> CandidateView:
    raise NotImplementedError


def job_views(session: Session, jobs: Sequence[Job], now: datetime) -> list[JobView]:
    """Views of jobs with their targets, in a fixed number of queries."""
    raise NotImplementedError
