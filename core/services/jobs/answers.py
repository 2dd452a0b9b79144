"""The answers of targets that have ended, in a few words, for lists of jobs.

Each is computed once in a process, and again when what it follows from has changed: the job's events, which tell of
results, the scores of its trained candidates, or what its owner's trainings taught.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

from sqlalchemy.orm import Session

from edgefront.core.services.jobs import choices, recommendation
from edgefront.core.services.jobs.frontier import dominance_of
from edgefront.core.services.jobs.measured_models import MeasuredModels
from edgefront.core.services.jobs.queries import candidates as rows
from edgefront.core.services.jobs.views import candidate_view
from edgefront.core.services.quality import laws
from edgefront.core.services.quality import queries as quality_rows
from edgefront.core.services.stored import JOB_REQUEST, LIMITS, RowReader
from edgefront.core.states import ACTIVE_TARGETS
from edgefront.core.store.tables import Candidate, Job, Target
from edgefront.core.wire.jobs import JobRequest, Limits

MAX_KEPT = 4096


class _Known(NamedTuple):
    """What an answer followed from, and the answer."""

    last_event: int
    scores: quality_rows.Scores
    taught: datetime | None
    """When the owner's trainings taught something last."""
    answer: str


_kept: dict[str, _Known] = {}  # target id → its answer


def answers_of(session: Session, jobs: Sequence[Job], targets: Sequence[Target]) -> dict[str, str]:
    """Target id → `RecommendationView.short`, of targets that have ended. Of a job among published models the target of
    the recommended one has the answer, and no other.

    Unknown ones are read in a fixed number of queries, but one by one where candidates were trained, and for jobs among
    published models.
    """
    of_job = {job.id: job for job in jobs}
    ended = [target for target in targets if target.state not in ACTIVE_TARGETS]
    scores = quality_rows.scores_of(session, [target.id for target in ended])
    taught = laws.last_taught(session, {job.owner for job in jobs})
    answers: dict[str, str] = {}
    unknown = []
    for target in ended:
        job, known = of_job[target.job_id], _kept.get(target.id)
        if known and known[:3] == (job.last_event, scores[target.id], taught.get(job.owner)):
            answers[target.id] = known.answer
        else:
            unknown.append(target)
    computed = _computed(session, of_job, unknown, scores) if unknown else {}
    for target in unknown:
        job = of_job[target.job_id]
        answers[target.id] = computed.get(target.id, "")
        _keep(target.id, _Known(job.last_event, scores[target.id], taught.get(job.owner), answers[target.id]))
    return answers


def _keep(target_id: str, known: _Known) -> None:
    _kept.pop(target_id, None)
    _kept[target_id] = known
    if len(_kept) > MAX_KEPT:
        _kept.pop(next(iter(_kept)), None)  # another thread may have done so


def _computed(
    session: Session, jobs: Mapping[str, Job], targets: Sequence[Target], scores: Mapping[str, quality_rows.Scores]
) -> dict[str, str]:
    requests = {target.job_id: JOB_REQUEST.read_or(jobs[target.job_id].request, None) for target in targets}
    published = {id_ for id_, request in requests.items() if request is not None and request.space.published}
    found: dict[str, str] = {}
    for job_id in published:
        reader = RowReader()
        found |= reader.read(partial(choices.short_of, session, jobs[job_id])) or {}
        found |= {target.id: said for target in targets if target.job_id == job_id and (said := reader.note())}
    searched = [target for target in targets if target.job_id not in published]
    untrained = [
        target
        for target in searched
        if not scores[target.id].number and not laws.names_owners_law(requests[target.job_id])
    ]
    members: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in rows.frontiers_and_baselines(session, [target.id for target in untrained]):
        members[candidate.target_id].append(candidate)
    for target in searched:
        job, limits, reader = jobs[target.job_id], LIMITS.read_or(target.limits, Limits()), RowReader()
        known: Callable[[], MeasuredModels]
        if target in untrained:
            known = partial(_on_frontier, session, job, requests[job.id], target, limits, members[target.id])
        else:  # which of all within the limits are the best by prediction decides whether trainings count
            known = partial(recommendation.known_of, session, job, target, limits)
        short = reader.read(partial(_short, known)) or ""
        found[target.id] = reader.note() or short
    return found


def _short(known: Callable[[], MeasuredModels]) -> str:
    return known().short()


def _on_frontier(
    session: Session,
    job: Job,
    request: JobRequest | None,
    target: Target,
    limits: Limits,
    candidates: Sequence[Candidate],
) -> MeasuredModels:
    """Where nothing was trained, the answer is on the frontier or a baseline: more need not be read."""
    return MeasuredModels(
        proxy=target.proxy,
        limits=limits,
        request=request,
        candidates=tuple(candidate_view(candidate, None) for candidate in candidates),
        trained=(),
        law=laws.known_law_of(session, job, request),
        dominance=dominance_of(job),
    )
