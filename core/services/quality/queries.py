"""Queries on the evaluations of trained candidates."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from edgefront.core.common.states import (
    MEASURED_CANDIDATES,
    CandidateRole,
    CandidateState,
)
from edgefront.core.store.sql import any_of
from edgefront.core.store.tables import (
    Candidate,
    Evaluation,
    Job,
)

_SCORED_BY_OWNER = (Evaluation.owner == Job.owner) & (Evaluation.digest == Candidate.digest)
_OF_OWNER = select(Evaluation.digest).where(Evaluation.owner == Job.owner).correlate(Job)


class Trained(NamedTuple):
    """Evaluation of a trained candidate, with the candidate's proxy score."""

    digest: str
    proxy: float
    dataset: str
    data: str
    """Name and digest of the data set (`data_in_words`)."""
    split: str
    metric: str
    recipe: str
    comparability_key: str
    """Key that is equal if data set, recipe with overrides, and budget are equal."""
    value: float
    candidate_id: str
    training_id: str | None
    joins_frontiers: bool
    """Whether the candidate is a search candidate measured within the limits."""
    too_short: bool
    """Whether the training is too short to rank models (`trainings.views.too_short`)."""
    options: str = ""
    """Options of `edgefront train submit` by which another model is trained like this one."""
    alike: bool = False
    """Whether the training is of the largest group of equal trainings (`trust.trained_of`)."""


def trained(session: Session, target_id: str) -> list[Trained]:
    """Returns the evaluations of a target's trained candidates and baselines by the job's owner, newest first."""
    query = (
        select(Candidate, Evaluation)
        .join(Job, Job.id == Candidate.job_id)
        .join(Evaluation, _SCORED_BY_OWNER)
        # Few candidates are trained; they are looked up by digest.
        .where(Candidate.target_id == target_id, Candidate.digest.in_(_OF_OWNER))
        .order_by(Evaluation.created_at.desc(), Evaluation.id.desc())
    )
    return [
        Trained(
            candidate.digest,
            candidate.proxy,
            row.dataset,
            data_in_words(row.dataset, row.details.get("dataset_digest")),
            row.split,
            row.metric,
            str(row.details.get("recipe", "")),
            str(row.details.get("comparability_key", "")),
            row.value,
            candidate.id,
            row.training_id,
            candidate.role == CandidateRole.SEARCH and candidate.state == CandidateState.MEASURED,
            bool(row.details.get("too_short")),
            str(row.details.get("options", "")),
        )
        for candidate, row in session.execute(query)
        if candidate.state in MEASURED_CANDIDATES
    ]


def data_in_words(name: str, digest: str | None) -> str:
    """Name and digest of a data set, as in the origin of a refined scaling law: `letters (data set 0123456789ab)`."""
    return f"{name} (data set {(digest or '')[:12]})"


class Scores(NamedTuple):
    """Number of evaluations of a target's candidates, and the time of the latest evaluation."""

    number: int
    newest: datetime | None


def scores_of(session: Session, target_ids: Collection[str]) -> dict[str, Scores]:
    """Returns target id → number of evaluations of the target's candidates, and the time of the latest evaluation."""
    query = (
        select(Candidate.target_id, func.count(Evaluation.id), func.max(Evaluation.created_at))
        .join(Job, Job.id == Candidate.job_id)
        .join(Evaluation, _SCORED_BY_OWNER)
        .where(any_of(Candidate.target_id, target_ids), Candidate.digest.in_(_OF_OWNER))
        .group_by(Candidate.target_id)
    )
    found = {row[0]: Scores(row[1], row[2]) for row in session.execute(query)}
    return {id_: found.get(id_, Scores(0, None)) for id_ in target_ids}
