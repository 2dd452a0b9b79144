"""The API's views of jobs and their targets, from their rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

from sqlalchemy.orm import Session

from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.services.fleet.online import ONLINE
from edgefront.core.services.jobs import progress
from edgefront.core.services.jobs.answers import answers_of
from edgefront.core.services.jobs.comparison import as_baseline, summary_of
from edgefront.core.services.jobs.queries import candidates as candidate_rows
from edgefront.core.services.jobs.queries import frontier as frontier_rows
from edgefront.core.services.jobs.queries import jobs as job_rows
from edgefront.core.services.jobs.queries.frontier import Point
from edgefront.core.services.quality import queries as proxy_rows
from edgefront.core.services.quality.trust import trust_of
from edgefront.core.services.stored import JOB_REQUEST, LIMITS, PROTOCOL, REFERENCE, RowReader
from edgefront.core.states import ACTIVE_TARGETS, JobState, TargetState
from edgefront.core.store.sql import Document
from edgefront.core.store.tables import Job, Target
from edgefront.core.wire.jobs import JobRequest, JobView, Limits, ProxyTrust, TargetRequest, TargetView

LOOKED_AT = 32
"""Maximum number of online devices whose facts are checked; with more, one is assumed to be able to measure."""


def job_views(session: Session, jobs: Sequence[Job], now: datetime) -> list[JobView]:
    """Views of jobs with their targets, in a fixed number of queries.

    Where a stored document cannot be read, the view has an empty one, and the reason or the target's note says so.
    """
    targets = job_rows.targets(session, [job.id for job in jobs])
    ids = [target.id for target in targets]
    frontiers = frontier_rows.frontier_points(session, ids)
    baselines = frontier_rows.baseline_points(session, ids)
    online = job_rows.devices_seen(session, [target.device_key for target in targets], now - ONLINE)
    looked_at = {
        target.device_key
        for target in targets
        if target.state in ACTIVE_TARGETS and 0 < online[target.device_key] <= LOOKED_AT
    }
    facts = job_rows.facts_seen(session, sorted(looked_at), now - ONLINE) if looked_at else {}
    deserted = [
        target.device_key for target in targets if target.state in ACTIVE_TARGETS and not online[target.device_key]
    ]
    held_back = job_rows.held_back(session, deserted) if deserted else {}
    marked = candidate_rows.marked_counts(session, ids)
    scoring = proxy_rows.waiting(session, [target.id for target in targets if target.state in ACTIVE_TARGETS])
    answers = answers_of(session, jobs, targets)
    views = []
    for job in jobs:
        reader = RowReader()
        request = reader.read(partial(JOB_REQUEST.read, job.request))
        trust = reader.read(partial(_trust, session, job, request)) or ProxyTrust()
        own = [target for target in targets if target.job_id == job.id]
        of_targets = [
            _target_view(
                job,
                request,
                target,
                _TargetFacts(
                    frontier=frontiers[target.id],
                    baseline=baselines[target.id],
                    online=online[target.device_key],
                    devices=facts.get(target.device_key, ()),
                    scoring=scoring.get(target.id, 0),
                    held_back=held_back.get(target.device_key),
                    marked=marked.get(target.id, 0),
                    answer=answers.get(target.id, ""),
                ),
                now,
            )
            for target in own
        ]
        views.append(
            JobView(
                id=job.id,
                name=job.name,
                owner=job.owner,
                state=JobState(job.state),
                reason=reader.note(job.reason),
                request=request or JobRequest(targets=(TargetRequest(),) * len(own)),
                proxy_trust=trust,
                targets=tuple(of_targets),
                created_at=job.created_at,
                updated_at=job.updated_at,
                finished_at=job.finished_at,
                last_event=job.last_event,
            )
        )
    return views


def _trust(session: Session, job: Job, request: JobRequest | None) -> ProxyTrust:
    return ProxyTrust() if request is None else trust_of(session, job, request)


class _TargetFacts(NamedTuple):
    """What is read of a target beside its row."""

    frontier: Sequence[Point]
    baseline: Sequence[Point]
    online: int
    """Devices of the target that were seen of late."""
    devices: Sequence[Document]
    """What these say of themselves, where few are."""
    scoring: int
    """Architectures that wait for their score."""
    held_back: job_rows.HeldBack | None
    """Why its devices measure nothing, where none is online."""
    marked: int
    """Candidates with a launch that has a mark."""
    answer: str


def _target_view(
    job: Job, request: JobRequest | None, target: Target, facts: _TargetFacts, now: datetime
) -> TargetView:
    reader = RowReader()
    asked = TargetRequest() if request is None else request.targets[target.position]
    device = asked.device or asked.device_class or target.device_key.partition(":")[2]
    waits = partial(progress.note, job, target, device, facts.online, facts.devices, facts.scoring, facts.held_back)
    said = reader.read(waits) or target.note
    view = TargetView(
        id=target.id,
        name=target.name,
        device=device,
        state=TargetState(target.state),
        protocol=reader.read(partial(PROTOCOL.read, target.protocol)) or MeasurementProtocol(),
        limits=reader.read(partial(LIMITS.read, target.limits)) or Limits(),
        generation=target.generation,
        candidates=target.candidates,
        settled=target.settled,
        planned=reader.read(partial(progress.planned, request, target)),
        launches_done=target.launches_done,
        frontier_size=target.frontier_size,
        marked=facts.marked,
        hypervolume=target.hypervolume,
        reference=reader.read(partial(REFERENCE.validate_python, target.reference)),
        measuring_share=min(1.0, target.measuring_s / target.busy_s) if target.busy_s > 0 else None,
        seconds_left=reader.read(partial(progress.seconds_left, job, request, target, now)),
        devices_online=facts.online,
        note="",
        answer=facts.answer,
        summary=summary_of(facts.frontier, as_baseline(facts.baseline), target, request),
    )
    return view.model_copy(update={"note": reader.note(said) or ""})
