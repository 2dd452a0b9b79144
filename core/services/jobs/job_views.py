"""Views of jobs and their targets for the API, built from database rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial

from sqlalchemy.orm import Session

from edgefront.core.common.states import ACTIVE_TARGETS, JobState, TargetState
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.schemas.jobs import JobRequest, JobView, Limits, ProxyTrust, TargetRequest, TargetView
from edgefront.core.services import work
from edgefront.core.services.fleet.instances import ONLINE
from edgefront.core.services.jobs import frontier as frontier_queries
from edgefront.core.services.jobs import progress
from edgefront.core.services.jobs.answers import choices, recommendation
from edgefront.core.services.jobs.answers.candidates import candidate_view
from edgefront.core.services.jobs.answers.measured_models import MeasuredModels
from edgefront.core.services.jobs.comparison import as_baseline, summary_of
from edgefront.core.services.jobs.frontier import dominance_of
from edgefront.core.services.jobs.queries import candidates as candidate_queries
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.services.quality import laws
from edgefront.core.services.quality import queries as score_queries
from edgefront.core.services.quality.trust import trust_of
from edgefront.core.services.stored import JOB_REQUEST, LIMITS, PROTOCOL, REFERENCE, RowReader
from edgefront.core.store.tables import Candidate, Job, Target

LOOKED_AT = 32
"""Maximum number of online devices whose facts are checked. With more, one is assumed to support the protocol."""


def job_views(session: Session, jobs: Sequence[Job], now: datetime) -> list[JobView]:
    """Returns views of jobs with their targets, read in a fixed number of queries.

    An unreadable JSON column is replaced by a default value, and the job's reason or the target's note names the
    column.
    """
    targets = job_queries.targets(session, [job.id for job in jobs])
    ids = [target.id for target in targets]
    frontiers = frontier_queries.frontier_points(session, ids)
    baselines = frontier_queries.baseline_points(session, ids)
    online = job_queries.devices_seen(session, [target.device_key for target in targets], now - ONLINE)
    looked_at = {
        target.device_key
        for target in targets
        if target.state in ACTIVE_TARGETS and 0 < online[target.device_key] <= LOOKED_AT
    }
    facts = job_queries.facts_seen(session, sorted(looked_at), now - ONLINE) if looked_at else {}
    deserted = [
        target.device_key for target in targets if target.state in ACTIVE_TARGETS and not online[target.device_key]
    ]
    blocked = job_queries.blocked_devices(session, deserted) if deserted else {}
    marked = candidate_queries.marked_counts(session, ids)
    active = [target.id for target in targets if target.state in ACTIVE_TARGETS]
    live, latencies = demand.live_launches(session, active), candidate_queries.latencies(session, active)
    answers = answers_of(session, jobs, targets)
    queues = work.queue_states(session, now) if active else ()
    views = []
    for job in jobs:
        reader = RowReader()
        request = reader.read(partial(JOB_REQUEST.read, job.request))
        own = [target for target in targets if target.job_id == job.id]
        seconds_left = reader.read(partial(progress.seconds_left, job, request, own, live, latencies, now)) or {}
        of_targets = []
        for target in own:
            key = target.device_key
            note = partial(
                progress.note,
                online=online[key],
                seen=facts.get(key, ()),
                blocked_device=blocked.get(key),
                unserved=_unserved(queues, job, now),
            )
            view = _target_view(job, request, target, note).model_copy(
                update={
                    "marked": marked.get(target.id, 0),
                    "devices_online": online[key],
                    "seconds_left": seconds_left.get(target.id),
                    "answer": answers.get(target.id, ""),
                    "summary": summary_of(frontiers[target.id], as_baseline(baselines[target.id]), target, request),
                }
            )
            of_targets.append(view)
        trust = None if request is None else reader.read(partial(trust_of, session, job, request))
        views.append(
            JobView(
                **{name: getattr(job, name) for name in _OF_JOB},
                state=JobState(job.state),
                reason=reader.note(job.reason),
                request=request or JobRequest(targets=(TargetRequest(),) * len(own)),
                proxy_trust=trust or ProxyTrust(),
                targets=tuple(of_targets),
            )
        )
    return views


def _unserved(queues: Sequence[work.QueueState], job: Job, now: datetime) -> str:
    """Returns a sentence that a queue has had no worker while the job waited; empty if all queues have one."""
    for queue in queues:
        waited_s = min(queue.unserved_s, (now - job.created_at).total_seconds())
        if queue.lacks_worker and waited_s > work.UNSERVED_S:
            return f"Waits for a worker since {waited_s / 60:.0f} min: none takes work from the queue {queue.label!r}."
    return ""


_OF_JOB = ("id", "name", "owner", "created_at", "updated_at", "finished_at", "last_event")
_OF_TARGET = ("id", "name", "generation", "candidates", "settled", "launches_done", "frontier_size", "hypervolume")


def _target_view(job: Job, request: JobRequest | None, target: Target, note: Callable[..., str]) -> TargetView:
    """Returns the view of a target from its row. `note` is a partial `progress.note` with the arguments on devices."""
    reader = RowReader()
    asked = TargetRequest() if request is None else request.targets[target.position]
    device = asked.device or asked.device_class or target.device_key.partition(":")[2]
    said = reader.read(partial(note, job, target, device)) or target.note
    view = TargetView(
        **{name: getattr(target, name) for name in _OF_TARGET},
        device=device,
        state=TargetState(target.state),
        protocol=reader.read(partial(PROTOCOL.read, target.protocol)) or MeasurementProtocol(),
        limits=reader.read(partial(LIMITS.read, target.limits)) or Limits(),
        planned=reader.read(partial(progress.planned, request, target)),
        reference=reader.read(partial(REFERENCE.validate_python, target.reference)),
        measuring_share=min(1.0, target.measuring_s / target.busy_s) if target.busy_s > 0 else None,
        seconds_left=None,
        devices_online=0,
        note="",
        summary="",
    )
    return view.model_copy(update={"note": reader.note(said) or ""})


MAX_KEPT = 4096


_kept: dict[str, tuple[object, str]] = {}
"""Cache: target id → (the values that the answer depends on, the answer). At most `MAX_KEPT` entries."""


def answers_of(session: Session, jobs: Sequence[Job], targets: Sequence[Target]) -> dict[str, str]:
    """Target id → short answer (`RecommendationView.short`) of each ended target. For a job that searches published
    models only the target of the recommended model has an answer, and the other targets have an empty text.

    Answers that are not cached are computed in a fixed number of queries. Each target with trained candidates and each
    job that searches published models needs further queries.
    """
    of_job = {job.id: job for job in jobs}
    ended = [target for target in targets if target.state not in ACTIVE_TARGETS]
    scores = score_queries.scores_of(session, [target.id for target in ended])
    taught = laws.last_refined(session, {job.owner for job in jobs})
    facts: dict[str, object] = {}
    for target in ended:
        job = of_job[target.job_id]
        facts[target.id] = (job.last_event, scores[target.id], taught.get(job.owner))
    answers = {id_: kept[1] for id_ in facts if (kept := _kept.get(id_)) is not None and kept[0] == facts[id_]}
    missing = [target for target in ended if target.id not in answers]
    computed = _computed(session, of_job, missing, scores) if missing else {}
    for target in missing:
        answers[target.id] = computed.get(target.id, "")
        _kept.pop(target.id, None)  # moves the entry to the end: the oldest is dropped first
        _kept[target.id] = (facts[target.id], answers[target.id])
        if len(_kept) > MAX_KEPT:
            _kept.pop(next(iter(_kept)), None)  # another thread may have dropped it already
    return answers


def _computed(
    session: Session, jobs: Mapping[str, Job], targets: Sequence[Target], scores: Mapping[str, score_queries.Scores]
) -> dict[str, str]:
    requests = {target.job_id: JOB_REQUEST.read_or(jobs[target.job_id].request, None) for target in targets}
    published = {id_ for id_, request in requests.items() if request is not None and request.space.published}
    found: dict[str, str] = {}
    for job_id in published:
        reader = RowReader()
        found |= reader.read(partial(choices.short_answers, session, jobs[job_id])) or {}
        found |= {target.id: said for target in targets if target.job_id == job_id and (said := reader.note())}
    searched = [target for target in targets if target.job_id not in published]
    untrained = [
        target
        for target in searched
        if not scores[target.id].number and not laws.names_refined_law(requests[target.job_id])
    ]
    members: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidate_queries.frontiers_and_baselines(session, [target.id for target in untrained]):
        members[candidate.target_id].append(candidate)
    for target in searched:
        job, reader = jobs[target.job_id], RowReader()

        def short(target: Target = target, job: Job = job) -> str:
            limits = LIMITS.read_or(target.limits, Limits())
            if target not in untrained:  # its trainings change which models are predicted to be the best
                return recommendation.inputs_within(session, job, target, limits).short()
            # Without trained candidates the answer is on the frontier or a baseline, so no other candidate is read.
            request = requests[job.id]
            return MeasuredModels(
                proxy=target.proxy,
                limits=limits,
                request=request,
                candidates=tuple(candidate_view(candidate, None) for candidate in members[target.id]),
                trained=(),
                reached={},
                law=laws.readable_law_of(session, job, request),
                dominance=dominance_of(job),
            ).short()

        text = reader.read(short) or ""
        found[target.id] = reader.note() or text
    return found
