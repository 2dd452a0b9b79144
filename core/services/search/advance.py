"""The states of a target (search on a device): baselines → reference point → generations → refining → finished.

Refining returns to the search if further launches find the best model beyond the limits.

1. `advance` takes a step that needs only rows, under the target's row lock, or returns a `ComputeStep` in its `Step`.
2. `ComputeStep.compute` runs without a session.
3. `store` writes the result if the target still waits for the step, else discards the result. The caller then calls
   `advance` again.

These steps are idempotent: repeated, late or killed steps lead to the same candidates. The snapshot of a generation is
stored before its algorithm is called, and the proposals depend only on the snapshot and the target's seed.

All services lock rows in one order: targets, measurements, launches, jobs; rows of one table by id. Events lock the
job, so a step ends its transaction after writing events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.architectures.space import Genome
from edgefront.core.common.states import ACTIVE_TARGETS, CandidateRole, Goal, JobState, Purpose, TargetState
from edgefront.core.schemas.jobs import JobRequest
from edgefront.core.search.depths import next_depths
from edgefront.core.search.interface import Need
from edgefront.core.search.par_supernet import ParSupernet
from edgefront.core.search.pareto.baseline import reference
from edgefront.core.services.fleet.instances import ONLINE
from edgefront.core.services.jobs import frontier as frontier_queries
from edgefront.core.services.jobs import progress
from edgefront.core.services.jobs.comparison import depth_of
from edgefront.core.services.jobs.frontier import rows_of
from edgefront.core.services.jobs.incumbents import has_one_answer, incumbent_of, is_searching
from edgefront.core.services.jobs.progress import baselines_complete, has_next_step
from edgefront.core.services.jobs.queries import candidates as candidate_queries
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.services.jobs.resolved import ResolvedJob, SearchPlan, sizes_of
from edgefront.core.services.jobs.transitions import change_state, end_target
from edgefront.core.services.quality import laws
from edgefront.core.services.search import refining, snapshots, supernets
from edgefront.core.services.search.computing import MORE, NO_TIME, STORE_BATCH, WAIT, Computed, ComputeStep, Step
from edgefront.core.services.search.proposing import (
    BEFORE_SEARCH,
    apply_known_results,
    missing_launches,
    propose,
)
from edgefront.core.services.settings import Settings
from edgefront.core.services.stored import JOB_REQUEST, LIMITS, PROTOCOL
from edgefront.core.services.trainings import queries as training_queries
from edgefront.core.store.clock import is_ahead
from edgefront.core.store.sql import Document
from edgefront.core.store.tables import Generation, Job, Target

CATCH_UP_BATCH = 500
"""Maximum number of candidates that one transaction (some tenths of a second) adds launches or applies results to."""

MAX_EMPTY_GENERATIONS = 5
"""Number of consecutive generations without a measured candidate that ends a search."""


def advance(session: Session, target_id: str, now: datetime) -> Step:
    """Advances a target by one step, in the caller's transaction. A target may not exist, because its job was deleted.

    Applies known results to waiting candidates, adds missing launches, and begins the next phase or generation if the
    present one is complete. If another step follows, the caller commits first.

    Raises `InvalidInput`, with the field, for a request that this release cannot read or carry out.
    """
    row = _live(session, target_id)
    if row is None:
        return WAIT
    target, job = row
    request, limits = JOB_REQUEST.read(job.request), LIMITS.read(target.limits)
    protocol = PROTOCOL.read(target.protocol)
    if target.started_at is not None and is_ahead(target.started_at, now):
        target.started_at = now  # the clock was set back, so the job's minutes start again
    if progress.out_of_time(session, request, target, now):
        unit = "minute" if request.budget.minutes == 1 else "minutes"
        note = f"The budget of {request.budget.minutes:g} {unit} was spent."
        end_target(session, target, TargetState.FINISHED, note, now)
        return WAIT
    if _catch_up(session, request, target, now):
        return MORE
    if target.state == TargetState.REFINING and not refining.is_reopened(session, request, target):
        return refining.refine(session, request, target, now)
    if target.state == TargetState.SEARCHING and is_searching(session, target, request, before=True):
        return WAIT
    plan = ResolvedJob.of(request, laws.law_of(session, job, request)).plan(
        protocol, limits, added=request.targets[target.position].added
    )
    if target.state == TargetState.REFINING:
        return refining.reopen(session, target, plan, now)
    return (_baselines if target.state == TargetState.BASELINES else _search)(session, target, plan, now)


def store(
    session: Session, step: ComputeStep, computed: Computed, now: datetime, settings: Settings | None = None
) -> Step:
    """Writes a computed step in the caller's transaction.

    For a generation, a call writes the next `STORE_BATCH` proposals. Returns the same step to compute while proposals
    are left: the caller must commit and call again with the same result. Nothing is written if the target no longer
    waits for the step (another worker was faster, or the job was paused or has ended). `settings` configure the
    training of a supernet; None reads them from the environment.
    """
    row = _live(session, step.target_id)
    if row is None:
        return WAIT
    target, job = row
    if not _stands(session, target, step):
        return MORE
    if computed.supernet is not None:
        supernets.request_training(session, job, target, computed.supernet, settings or Settings(), now)
        return WAIT
    if not computed.proposed:  # the generation's row stays, because `refining.is_reopened` reads it
        return _end_search(session, target, computed.note or step.plan.exhausted(), now)
    generation = job_queries.find_generation(session, target.id, step.number)
    if generation is None:
        propose(session, target, step.plan, computed.proposed, role=CandidateRole.BASELINE, now=now)
        return Step(more=has_next_step(session, target, now))
    begin, whole = generation.stored, len(computed.proposed)
    part = computed.proposed[begin : begin + STORE_BATCH]
    target.generation = step.number
    generation.proposals, generation.stored = whole, begin + len(part)
    begins = None if begin else whole
    propose(session, target, step.plan, part, role=CandidateRole.SEARCH, now=now, begins=begins)
    if generation.stored < whole:
        return Step(compute=step)
    return Step(more=has_next_step(session, target, now))


def _live(session: Session, target_id: str) -> tuple[Target, Job] | None:
    """Locks the target. Returns the target and the job, if both are active; else None."""
    target = job_queries.lock_target(session, target_id)
    job = None if target is None else job_queries.find(session, target.job_id)
    if target is None or job is None or target.state not in ACTIVE_TARGETS or job.state != JobState.RUNNING:
        return None
    return target, job


def _stands(session: Session, target: Target, step: ComputeStep) -> bool:
    """Whether the locked target still waits for the result of this step."""
    if step.number == BEFORE_SEARCH:
        baselines = candidate_queries.baseline_count(session, target.id)
        return target.state in (TargetState.BASELINES, TargetState.REFINING) and baselines == len(step.depths)
    if target.state != TargetState.SEARCHING:
        return False
    unfinished = _unfinished(session, target)
    if target.generation != step.number - 1 if unfinished is None else unfinished.number != step.number:
        return False
    if step.describes_supernet is not None:
        return training_queries.supernet_of(session, target.id) is None
    stored = job_queries.find_generation(session, target.id, step.number)
    return stored is not None and stored.id == step.generation_id


def _unfinished(session: Session, target: Target) -> Generation | None:
    """Returns the target's generation if only some proposals are stored; otherwise None."""
    if target.generation < 0:
        return None
    last = job_queries.find_generation(session, target.id, target.generation)
    return None if last is None or last.proposals is None or last.stored >= last.proposals else last


