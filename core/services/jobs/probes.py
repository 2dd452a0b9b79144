"""Probes of a job: the few small trainings that make its answer surest, and its move to the law that they refine.

The trainings are ordinary ones of the pool. A row remembers for which job they are made. Once all have ended and their
law is refitted, whoever notices first (the worker of the refit, or the sweep) requests the job's move, which is that of
`jobs.law`: nothing waits in between, and nothing is lost when processes end. `probe_choice` chooses the trainings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.errors import Conflict, NotFound
from edgefront.core.quality.shipped import law_for
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import job_of
from edgefront.core.services.idempotency import add_once, check_key, check_same, request_digest
from edgefront.core.services.jobs import law as job_law
from edgefront.core.services.jobs import recommendation
from edgefront.core.services.jobs.probe_choice import ChosenTrainings, answer_of, choose_trainings
from edgefront.core.services.jobs.queries import jobs as job_rows
from edgefront.core.services.jobs.queries import probes as rows
from edgefront.core.services.quality import laws
from edgefront.core.services.settings import Settings
from edgefront.core.services.spaces import space_of
from edgefront.core.services.stored import JOB_REQUEST, PROBE_PLAN
from edgefront.core.services.trainings.lifecycle import create_planned
from edgefront.core.states import ENDED_TRAININGS, KeyRole, ProbeState
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Job, Probe, Training
from edgefront.core.wire.probes import ProbeRequest, ProbeView

# Starting ------------------------------------------------------------------------------------------------------------


def start(
    database: Database,
    principal: Principal,
    job_id: str,
    asked: ProbeRequest,
    settings: Settings,
    idempotency_key: str | None = None,
) -> ProbeView:
    """Chooses the trainings, and stores them unless a plan alone is asked for. The same `idempotency_key` of the same
    owner with the same request returns what was started the first time.

    Raises:
        InvalidInput: no law is about the space's models; recipe, data set or bounds are invalid; names the field.
        NotFound: no such job or target.
        Conflict: nothing measured is within the limits, or trainings of the job are under way already.
        BoundReached: the owner has as many trainings as the admin allows.
    """
    principal.require(KeyRole.USER)
    digest = request_digest({"job": job_id, **asked.model_dump(mode="json", exclude_defaults=True)})
    with database.read() as session:
        former = None
        if idempotency_key is not None:
            check_key(idempotency_key)
            former = rows.find_by_key(session, principal.owner, idempotency_key)
        if former is None and not asked.dry_run:
            _check_none_open(session, job_of(session, principal, job_id))
    if former is not None:
        check_same(former.request_digest, digest, f"probe {former.id}")
        return view(database, principal, job_id)
    chosen = choose_trainings(database, principal, job_id, asked, settings)
    if asked.dry_run:
        return ProbeView(**dict(chosen.plan), id=None, job_id=job_id, state=ProbeState.PLANNED)
    with database.write() as session:
        job = job_rows.lock_job(session, job_id) or job_of(session, principal, job_id)
        _store(session, principal, job, chosen, (digest, idempotency_key), database.now(session))
    return view(database, principal, job_id)


def _store(
    session: Session,
    principal: Principal,
    job: Job,
    chosen: ChosenTrainings,
    request: tuple[str, str | None],
    now: datetime,
) -> None:
    """The probe with its trainings, under the job's lock. `request` is its digest and idempotency key."""
    digest, key = request
    probe = Probe(
        job_id=job.id, owner=principal.owner, request_digest=digest, idempotency_key=key, plan={}, created_at=now
    )

    def former() -> Probe | None:
        return None if key is None else rows.find_by_key(session, principal.owner, key)

    first = former()
    if first is None:
        _check_none_open(session, job)
        first = add_once(session, [probe], former)
    if first is not None:  # another request was faster with the same key
        check_same(first.request_digest, digest, f"probe {first.id}")
        return
    made = [create_planned(session, principal, each, now)[0] for each in chosen.trainings]
    trainings = tuple(
        planned.model_copy(update={"training_id": training.id})
        for planned, training in zip(chosen.plan.trainings, made, strict=True)
    )
    plan = chosen.plan.model_copy(update={"trainings": trainings})
    probe.plan = plan.model_dump(mode="json")
    session.flush()


