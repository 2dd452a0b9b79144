"""Refining: further launches after the search, for candidates that may change the frontier or the answer.

1. A candidate is uncertain if the 95 % interval of the latency is wider than the protocol's precision, and the
   candidate is on the frontier, or would be with the lower end of the interval. Uncertain candidates and baselines get
   further launches.
2. If the goal is the best model within limits, only the best model and its baseline (the largest stock model within
   the limits, or the user's model) get further launches: at least two each, made in turns, so that their ratio is that
   of one time.
3. Then better models that a single launch put near the limits, but beyond them, get a second launch.
4. If the best model is found beyond the limits, the target returns to the search.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from datetime import datetime

from sqlalchemy import case, or_, select, true
from sqlalchemy.orm import Session, aliased

from edgefront.core.common.states import (
    ACTIVE_TARGETS,
    LIVE_LAUNCHES,
    MEASURED_CANDIDATES,
    CandidateRole,
    CandidateState,
    Goal,
    LaunchState,
    Purpose,
    TargetState,
)
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.statistics import DECISIVE, LaunchVariance, relative_half_width
from edgefront.core.schemas.jobs import JobRequest
from edgefront.core.search.depths import MAX_DEPTHS_AT_END, next_depths
from edgefront.core.search.interface import Incumbent
from edgefront.core.search.pareto.frontier import Dominance
from edgefront.core.services import tasks
from edgefront.core.services.jobs import frontier as frontier_queries
from edgefront.core.services.jobs import progress
from edgefront.core.services.jobs.comparison import depth_of, starts_from_model
from edgefront.core.services.jobs.frontier import dominance_of
from edgefront.core.services.jobs.incumbents import (
    best_of_job,
    bits_of,
    has_one_answer,
    incumbent_of,
    is_searching,
    target_ahead,
)
from edgefront.core.services.jobs.queries import candidates as candidate_queries
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.services.jobs.resolved import ResolvedJob, SearchPlan
from edgefront.core.services.jobs.transitions import change_state, end_target
from edgefront.core.services.measuring.queries import launches
from edgefront.core.services.measuring.queries import measurements as measurement_queries
from edgefront.core.services.measuring.queries.measurements import SAME_TIME
from edgefront.core.services.quality import laws
from edgefront.core.services.search import snapshots
from edgefront.core.services.search.computing import MORE, WAIT, ComputeStep, Step
from edgefront.core.services.search.proposing import BEFORE_SEARCH
from edgefront.core.services.stored import JOB_REQUEST, LIMITS, PROTOCOL
from edgefront.core.store.database import enqueue
from edgefront.core.store.tables import Candidate, Job, Launch, Measurement, Target

SPREAD_UNKNOWN = 2
"""Number of launches of each frontier point while the scatter of launches is unknown."""
MAX_EXCLUDED = 12
"""Maximum number of models just beyond the limits that get a second launch."""
DISTURBED = 0.75
"""Lowest share of launches in disturbed conditions that the target's note mentions."""


def refine(session: Session, request: JobRequest, target: Target, now: datetime) -> Step:
    """Adds launches of uncertain candidates until no candidate is uncertain or the budget is spent. Then adds launches
    of stock models and other models that were judged by one launch. Ends the target when no launch is left to add.
    """
    if has_one_answer(request):
        ahead = target_ahead(session, target)
        if ahead is not None and ahead.state in ACTIVE_TARGETS:
            return WAIT  # that target's model may be found beyond the limits; then this target has the answer
        if is_searching(session, target, request):
            return WAIT  # that target may find a better model
    if demand.has_live_launch(session, target):
        return WAIT
    in_time = progress.launches_in_time(session, request, target, now)
    further = uncertain(session, target)[:in_time]
    if not further and in_time != 0:
        step = _last_depth(session, target, request)
        if step is not None:
            return Step(compute=step)
        further = _excluded_once(session, request, target) if request.budget.refinement else []
    if further:
        demand.add_launches(session, target, further, purpose=Purpose.REFINEMENT, now=now)
        target.refinements += len(further)
        return WAIT
    end_target(session, target, TargetState.FINISHED, _closing(session, target), now)
    wake_others(session, target, request)
    return WAIT


def wake_others(session: Session, target: Target, request: JobRequest) -> None:
    """Advances the targets of a job with one answer, which may have waited for this one."""
    for other in job_queries.targets(session, [target.job_id]) if has_one_answer(request) else ():
        enqueue(session, tasks.ADVANCE, target_id=other.id)