def fail(session: Session, target_id: str, note: str, now: datetime) -> None:
    """Marks an active target as failed, with a note."""
    target = job_queries.lock_target(session, target_id)
    if target is not None and target.state in ACTIVE_TARGETS:
        end_target(session, target, TargetState.FAILED, note, now)


def _catch_up(session: Session, request: JobRequest, target: Target, now: datetime) -> bool:
    """Repairs the effects of a crash or a pause: applies at most `CATCH_UP_BATCH` known results and adds at most as
    many missing launches. Returns whether more may be left.
    """
    lacking = candidate_queries.without_launches(session, target.id, CATCH_UP_BATCH)
    with_results = candidate_queries.with_results(session, target.id, CATCH_UP_BATCH)
    baselines = candidate_queries.baselines(session, target.id) if target.state == TargetState.BASELINES else []
    concerned = {baseline.id: baseline for baseline in [*baselines, *lacking, *with_results] if baseline.measurement_id}
    if not concerned:
        return False
    measurements = demand.lock(session, {str(candidate.measurement_id) for candidate in concerned.values()})
    missing = missing_launches(session, concerned.values(), measurements, sizes_of(request).baseline_launches)
    demand.add_launches(session, target, missing, purpose=Purpose.FIRST, now=now)
    applied = apply_known_results(session, target, concerned.values(), measurements, now)
    return applied > 0 or (len(lacking) == CATCH_UP_BATCH and bool(missing))


def _baselines(session: Session, target: Target, plan: SearchPlan, now: datetime) -> Step:
    if target.candidates and not baselines_complete(session, plan.job.request, target):
        return WAIT
    if not sizes_of(plan.job.request).baselines:
        change_state(session, target, TargetState.SEARCHING, plan.algorithm.note, now)
        return MORE
    every = candidate_queries.baselines(session, target.id)
    depths = [depth_of(baseline) for baseline in every]
    in_time = progress.baselines_in_time(session, plan.job.request, target, now)
    if next_depths(depths, plan.baselines(), plan.problem)[:in_time]:
        step = ComputeStep(target.id, BEFORE_SEARCH, plan, target.seed, depths=depths, in_time=in_time)
        return Step(compute=step)
    points = frontier_queries.baseline_points(session, [target.id])[target.id]
    if not points:
        reasons = sorted({baseline.reason or baseline.state for baseline in every})
        note = f"None of the {len(every)} baselines could be measured, so there is no baseline to compare with: "
        end_target(session, target, TargetState.FAILED, note + "; ".join(reasons[:3]), now)
        return WAIT
    target.reference = reference(rows_of(points))
    if (
        target.started_at is None
        and job_queries.devices_seen(session, [target.device_key], now - ONLINE)[target.device_key]
    ):
        target.started_at = now  # the search begins without a new launch of a baseline
    change_state(session, target, TargetState.SEARCHING, refining.opening(len(every), len(points), plan), now)
    return MORE


