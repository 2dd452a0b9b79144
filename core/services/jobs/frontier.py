"""The frontier of a target: results are copied into its candidates and move it; shown beside the baseline.

The frontier is the non-dominated set (proxy up, latency down, peak memory down; see `core.search.pareto.frontier`) of
the target's measured, in-bounds *search* candidates. Baselines are not members: the frontier is compared with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.common.states import CandidateRole, CandidateState, JobEventKind, MeasurementState
from edgefront.core.common.units import MB, plain, rounded
from edgefront.core.measurement.protocol import LATENCY_NAMES
from edgefront.core.measurement.statistics import LaunchVariance, half_width_ms, is_decided
from edgefront.core.schemas.candidates import FrontierView
from edgefront.core.schemas.jobs import NO_LIMITS, Limits, ProxyTrust, Quality
from edgefront.core.search.pareto.frontier import Dominance, hypervolume
from edgefront.core.services import event_log
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import job_of, target_of
from edgefront.core.services.event_log import Entry
from edgefront.core.services.jobs.comparison import as_baseline, rows_of, starts_from_model, summary_of
from edgefront.core.services.jobs.progress import added_note
from edgefront.core.services.jobs.queries import candidates as candidate_queries
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.jobs.queries import frontier as frontier_queries
from edgefront.core.services.jobs.queries.frontier import Point
from edgefront.core.services.jobs.views import candidate_entry, candidate_view, predicted_of, trained_views
from edgefront.core.services.quality.expected import perplexity_of
from edgefront.core.services.quality.laws import known_law_of
from edgefront.core.services.quality.queries import Trained
from edgefront.core.services.quality.trust import trained_of, trust_of
from edgefront.core.services.stored import JOB_REQUEST, LIMITS, REFERENCE, RowReader
from edgefront.core.services.trainings.queries import frontier as frontier_of
from edgefront.core.store.tables import Candidate, Job, Measurement, Target
from edgefront.core.training.proxies.registry import proxies


@dataclass(frozen=True)
class Finding:
    """A candidate's current measurement (measured, infeasible or failed), and the launch variance of its device."""

    candidate: Candidate
    measurement: Measurement
    variance: LaunchVariance

    @property
    def half_width_ms(self) -> float | None:
        """Half of the 95 % interval of the measurement's latency, None where unknown."""
        latency_ms = self.measurement.latency_ms
        return None if latency_ms is None else half_width_ms(latency_ms, self.measurement.log_launches, self.variance)

    def is_open(self, limits: Limits) -> bool:
        """Whether a further launch should say more: the launches so far differ by more than the scatter of their
        device, or one alone says on which side of a limit on its time a depth of the stock model is, which it is too
        near to. Of other models those are launched again that would change the answer, at the end of the search.
        """
        measurement = self.measurement
        if measurement.state != MeasurementState.MEASURED:
            return False
        if measurement.log_launches.differ(self.variance):
            return True
        if self.candidate.role != CandidateRole.BASELINE or _is_too_large(measurement, limits):
            return False
        times = [(time, limit) for _, time, limit in _limited_times(measurement, limits)]
        near = [pair for pair in times if not is_decided(*pair, measurement.launches, self.variance)]
        return bool(near) and all(time <= limit for time, limit in times if (time, limit) not in near)


def _apply_result(target: Target, finding: Finding, now: datetime, *, marked: bool) -> bool:
    """Copies the measurement into the candidate and counts it; False while there is no result. `marked`: whether a
    launch that counts has a mark.
    """
    candidate, measurement = finding.candidate, finding.measurement
    if measurement.state == MeasurementState.WANTED:
        return False
    was_waiting = candidate.state == CandidateState.WAITING
    is_measured = measurement.state == MeasurementState.MEASURED
    beyond = _beyond(measurement, LIMITS.read(target.limits)) if is_measured else ""
    candidate.state = CandidateState.OUT_OF_BOUNDS if beyond else CandidateState(measurement.state)
    candidate.reason = (beyond or None) if is_measured else measurement.reason
    candidate.latency_half_width_ms = finding.half_width_ms
    for name in candidate_queries.COPIED:
        setattr(candidate, name, getattr(measurement, name))
    candidate.marked = marked
    if was_waiting:
        target.settled += 1
    # A measurement reused from another job does not start this target's clock.
    if target.started_at is None and measurement.measured_at and measurement.measured_at >= candidate.created_at:
        target.started_at = now
    return True