def uncertain(session: Session, target: Target, most: int | None = None) -> list[str]:
    """Returns measurement ids for further launches, the widest interval first, at most `most` (default: the remaining
    budget).

    Empty when no candidate is uncertain, or the budget or `max_launches` is spent. Measurements with a pending launch
    are left out.
    """
    most = _left(session, target) if most is None else most
    if most < 1:
        return []
    job = session.get_one(Job, target.job_id)
    variance = measurement_queries.launch_variance(session, target.device_key, target.protocol_digest)
    factors, only = optimism(PROTOCOL.read(target.protocol), variance), None
    request = JOB_REQUEST.read_or(job.request, None)
    if request is not None and request.goal == Goal.BEST_WITHIN_LIMITS:
        factors = {1: 1.0} | factors  # an answer needs two launches
        pair = _answer_and_baseline(session, request, target)
        since = max([job.created_at, *(row.measured_at for row in pair if row.measured_at is not None)]) - SAME_TIME
        if any(row.measured_at is None or row.measured_at < since for row in pair):
            return [str(row.measurement_id) for _ in range(DECISIVE) for row in pair][:most]
        only = [row.id for row in pair]
    return _refinable(session, target.id, factors, dominance_of(job), only)[:most]


def _answer_and_baseline(session: Session, request: JobRequest, target: Target) -> list[Candidate]:
    """Returns the best model within the limits and its baseline: the user's model within the limits or not, or the
    largest stock model within them.
    """
    answer = candidate_queries.best_within_limits(session, target.id)
    states = MEASURED_CANDIDATES if starts_from_model(request) else (CandidateState.MEASURED,)
    stock = [row for row in candidate_queries.baselines(session, target.id) if row.state in states]
    baseline = max(stock, key=lambda row: row.decoder_parameters, default=None)
    return [row for row in (answer, baseline) if row is not None]


def optimism(protocol: MeasurementProtocol, variance: LaunchVariance) -> dict[int, float]:
    """Returns number of launches → factor from a latency to the interval's lower end, if the interval is too wide."""
    factors: dict[int, float] = {}
    for number in range(1, protocol.max_launches):
        half = relative_half_width(number, variance)
        if half is None:
            if number < SPREAD_UNKNOWN:
                factors[number] = 1.0
        elif math.sinh(half) > protocol.precision:
            factors[number] = math.exp(-half)
    return factors


def _left(session: Session, target: Target) -> int:
    """Remaining budget of further launches, a share of the searched candidates; 0 if the job has one answer over all
    targets, found on another target.
    """
    request = JOB_REQUEST.read(session.get_one(Job, target.job_id).request)
    if has_one_answer(request) and target_ahead(session, target) is not None:
        return 0
    share, searched = (
        request.budget.refinement,
        target.candidates - candidate_queries.baseline_count(session, target.id),
    )
    least = progress.RESERVED if share and request.goal == Goal.BEST_WITHIN_LIMITS else 0
    return max(least, int(share * max(0, searched))) - target.refinements


def _refinable(
    session: Session,
    target_id: str,
    optimism: Mapping[int, float],
    dominance: Dominance,
    only: Collection[str] | None = None,
) -> list[str]:
    """Returns measurement ids of baselines, of frontier candidates, and of candidates that no candidate dominates at
    the optimistic latency (lower end of the interval).

    Order: frontier candidates and baselines first, then the fewest launches, then the best quality. Measurements with a
    live launch are left out.

    Args:
        optimism: number of launches → factor from a latency to the lower end of its interval; measurements with other
            numbers of launches are left out.
        dominance: the dominance relation of the job.
        only: ids of the candidates to consider; None: all.
    """
    if not optimism:
        return []
    member, factor = aliased(Candidate), 1.0 + dominance.epsilon
    hopeful = Candidate.latency_ms * case(optimism, value=Measurement.launches)
    raised = (
        member.proxy + math.log1p(dominance.epsilon)
        if dominance.logarithmic
        else case((member.proxy > 0, member.proxy * factor), else_=member.proxy / factor)
    )
    dominated = select(member.id).where(
        member.target_id == Candidate.target_id,
        member.on_frontier == true(),
        raised >= Candidate.proxy,
        member.memory_bytes <= Candidate.memory_bytes * factor,
        member.latency_ms <= hopeful * factor,
    )
    coming = select(Launch.id).where(Launch.measurement_id == Measurement.id, Launch.state.in_(LIVE_LAUNCHES))
    comes_first = or_(Candidate.role == CandidateRole.BASELINE, Candidate.on_frontier == true())
    query = (
        select(Measurement.id)
        .join(Candidate, Candidate.measurement_id == Measurement.id)
        .where(
            Candidate.target_id == target_id,
            Candidate.state.in_(MEASURED_CANDIDATES if only else (CandidateState.MEASURED,)),
            Measurement.launches.in_(optimism),
            or_(comes_first, ~dominated.exists()),
            ~coming.exists(),
        )
        .order_by(comes_first.desc(), Measurement.launches, Candidate.proxy.desc(), Candidate.number)
    )
    return list(session.scalars(query if only is None else query.where(Candidate.id.in_(only))))