def _search(session: Session, target: Target, plan: SearchPlan, now: datetime) -> Step:
    """Begins the next generation when no candidate of the latest generation waits for a first or repeated launch.
    Continues a generation of which only some proposals are stored.
    """
    unfinished = _unfinished(session, target)
    budget = plan.job.request.budget.candidates
    proposed_so_far = target.candidates - candidate_queries.baseline_count(session, target.id)
    if unfinished is not None:
        before = proposed_so_far - unfinished.stored
        most = None if budget is None else budget - before
        return _ask(session, target, ComputeStep(target.id, target.generation, plan, target.seed, most=most), now)
    if candidate_queries.any_waiting(session, target.id) or demand.has_live_launch(session, target, Purpose.REPEAT):
        return WAIT
    number = target.generation + 1
    left = None if budget is None else budget - proposed_so_far
    if not plan.has_generation(number) or (left is not None and left <= 0):
        why = f"All {number:,} generations of the algorithm were made."
        if left is not None and left <= 0:
            why = f"The budget of {budget:,} candidate{'' if budget == 1 else 's'} was spent."
        return _end_search(session, target, why, now)
    step = ComputeStep(target.id, number, plan, target.seed, most=left)
    in_time = progress.launches_in_time(session, plan.job.request, target, now)
    if in_time is not None and plan.problem.goal == Goal.BEST_WITHIN_LIMITS:
        has_answer = has_one_answer(plan.job.request) and incumbent_of(session, target) is not None
        in_time = max(in_time - progress.RESERVED, 0 if proposed_so_far or has_answer else 1)
        if not in_time:
            return _end_search(session, target, NO_TIME, now)
        step = replace(step, in_time=in_time, mean_flops=candidate_queries.mean_flops(session, target))
    if number >= MAX_EMPTY_GENERATIONS and not candidate_queries.measured_since(
        session, target.id, number - MAX_EMPTY_GENERATIONS
    ):
        return _end_search(
            session,
            target,
            f"The last {MAX_EMPTY_GENERATIONS} generations had no candidate that could be measured.",
            now,
        )
    return _ask(session, target, step, now)


def _ask(session: Session, target: Target, step: ComputeStep, now: datetime) -> Step:
    """Returns the step that computes the generation; `WAIT` while an input of the step is missing."""
    plan, number = step.plan, step.number
    needs, search = plan.algorithm.needs(number), plan.algorithm
    if Need.CANDIDATE_POOL in needs:
        pool = _candidate_pool(session, target, plan.job.request)
        if pool is None:  # the sweep advances the target again
            return WAIT
        step = replace(step, candidate_pool=pool)
    if Need.SUPERNET in needs and isinstance(search, ParSupernet):
        training = training_queries.supernet_of(session, target.id)
        if training is None:
            snapshot = snapshots.take(session, target.id, number)[1]
            return Step(compute=replace(step, snapshot=snapshot, describes_supernet=search))
        probabilities = supernets.result(session, target, search, training, now)
        if probabilities is None:
            return WAIT
        step = replace(step, supernet=probabilities)
    stored = job_queries.find_generation(session, target.id, number)
    if stored is not None:  # computed before, but its worker died
        snapshot = snapshots.restore(session, target.id, number)
        data = None if stored.device_data is None else snapshots.load_device_data(session, stored.device_data)
    else:
        changes, snapshot = snapshots.take(session, target.id, number)
        data = None
        if Need.DEVICE_DATA in needs:
            data = snapshots.take_device_data(session, target, with_incumbent=Need.INCUMBENT in needs)
        stored = job_queries.add_generation(session, target.id, number, changes, now)
        stored.device_data = None if data is None else dict(data.stored)
    return Step(compute=replace(step, snapshot=snapshot, device_data=data, generation_id=stored.id))


def _end_search(session: Session, target: Target, why: str, now: datetime) -> Step:
    """Ends the search and begins refining. `why` is a sentence."""
    note = f"{target.note} The search ended: {why[:1].lower()}{why[1:]}".strip()
    change_state(session, target, TargetState.REFINING, note, now)
    refining.wake_others(session, target, JOB_REQUEST.read(session.get_one(Job, target.job_id).request))
    return MORE


def _candidate_pool(
    session: Session, target: Target, request: JobRequest
) -> Sequence[tuple[Genome, Document, float]] | None:
    """Returns all candidates of the job's original targets; None while an original target is active, because the
    candidates are not final before.
    """
    own = [
        sibling
        for sibling in job_queries.targets(session, [target.job_id])
        if not request.targets[sibling.position].added
    ]
    if any(sibling.state in ACTIVE_TARGETS for sibling in own):
        return None
    return candidate_queries.scored(session, [sibling.id for sibling in own])