def _check_none_open(session: Session, job: Job) -> None:
    probe = rows.newest(session, job.id)
    if probe is not None and probe.finished_at is None:
        raise Conflict(
            f"trainings of job {job.id} are under way already (probe {probe.id}): wait until they have ended, or "
            "cancel them"
        )


# Reading -------------------------------------------------------------------------------------------------------------


def view(database: Database, principal: Principal, job_id: str) -> ProbeView:
    """The job's latest probe. NotFound if there is no such job, or it is another owner's, or it has none."""
    with database.read() as session:
        job = job_of(session, principal, job_id)
        probe = rows.newest(session, job.id)
        if probe is None:
            raise NotFound(f"job {job_id} has no probe: no trainings to make its answer surer were started")
        plan = PROBE_PLAN.read(probe.plan)
        trainings = rows.trainings(session, [each.training_id for each in plan.trainings if each.training_id])
        state = _state(probe, job, list(trainings.values()))
        after = None
        if state == ProbeState.DONE:
            after = recommendation.read(session, principal, job_id, plan.target_id, plan.limits)
    shown = []
    for each in plan.trainings:
        training = trainings.get(each.training_id or "")
        shown.append(each.model_copy(update={"state": None if training is None else training.state}))
    return ProbeView(
        **dict(plan) | {"trainings": tuple(shown)},
        id=probe.id,
        job_id=job_id,
        state=state,
        law=probe.law,
        reason=probe.reason,
        after=None if after is None else answer_of(after),
        created_at=probe.created_at,
        finished_at=probe.finished_at,
    )


def _state(probe: Probe, job: Job, trainings: Sequence[Training]) -> ProbeState:
    if probe.finished_at is None:
        ended = all(training.state in ENDED_TRAININGS for training in trainings)
        return ProbeState.LEARNING if ended else ProbeState.TRAINING
    if probe.law is None:
        return ProbeState.FAILED
    return ProbeState.MOVING if job.wanted_law == probe.law else ProbeState.DONE


# Moving --------------------------------------------------------------------------------------------------------------


def move_learnt(session: Session, now: datetime) -> None:
    """Requests the moves of the jobs whose trainings have ended and whose law was refitted; called after each refit,
    and by the sweep.
    """
    for probe in rows.open_probes(session):
        ids = _training_ids(probe)
        trainings = rows.trainings(session, ids)
        if any(training.state not in ENDED_TRAININGS for training in trainings.values()):
            continue
        learnt = dict(rows.comparability_keys(session, ids))
        if any(rows.is_refit_wanted(session, key) for key in set(learnt.values())):
            continue
        job = job_rows.lock_job(session, probe.job_id)
        still_open = rows.read_open(session, probe.id)
        if job is not None and still_open is not None:
            _finish(session, job, still_open, trainings, learnt, now)


def _finish(
    session: Session,
    job: Job,
    probe: Probe,
    trainings: Mapping[str, Training],
    learnt: Mapping[str, str],
    now: datetime,
) -> None:
    """`trainings` are all that there still are, by id; `learnt` the comparability key of those with a perplexity."""
    asked = len(_training_ids(probe))
    probe.finished_at = now
    if not learnt:
        reasons = [f"{each.id} is {each.state}: {each.reason or 'no perplexity'}" for each in trainings.values()]
        probe.reason = f"no training ended with a perplexity: {'; '.join(reasons) or 'all were deleted'}"
        return
    request = JOB_REQUEST.read_or(job.request, None)
    base = None if request is None else law_for(space_of(request.space))
    version = None if base is None else rows.newest_law(session, next(iter(learnt.values())), base.origin.name)
    if version is None:
        probe.reason = "no law of the job's family could be refined by the trainings"
        return
    if len(learnt) < asked:
        probe.reason = f"{asked - len(learnt)} of {asked} trainings ended without a perplexity"
    probe.law = laws.reference(version)
    session.flush()
    job_law.request_move(session, job, probe.law, now)


def _training_ids(probe: Probe) -> list[str]:
    return [each.training_id for each in PROBE_PLAN.read(probe.plan).trainings if each.training_id]