def _last_depth(session: Session, target: Target, request: JobRequest) -> ComputeStep | None:
    """Returns the step that proposes another depth of the stock model, if further launches found the deepest stock
    model within the limits to be beyond the limits. Else None.
    """
    every = candidate_queries.baselines(session, target.id)
    if request.goal != Goal.BEST_WITHIN_LIMITS or not every or target.candidates >= candidate_queries.MAX_BASELINES:
        return None
    asked = request.targets[target.position]
    law = laws.law_of(session, session.get_one(Job, target.job_id), request)
    plan = ResolvedJob.of(request, law).plan(
        PROTOCOL.read(target.protocol), LIMITS.read(target.limits), added=asked.added
    )
    depths = [depth_of(baseline) for baseline in every]
    if not next_depths(depths, plan.baselines(), plan.problem, MAX_DEPTHS_AT_END):
        return None
    return ComputeStep(target.id, BEFORE_SEARCH, plan, target.seed, most=MAX_DEPTHS_AT_END, depths=depths)


def _excluded_once(session: Session, request: JobRequest, target: Target) -> list[str]:
    """Returns measurement ids of models that one launch put just beyond the limits and that could be the answer."""
    score, ties = None, False
    if has_one_answer(request):
        best = best_of_job(session, target)
        score, ties = (-math.inf, True) if best is None else (best.quality, bits_of(target) > best.bits)
    elif request.goal == Goal.BEST_WITHIN_LIMITS:
        answer = candidate_queries.best_within_limits(session, target.id)
        score = -math.inf if answer is None else answer.proxy
    limits = LIMITS.read(target.limits)
    near = candidate_queries.just_beyond(session, target.id, limits, MAX_EXCLUDED, score=score, ties=ties)
    ids = [str(row.measurement_id) for row in near]
    counts = demand.launch_counts(session, ids)
    return [
        id_
        for id_ in ids
        if counts[id_].total() - counts[id_][LaunchState.CANCELLED] < DECISIVE
        and not any(counts[id_][state] for state in LIVE_LAUNCHES)
    ]


def is_reopened(session: Session, request: JobRequest, target: Target) -> bool:
    """Whether launches after the end of the search found the best model of the search beyond the limits."""
    if request.goal != Goal.BEST_WITHIN_LIMITS or demand.has_live_launch(session, target):
        return False
    last = job_queries.find_generation(session, target.id, target.generation + 1)
    if last is None:
        return False  # the budget was spent
    incumbent_then = (last.device_data or {}).get("incumbent")
    if incumbent_then is not None:
        incumbent = incumbent_of(session, target)
        if incumbent is None or incumbent.rank < Incumbent(**incumbent_then).rank:
            return True  # the incumbent that ended the search is beyond the limits
    then = snapshots.restore(session, target.id, target.generation + 1).in_bounds()
    best = max(then, key=lambda model: (model.proxy, model.digest), default=None)
    now = {row.id: row.state for row in candidate_queries.search_rows(session, target.id)}
    return best is not None and now[best.id] != "measured"


def reopen(session: Session, target: Target, plan: SearchPlan, now: datetime) -> Step:
    """Puts the target back into the search. The latest generation is computed again with the present results."""
    ended = job_queries.find_generation(session, target.id, target.generation + 1)
    job_queries.remove_generation(session, None if ended is None else ended.id)
    baselines = candidate_queries.baseline_count(session, target.id)
    points = frontier_queries.baseline_points(session, [target.id])[target.id]
    begun = opening(baselines, len(points), plan)
    note = "Further launches found the best model beyond the limits, so the search went on."
    change_state(session, target, TargetState.SEARCHING, f"{begun} {note}".strip(), now)
    return MORE


def opening(baselines: int, measured: int, plan: SearchPlan) -> str:
    """Returns a note with the number of baselines that could not be measured and the algorithm's own note."""
    without = baselines - measured
    note = f"{without} of {baselines} baselines could not be measured; the comparison uses the others."
    return " ".join(text for text in (note if without else "", plan.algorithm.note) if text)


def _closing(session: Session, target: Target) -> str:
    """Returns the note of a finished target: why the search ended, and why some latencies are uncertain."""
    notes = [target.note]
    if target.refinements and _left(session, target) < 1 and uncertain(session, target, 1):
        further = f"{target.refinements:,} further launch{'' if target.refinements == 1 else 'es'}"
        notes.append(f"The budget of {further} was spent while some latencies were still uncertain.")
    done, marked = launches.conditions(session, target.id)
    if marked >= DISTURBED * max(1, done):
        notes.append(
            f"{marked:,} of {done:,} launches were made in disturbed conditions, such as other load on the device (a "
            "candidate's page lists them): their latencies are less certain."
        )
    return " ".join(note for note in notes if note)
