"""Queries on proxy scores. Targets (searches on one device) request proxy scores, and workers compute the scores."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import ColumnElement, and_, delete, func, insert, select
from sqlalchemy.orm import Session

from edgefront.core.common.states import (
    ACTIVE_TARGETS,
    FINISHED_SCORES,
    MEASURED_CANDIDATES,
    CandidateRole,
    CandidateState,
    JobState,
    ScoreState,
    WorkKind,
)
from edgefront.core.store import sql
from edgefront.core.store.sql import Document, any_of
from edgefront.core.store.tables import (
    Candidate,
    Evaluation,
    Job,
    ProxyScore,
    ProxyWait,
    Target,
    WorkItem,
    new_id,
)

_OPEN = ProxyScore.state == ScoreState.WANTED
_SCORED_BY_OWNER = (Evaluation.owner == Job.owner) & (Evaluation.digest == Candidate.digest)
_OF_OWNER = select(Evaluation.digest).where(Evaluation.owner == Job.owner).correlate(Job)


def scores(
    session: Session,
    proxy: str,
    settings: Document,
    settings_digest: str,
    seed: int,
    architectures: Mapping[str, Document],
    now: datetime,
) -> dict[str, ProxyScore]:
    """Returns architecture digest → score, with the rows locked. Missing scores are created in the state `wanted`.

    The lock keeps workers from writing a score between this query and the commit of the wait for that score.
    """
    if not architectures:
        return {}
    rows = [
        {
            "id": new_id("scr"),
            "digest": digest,
            "proxy": proxy,
            "settings_digest": settings_digest,
            "seed": seed,
            "settings": dict(settings),
            "architecture": architectures[digest],
            "state": ScoreState.WANTED,
            "created_at": now,
        }
        for digest in sorted(architectures)
    ]
    session.execute(sql.upsert(session, ProxyScore).on_conflict_do_nothing(), rows)
    query = (
        select(ProxyScore)
        .where(
            ProxyScore.proxy == proxy,
            ProxyScore.settings_digest == settings_digest,
            ProxyScore.seed == seed,
            any_of(ProxyScore.digest, architectures),
        )
        .order_by(ProxyScore.id)
        .with_for_update(key_share=True)
        .execution_options(populate_existing=True)
    )
    return {row.digest: row for row in session.scalars(query)}


def wait_for(session: Session, target_id: str, score_ids: Sequence[str]) -> None:
    """Replaces the scores that the target waits for."""
    session.execute(delete(ProxyWait).where(ProxyWait.target_id == target_id))
    if score_ids:
        session.execute(insert(ProxyWait), [{"target_id": target_id, "score_id": id_} for id_ in score_ids])


def waiting(session: Session, target_ids: Collection[str]) -> dict[str, int]:
    """Returns target id → number of unfinished scores that the target waits for, only for targets that wait."""
    query = (
        select(ProxyWait.target_id, func.count())
        .join(ProxyScore, ProxyScore.id == ProxyWait.score_id)
        .where(any_of(ProxyWait.target_id, target_ids), ProxyScore.state.not_in(FINISHED_SCORES))
        .group_by(ProxyWait.target_id)
    )
    return {row[0]: row[1] for row in session.execute(query)}


def waited_for(session: Session, score_id: str) -> ProxyScore | None:
    """Returns the score if it is unfinished and an active target waits for the score; otherwise None."""
    waits = (
        select(ProxyWait.score_id)
        .join(Target, Target.id == ProxyWait.target_id)
        .join(Job, Job.id == Target.job_id)
        .where(ProxyWait.score_id == ProxyScore.id, _live())
    )
    return session.scalar(select(ProxyScore).where(ProxyScore.id == score_id, _OPEN, waits.exists()))


def forgotten(session: Session) -> dict[str, str]:
    """Returns score id → owner, for unfinished scores that an active target waits for and that have no work item."""
    item = select(WorkItem.subject).where(WorkItem.kind == WorkKind.SCORE, WorkItem.subject == ProxyScore.id)
    query = (
        select(ProxyScore.id, func.min(Job.owner))
        .join(ProxyWait, ProxyWait.score_id == ProxyScore.id)
        .join(Target, Target.id == ProxyWait.target_id)
        .join(Job, Job.id == Target.job_id)
        .where(_OPEN, _live(), ~item.exists())
        .group_by(ProxyScore.id)
        .order_by(ProxyScore.id)
    )
    return {row[0]: row[1] for row in session.execute(query)}


def lock(session: Session, score_id: str) -> ProxyScore | None:
    query = select(ProxyScore).where(ProxyScore.id == score_id).with_for_update(key_share=True)
    return session.scalar(query.execution_options(populate_existing=True))


def released(session: Session, score_id: str) -> list[str]:
    """Removes all waits for a score. Returns the ids of the targets that waited and now wait for no score."""
    concerned = list(session.scalars(select(ProxyWait.target_id).where(ProxyWait.score_id == score_id)))
    session.execute(delete(ProxyWait).where(ProxyWait.score_id == score_id))
    still = set(session.scalars(select(ProxyWait.target_id).where(any_of(ProxyWait.target_id, concerned))))
    return sorted(set(concerned) - still)


class Trained(NamedTuple):
    """Evaluation of a trained candidate, with the candidate's proxy score."""

    digest: str
    proxy: float
    dataset: str
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
            row.split,
            row.metric,
            str(row.details.get("recipe", "")),
            str(row.details.get("comparability_key", "")),
            row.value,
            candidate.id,
            row.training_id,
            candidate.role == CandidateRole.SEARCH and candidate.state == CandidateState.MEASURED,
        )
        for candidate, row in session.execute(query)
        if candidate.state in MEASURED_CANDIDATES
    ]


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


def _live() -> ColumnElement[bool]:
    return and_(Target.state.in_(ACTIVE_TARGETS), Job.state == JobState.RUNNING)