def _beyond(measurement: Measurement, limits: Limits) -> str:
    """The limits that are exceeded, as text; empty if none."""
    words = [
        f"{name} {rounded(time, 4)} ms is above the limit of {plain(limit)} ms"
        for name, time, limit in _limited_times(measurement, limits)
        if time > limit
    ]
    if _is_too_large(measurement, limits):
        size_mb = (measurement.memory_bytes or 0) / MB
        words.append(f"peak memory {rounded(size_mb, 4)} MB is above the limit of {plain(limits.memory_mb or 0)} MB")
    return "; ".join(words)


def _limited_times(measurement: Measurement, limits: Limits) -> list[tuple[str, float, float]]:
    """Name, value and limit (ms) of each time that was measured and has one."""
    named = [("latency", measurement.latency_ms, limits.latency_ms)]
    named += [(LATENCY_NAMES[name], getattr(measurement, f"{name}_ms"), limit) for name, limit in limits.times.items()]
    return [(name, time, limit) for name, time, limit in named if time is not None and limit is not None]


def _is_too_large(measurement: Measurement, limits: Limits) -> bool:
    size = measurement.memory_bytes
    return limits.memory_mb is not None and size is not None and size > limits.memory_mb * MB


def update_frontier(
    session: Session,
    target: Target,
    findings: Sequence[Finding],
    now: datetime,
    *,
    entries: Sequence[Entry] = (),
) -> None:
    """Applies results to the candidates, the target's counters, its frontier and the job's event log.

    Call it once per target and transaction with all results, with the target's row locked and the candidates *not* yet
    touched: this copies the measurement into the candidate (numbers, launches and whether one has a mark, state:
    measured, out_of_bounds by the target's limits, infeasible or failed with the reason), counts `target.settled`, sets
    `target.started_at` at the first launch of its own, moves `on_frontier`, and appends `candidate` events and, if it
    moved, a `frontier` event; `entries` go into the log before them. It reads the frontier's rows and the given
    candidates; all others only where a member got worse.
    """
    members = {point.id: point for point in frontier_queries.frontier_points(session, [target.id])[target.id]}
    with session.no_autoflush:  # one UPDATE per row, at the end
        marked = demand.marked(session, {finding.measurement.id for finding in findings})
        changed = [
            finding.candidate
            for finding in findings
            if _apply_result(target, finding, now, marked=finding.measurement.id in marked)
        ]
        if not changed:
            event_log.append(session, target.job_id, entries, now)
            return
        current = _frontier_after(session, target, members, changed)
    joined, left = current.keys() - members.keys(), members.keys() - current.keys()
    target.frontier_size = len(current)
    if target.reference is not None:
        target.hypervolume = hypervolume(rows_of(current.values()), target.reference)
    for candidate in changed:
        candidate.on_frontier = candidate.id in current
    candidate_queries.write(session, changed)
    touched = {candidate.id for candidate in changed}
    frontier_queries.move_frontier(session, joined - touched, left - touched)

    logged = [*entries, *map(candidate_entry, changed)]
    if members != current:
        size = {"size": target.frontier_size, "hypervolume": target.hypervolume}
        data = {"joined": sorted(joined), "left": sorted(left), **size}
        logged.append(Entry(JobEventKind.FRONTIER, data, target.id))
    event_log.append(session, target.job_id, logged, now)


def dominance_of(job: Job) -> Dominance:
    """Dominance by the job's ε and proxy; without an ε where its request cannot be read (`advance` ends such a job)."""
    request = JOB_REQUEST.read_or(job.request, None)
    if request is None:
        return Dominance()
    proxy = proxies().get(request.proxy)
    return Dominance(request.epsilon, logarithmic=proxy is not None and proxy.logarithmic)


