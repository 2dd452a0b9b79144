"""Moves a target on: baselines → reference point → generations → refining → finished.

A step either needs the rows alone and is taken under the target's row lock, or it has to compute first. Then `advance`
gives a `ComputeStep`, which is computed without a session, and `store` writes the result if the target still waits for
it. Otherwise the result is thrown away, and the target looked at again.

Idempotent: run twice, late, or killed at any instant and run again, it comes to the same candidates, because the
snapshot of a generation is stored before its algorithm is asked, and the snapshot and the target's seed alone decide
what it proposes. A claim on the generation only saves a second worker the same work.

Locks are taken in one order by all services: targets, measurements, launches, jobs, each by id. Events lock the job, so
a step that has written any ends there, and the next begins with a transaction of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from edgefront.core.errors import InvalidInput
from edgefront.core.pareto.baseline import reference
from edgefront.core.search.extension import Extension
from edgefront.core.search.par_supernet import ParSupernet
from edgefront.core.search.surrogate import Surrogate
from edgefront.core.services.jobs import progress
from edgefront.core.services.jobs.closing import change_state, end_target
from edgefront.core.services.jobs.comparison import rows_of
from edgefront.core.services.jobs.due import baselines_complete, due
from edgefront.core.services.jobs.plan import SearchPlan, plan_for
from edgefront.core.services.jobs.queries import candidates as candidate_rows
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.jobs.queries import jobs as job_rows
from edgefront.core.services.measuring import refinement
from edgefront.core.services.quality import laws, scoring
from edgefront.core.services.quality import queries as proxy_rows
from edgefront.core.services.search import device_data, extension, snapshots, supernets
from edgefront.core.services.search.computing import BASELINES, Computed, ComputeStep
from edgefront.core.services.search.proposing import (
    FIRST_PRIORITY,
    missing_launches,
    propose,
    settle_known,
)
from edgefront.core.services.search.supernets import WantedSupernet
from edgefront.core.services.settings import Settings
from edgefront.core.services.stored import JOB_REQUEST, LIMITS, PROTOCOL
from edgefront.core.services.trainings.queries import trainings as training_rows
from edgefront.core.states import ACTIVE_TARGETS
from edgefront.core.store.tables import Job, Target

BARREN = 5
"""After so many generations in a row of which nothing could be measured a search ends."""

CLAIM = timedelta(seconds=20)
"""A claim that is not extended for so long belonged to a worker that died: another computes the same."""


def advance(session: Session, target_id: str, now: datetime) -> bool | ComputeStep:
    """One step of a target, in the caller's transaction.

    Settles waiting candidates whose measurement is known by now, makes the launches that are missing, and if the
    phase or generation is complete asks for the next. Returns True if another step can be taken at once (the worker
    then commits and calls again); a step that has to be computed and stored first; False if the target waits for
    devices, or for a worker that computes, or has ended. An unknown target is no error: its job may have been
    deleted.

    Raises `InvalidInput` that names the field where what was asked cannot be read or carried out by this release.
    """
    found = _live(session, target_id)
    if found is None:
        return False
    target, job = found
    request, limits = JOB_REQUEST.read(job.request), LIMITS.read(target.limits)
    protocol = PROTOCOL.read(target.protocol)
    revoked = job_rows.revoked_device(session, target.device_key)
    if revoked is not None:
        note = f"The device {revoked!r} was revoked. Enrol it again, or choose another, and submit the job again."
        end_target(session, target, "failed", note, now)
        return False
    if progress.out_of_time(request, target, now):
        unit = "minute" if request.budget.minutes == 1 else "minutes"
        note = f"The budget of {request.budget.minutes:g} {unit} was spent."
        end_target(session, target, "finished", note, now)
        return False
    if _catch_up(session, target, now):
        return True
    if target.state == "refining":
        return _refine(session, target, now)
    plan = plan_for(
        request,
        protocol,
        limits,
        laws.refined_law(session, request),
        added=request.targets[target.position].added,
    )
    if target.state == "baselines":
        return _baselines(session, target, plan, now)
    return _search(session, target, plan, now)


def store(
    session: Session,
    step: ComputeStep,
    computed: Computed | WantedSupernet,
    now: datetime,
    settings: Settings | None = None,
) -> bool:
    """Writes what was computed, in the caller's transaction; returns whether another step can be taken at once.

    Where the target no longer waits for it (another worker was faster, or the job was paused or has ended) nothing is
    written. `settings` say how a supernet is trained; the environment's if absent.
    """
    found = _live(session, step.target_id)
    if found is None:
        release(session, [step])
        return False
    target, job = found
    if step.plan.request.proxy_settings.get("law") != JOB_REQUEST.read(job.request).proxy_settings.get("law"):
        release(session, [step])  # the job was moved to another law meanwhile
        return True
    if not _stands(session, target, step):
        return True
    release(session, [step])
    if isinstance(computed, WantedSupernet):
        supernets.request_training(session, job, target, computed, settings or Settings(), now)
        return False
    if not computed.proposed:
        job_rows.remove_generation(session, step.generation_id)
        return _end_search(session, target, computed.note or step.plan.exhausted(), now)
    scores = computed.scores
    if scores is None:
        target.proxy_data = computed.scorer.settings.data
        architectures = [item.architecture for item in computed.proposed]
        scores = scoring.stored_scores(session, target, computed.scorer, architectures, now)
    if scores is None:
        return False  # nothing is measured before
    role = "baseline" if step.number == BASELINES else "search"
    target.generation = step.number
    propose(session, job, target, step.plan, computed.proposed, scores, role=role, now=now)
    return due(session, target, now)


def extend(session: Session, steps: Sequence[ComputeStep], now: datetime) -> None:
    """Keeps steps that are being computed claimed for `CLAIM` from now."""
    job_rows.extend_claims(session, _claimed(steps), now + CLAIM)


def release(session: Session, steps: Sequence[ComputeStep]) -> None:
    """Gives steps up: any worker may compute them at once."""
    job_rows.release_claims(session, _claimed(steps))


def _claimed(steps: Sequence[ComputeStep]) -> list[str]:
    return [step.generation_id for step in steps if step.generation_id is not None]


def _live(session: Session, target_id: str) -> tuple[Target, Job] | None:
    """The target, locked, and its job, if both are active."""
    target = job_rows.lock_target(session, target_id)
    job = None if target is None else job_rows.find(session, target.job_id)
    if target is None or job is None or target.state not in ACTIVE_TARGETS or job.state != "running":
        return None
    return target, job


def _stands(session: Session, target: Target, step: ComputeStep) -> bool:
    """Whether the target, which is locked, still waits for the result of this step."""
    if step.number == BASELINES:
        return target.state == "baselines" and target.candidates == 0
    if target.state != "searching" or target.generation != step.number - 1:
        return False
    if step.needs_supernet:
        return training_rows.supernet_of(session, target.id) is None
    stored = job_rows.find_generation(session, target.id, step.number)
    return stored is not None and stored.id == step.generation_id


def fail(session: Session, target_id: str, note: str, now: datetime) -> None:
    """Ends a target that cannot continue, and says why. One that has ended is left as it is."""
    target = job_rows.lock_target(session, target_id)
    if target is not None and target.state in ACTIVE_TARGETS:
        end_target(session, target, "failed", note, now)


def stalled(session: Session, now: datetime) -> list[str]:
    """Ids of the targets of running jobs for which `advance` should be sent again: for the sweep."""
    ending = [target.id for target, job in job_rows.active_targets(session) if _must_end(target, job, now)]
    homeless = job_rows.homeless_targets(session)
    return list(dict.fromkeys(job_rows.idle_targets(session) + homeless + ending))


def _must_end(target: Target, job: Job, now: datetime) -> bool:
    """Whether its time is over, or what was asked of it cannot be read by this release."""
    try:
        PROTOCOL.read(target.protocol)
        LIMITS.read(target.limits)
        return progress.out_of_time(JOB_REQUEST.read(job.request), target, now)
    except InvalidInput:
        return True


def _catch_up(session: Session, target: Target, now: datetime) -> bool:
    """Puts right what a crash or a pause left: known results not taken in, launches that nobody makes."""
    waiting = candidate_rows.in_state(session, target.id, "waiting")
    baselines = candidate_rows.baselines(session, target.id) if target.state == "baselines" else []
    concerned = {candidate.id: candidate for candidate in [*baselines, *waiting] if candidate.measurement_id}
    if not concerned:
        return False
    measurements = demand.lock(session, {str(candidate.measurement_id) for candidate in concerned.values()})
    missing = missing_launches(session, concerned.values(), measurements)
    demand.add_launches(session, target, missing, purpose="first", priority=FIRST_PRIORITY, now=now)
    return settle_known(session, target, waiting, measurements, now) > 0


def _baselines(session: Session, target: Target, plan: SearchPlan, now: datetime) -> bool | ComputeStep:
    if target.candidates == 0:
        if proxy_rows.waiting(session, [target.id]):
            return False
        return ComputeStep(target.id, BASELINES, plan, target.seed, target.proxy_data)
    if not baselines_complete(session, target):
        return False
    points = candidate_rows.baseline_points(session, [target.id])[target.id]
    every = candidate_rows.baselines(session, target.id)
    if not points:
        reasons = sorted({baseline.reason or baseline.state for baseline in every})
        note = f"None of the {len(every)} baselines could be measured, so there is no baseline to compare with: "
        end_target(session, target, "failed", note + "; ".join(reasons[:3]), now)
        return False
    target.reference = reference(rows_of(points))
    without = len(every) - len(points)
    note = (
        f"{without} of {len(every)} baselines could not be measured; the comparison uses the others." if without else ""
    )
    note = " ".join(text for text in (note, plan.algorithm.note) if text)
    change_state(session, target, "searching", note, now)
    return True


def _search(session: Session, target: Target, plan: SearchPlan, now: datetime) -> bool | ComputeStep:
    """Asks for the next generation once nothing of the last one waits for its first launch."""
    if candidate_rows.any_in_state(session, target.id, "waiting"):
        return False
    number = target.generation + 1
    proposed_so_far = target.candidates - len(candidate_rows.baselines(session, target.id))
    budget = plan.request.budget.candidates
    left = None if budget is None else budget - proposed_so_far
    if not plan.has_generation(number) or (left is not None and left <= 0):
        return _end_search(session, target, "", now)
    if number >= BARREN and not candidate_rows.measured_since(session, target.id, number - BARREN):
        return _end_search(
            session, target, f"The last {BARREN} generations had no candidate that could be measured.", now
        )
    if proxy_rows.waiting(session, [target.id]):
        return False
    step = ComputeStep(target.id, number, plan, target.seed, target.proxy_data, most=left)
    algorithm = plan.algorithm
    if isinstance(algorithm, Extension):
        offers = extension.offers(session, target, plan.request)
        if offers is None:  # the sweep sends it again
            return False
        step = replace(step, offers=offers)
    if isinstance(algorithm, ParSupernet) and algorithm.needs_supernet(number):
        training = training_rows.supernet_of(session, target.id)
        if training is None:
            snapshot = snapshots.take(session, target.id, number)[1]
            return replace(step, snapshot=snapshot, needs_supernet=True)
        knowing = supernets.with_result(session, target, algorithm, training, now)
        if knowing is None:
            return False
        step = replace(step, plan=replace(plan, algorithm=knowing))
    stored = job_rows.find_generation(session, target.id, number)
    if stored is not None and stored.claimed_until is not None and stored.claimed_until > now:
        return False  # a worker computes it
    if stored is not None:  # it was asked before: its worker died, or it has waited for its scores
        snapshot = snapshots.restore(session, target.id, number)
        data = None if stored.device_data is None else device_data.load(session, stored.device_data)
    else:
        changes, snapshot = snapshots.take(session, target.id, number)
        data = device_data.take(session, target) if isinstance(algorithm, Surrogate | Extension) else None
        stored = job_rows.add_generation(session, target.id, number, changes, now)
        stored.device_data = None if data is None else dict(data.stored)
    stored.claimed_until = now + CLAIM
    return replace(step, snapshot=snapshot, device_data=data, generation_id=stored.id)


def _end_search(session: Session, target: Target, note: str, now: datetime) -> bool:
    change_state(session, target, "refining", " ".join(text for text in (target.note, note) if text), now)
    return True


def _refine(session: Session, target: Target, now: datetime) -> bool:
    """Further launches of frontier points that are not certain, until all are or the budget is spent."""
    if demand.has_live_launch(session, target):
        return False
    uncertain = refinement.uncertain(session, target)
    if uncertain:
        demand.add_launches(session, target, uncertain, purpose="refinement", priority=refinement.PRIORITY, now=now)
        target.refinements += len(uncertain)
    else:
        end_target(session, target, "finished", target.note, now)
    return False