def _frontier_after(
    session: Session, target: Target, members: dict[str, Point], changed: Sequence[Candidate]
) -> dict[str, Point]:
    """The members now, by id.

    A candidate that is not on the frontier is kept off it by a member, so it can only join if a member got worse or
    left: then all are compared.
    """
    eligible = (row for row in changed if row.role == CandidateRole.SEARCH and row.state == CandidateState.MEASURED)
    moved = {point.id: point for point in _points(eligible)}
    touched = {candidate.id for candidate in changed}
    is_worse = any(
        id_ not in moved
        or moved[id_].proxy < former.proxy
        or moved[id_].latency_ms > former.latency_ms
        or moved[id_].memory_bytes > former.memory_bytes
        for id_, former in members.items()
        if id_ in touched
    )
    others = frontier_queries.competing_points(session, target.id) if is_worse else members.values()
    pool = [*(point for point in others if point.id not in touched), *moved.values()]
    dominance = dominance_of(session.get_one(Job, target.job_id))
    kept = dominance.frontier(rows_of(pool), [point.digest for point in pool])
    return {point.id: point for point, keep in zip(pool, kept, strict=True) if keep}


def _point(candidate: Candidate) -> Point | None:
    """A candidate's point, once it is measured."""
    if candidate.latency_ms is None or candidate.memory_bytes is None:
        return None
    return Point(
        candidate.id,
        candidate.decoder_parameters,
        candidate.proxy,
        candidate.latency_ms,
        candidate.memory_bytes,
        candidate.latency_half_width_ms,
        candidate.digest,
    )


def _points(candidates: Iterable[Candidate]) -> list[Point]:
    return [point for candidate in candidates if (point := _point(candidate)) is not None]


def frontier_view(
    session: Session,
    principal: Principal,
    job_id: str,
    target: str | None = None,
    limits: Limits = NO_LIMITS,
    *,
    by: Quality = "proxy",
    dataset: str | None = None,
) -> FrontierView:
    """The frontier of one target (by id or name; None: the job's first), points by rising decoder parameters.

    The filters ("the best under 50 ms and 300 MB") leave out points beyond them; the hypervolume and the summary
    are the whole frontier's. With `by` perplexity it is the frontier of the trained candidates, on `dataset` or else on
    the data set with the most of them. NotFound if there is no such job or target.
    """
    job = job_of(session, principal, job_id)
    row = target_of(session, job, target)
    members = frontier_of(session, row.id)
    trained = trained_of(session, row.id, dataset)
    request = JOB_REQUEST.read_or(job.request, None)
    epsilon = 0.0 if request is None else request.epsilon
    reader = RowReader()
    reference = reader.read(lambda: REFERENCE.validate_python(row.reference))
    points = _by_perplexity(session, trained, epsilon) if by == "perplexity" else members
    beside = candidate_queries.baselines(session, row.id)
    baseline = as_baseline(_points(beside))
    shown = [point for point in points if _is_within(point, limits)]
    return FrontierView(
        job_id=job.id,
        target_id=row.id,
        target=row.name,
        hypervolume=row.hypervolume,
        reference=reference,
        points=tuple(candidate_view(point, baseline) for point in shown),
        baseline=tuple(candidate_view(candidate, baseline) for candidate in beside),
        summary=summary_of(_points(members), baseline, row, request),
        own_model=starts_from_model(request),
        note=reader.note("" if request is None else added_note(session, request, row)) or "",
        perplexity_of=perplexity_of(
            {predicted_of(point.predicted).get("law") for point in (*shown, *beside)},
            known_law_of(session, job, request),
        ),
        epsilon=epsilon,
        proxy_trust=ProxyTrust() if request is None else trust_of(session, job, request, row),
        by=by,
        trained=trained_views(trained),
    )


def _by_perplexity(session: Session, trained: Sequence[Trained], epsilon: float) -> list[Candidate]:
    """The non-dominated trained candidates within the limits, by rising decoder parameters."""
    scores = {score.candidate_id: score.value for score in trained if score.joins_frontiers}
    candidates = [candidate for candidate in candidate_queries.by_ids(session, scores) if _point(candidate)]
    rows = [
        (-math.log(scores[candidate.id]), candidate.latency_ms or 0.0, float(candidate.memory_bytes or 0))
        for candidate in candidates
    ]
    mask = Dominance(epsilon, logarithmic=True).frontier(rows, [candidate.digest for candidate in candidates])
    kept = [candidate for candidate, keep in zip(candidates, mask, strict=True) if keep]
    return sorted(kept, key=lambda candidate: (candidate.decoder_parameters, candidate.id))


def _is_within(candidate: Candidate, limits: Limits) -> bool:
    """Whether all limited figures are known and within the limits."""
    values = [(getattr(candidate, column.key), limit) for column, limit in candidate_queries.bounds(limits)]
    return all(value is not None and value <= limit for value, limit in values)
