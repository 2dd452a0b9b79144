"""Updates the Pareto frontier of a target (one device and runtime of a job) when measurements have results.

The frontier is the non-dominated set (proxy up, latency down, peak memory down; see `core.search.pareto.frontier`) of
the target's measured *search* candidates within the limits. The frontier is compared with the baselines, which are not
members.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, cast

from sqlalchemy import ColumnElement, Executable, Table, and_, bindparam, select, true, update
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import set_committed_value

from edgefront.core.common.states import (
    MEASURED_CANDIDATES,
    CandidateRole,
    CandidateState,
    JobEventKind,
    MeasurementState,
)
from edgefront.core.common.units import MB, plain, rounded
from edgefront.core.measurement.protocol import LATENCY_NAMES
from edgefront.core.measurement.statistics import LaunchVariance, half_width_ms
from edgefront.core.schemas.jobs import Limits
from edgefront.core.search.pareto.frontier import Dominance, hypervolume
from edgefront.core.services import event_log
from edgefront.core.services.event_log import Entry
from edgefront.core.services.jobs.queries import candidates as candidate_queries
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.jobs.queries.candidates import IS_BASELINE
from edgefront.core.services.stored import JOB_REQUEST, LIMITS
from edgefront.core.store.sql import any_of, columns, texts
from edgefront.core.store.tables import Candidate, Job, Measurement, Target
from edgefront.core.training.proxies.registry import proxies


class Point(NamedTuple):
    """A measured candidate with its three objectives (proxy, latency, peak memory) and its size."""

    id: str
    decoder_parameters: int
    proxy: float
    latency_ms: float
    memory_bytes: int
    latency_half_width_ms: float | None
    digest: str


def frontier_points(session: Session, target_ids: Collection[str]) -> dict[str, list[Point]]:
    return _read_points(session, target_ids, _FRONTIER_POINTS)


def baseline_points(session: Session, target_ids: Collection[str]) -> dict[str, list[Point]]:
    """Target id → measured baselines of the target, within the limits or not."""
    return _read_points(session, target_ids, _BASELINE_POINTS)


def competing_points(session: Session, target_id: str) -> list[Point]:
    """Returns the target's measured search candidates within the limits, on the frontier or not."""
    condition = and_(Candidate.state == CandidateState.MEASURED, Candidate.role == CandidateRole.SEARCH)
    return _read_points(session, [target_id], _points_where(condition))[target_id]


def _points_where(condition: ColumnElement[bool]) -> Executable:
    return select(Candidate.target_id, Candidate.number, *columns(Candidate, Point)).where(
        any_of(Candidate.target_id, texts("targets")), condition
    )


# Built once, because these statements run with every report.
_FRONTIER_POINTS = _points_where(Candidate.on_frontier == true())
_BASELINE_POINTS = _points_where(and_(IS_BASELINE, Candidate.state.in_(MEASURED_CANDIDATES)))


def _read_points(session: Session, target_ids: Collection[str], query: Executable) -> dict[str, list[Point]]:
    """Target id → points of the target, by rising number of decoder parameters."""
    rows = session.execute(query, {"targets": list(target_ids)}).all()
    points: dict[str, list[Point]] = {target_id: [] for target_id in target_ids}
    for target_id, _, *figures in sorted(rows, key=lambda row: (row.decoder_parameters, row.number)):
        point = Point(*figures)
        if point.latency_ms is not None and point.memory_bytes is not None:
            points[target_id].append(point)
    return points


_TABLE = cast(Table, Candidate.__table__)
_MOVE = update(_TABLE).where(any_of(_TABLE.c.id, texts("ids"))).values(on_frontier=bindparam("value"))


def move_frontier(session: Session, joined: Collection[str], left: Collection[str]) -> None:
    """Sets `on_frontier` of the candidates that joined or left, in the rows and in objects loaded by the session."""
    for ids, value in ((joined, True), (left, False)):
        if ids:
            session.execute(_MOVE, {"ids": list(ids), "value": value})
            for id_ in ids:
                loaded = session.identity_map.get(session.identity_key(Candidate, id_))
                if loaded is not None:
                    set_committed_value(loaded, "on_frontier", value)


def rows_of(points: Iterable[Point]) -> list[tuple[float, float, float]]:
    """Returns (proxy, latency_ms, memory_bytes) of each point."""
    return [(point.proxy, point.latency_ms, point.memory_bytes) for point in points]


def needs_launch(candidate: Candidate, measurement: Measurement, variance: LaunchVariance, limits: Limits) -> bool:
    """Whether the measurement needs another launch, because its launches differ by more than the device's usual
    scatter, or because the candidate is a baseline with a time too close to a limit. Candidates other than baselines
    are launched more often only at the end of the search (`refining`).
    """
    if measurement.state != MeasurementState.MEASURED:
        return False
    if measurement.log_launches.differ(variance):
        return True
    if candidate.role != CandidateRole.BASELINE or _is_too_large(measurement, limits):
        return False
    times = [(time, limit) for _, time, limit in _limited_times(measurement, limits)]
    near = [pair for pair in times if not measurement.log_launches.decides(*pair, variance)]
    return bool(near) and all(time <= limit for time, limit in times if (time, limit) not in near)


def _apply_result(
    target: Target,
    candidate: Candidate,
    measurement: Measurement,
    variance: LaunchVariance,
    now: datetime,
    *,
    marked: bool,
) -> bool:
    """Copies the measurement into the candidate, and counts the candidate as processed in the target's row. Returns
    False if the measurement has no result yet. `marked`: whether a valid launch of the measurement is flagged.
    """
    if measurement.state == MeasurementState.WANTED:
        return False
    was_waiting = candidate.state == CandidateState.WAITING
    is_measured = measurement.state == MeasurementState.MEASURED
    beyond = _beyond(measurement, LIMITS.read(target.limits)) if is_measured else ""
    candidate.state = CandidateState.OUT_OF_BOUNDS if beyond else CandidateState(measurement.state)
    candidate.reason = (beyond or None) if is_measured else measurement.reason
    for name in candidate_queries.COPIED:
        setattr(candidate, name, getattr(measurement, name))
    for name in candidate_queries.HALF_WIDTHS:
        time = getattr(measurement, name.replace("half_width_", ""))
        half = None if time is None else half_width_ms(time, measurement.log_launches, variance)
        setattr(candidate, name, half)
    candidate.marked = marked
    if was_waiting:
        target.settled += 1
    # A measurement reused from another job does not start this target's clock.
    if target.started_at is None and measurement.measured_at and measurement.measured_at >= candidate.created_at:
        target.started_at = now
    return True


def _beyond(measurement: Measurement, limits: Limits) -> str:
    """Returns the exceeded limits as text; empty if the measurement is within all limits."""
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
    """Returns name, value (ms) and limit (ms) of each measured time that has a limit."""
    named = [("latency", measurement.latency_ms, limits.latency_ms)]
    named += [(LATENCY_NAMES[name], getattr(measurement, f"{name}_ms"), limit) for name, limit in limits.times.items()]
    return [(name, time, limit) for name, time, limit in named if time is not None and limit is not None]


def _is_too_large(measurement: Measurement, limits: Limits) -> bool:
    size = measurement.memory_bytes
    return limits.memory_mb is not None and size is not None and size > limits.memory_mb * MB


def update_frontier(
    session: Session,
    target: Target,
    candidates: Sequence[Candidate],
    measurements: Mapping[str, Measurement],
    variance: LaunchVariance,
    now: datetime,
    *,
    entries: Sequence[Entry] = (),
) -> None:
    """Applies results to the candidates, to the target's counters and frontier, and to the job's event log.

    Args:
        candidates: candidates of the target with a result, not yet changed.
        measurements: measurement id → the measurement of a candidate: measured, infeasible or failed.
        variance: variance of launches on the target's device.
        entries: events to append to the log before the events of this update.

    Call this once per target and transaction, with all results and with the target's row locked. Each measurement is
    copied into its candidate: figures, number of launches, flag, and state (measured, out_of_bounds by the target's
    limits, or infeasible or failed with the reason). `target.settled` is raised, and `target.started_at` is set at the
    target's first launch. Then `on_frontier` is updated, and `candidate` events and, after a change, a `frontier` event
    are appended. Candidates off the frontier are read only if a member of the frontier got worse.
    """
    members = {point.id: point for point in frontier_points(session, [target.id])[target.id]}
    with session.no_autoflush:  # one UPDATE per row, at the end
        marked = demand.marked(session, {candidate.measurement_id or "" for candidate in candidates})
        changed = [
            candidate
            for candidate in candidates
            if (measurement := measurements.get(candidate.measurement_id or "")) is not None
            and _apply_result(target, candidate, measurement, variance, now, marked=measurement.id in marked)
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
    move_frontier(session, joined - touched, left - touched)

    logged = [*entries, *map(candidate_entry, changed)]
    if members != current:
        size = {"size": target.frontier_size, "hypervolume": target.hypervolume}
        data = {"joined": sorted(joined), "left": sorted(left), **size}
        logged.append(Entry(JobEventKind.FRONTIER, data, target.id))
    event_log.append(session, target.job_id, logged, now)


def dominance_of(job: Job) -> Dominance:
    """Returns the dominance relation with the job's ε and proxy. The ε is 0 if the job's request is unreadable."""
    request = JOB_REQUEST.read_or(job.request, None)
    if request is None:
        return Dominance()
    proxy = proxies().get(request.proxy)
    return Dominance(request.epsilon, logarithmic=proxy is not None and proxy.logarithmic)


def _frontier_after(
    session: Session, target: Target, members: dict[str, Point], changed: Sequence[Candidate]
) -> dict[str, Point]:
    """Returns the members of the frontier after the changes, by id.

    Every candidate off the frontier is dominated by a member, so it can join only if a member got worse or left. Only
    then are all measured candidates compared.
    """
    eligible = (row for row in changed if row.role == CandidateRole.SEARCH and row.state == CandidateState.MEASURED)
    moved = {point.id: point for point in points_of(eligible)}
    touched = {candidate.id for candidate in changed}
    is_worse = any(
        id_ not in moved
        or moved[id_].proxy < former.proxy
        or moved[id_].latency_ms > former.latency_ms
        or moved[id_].memory_bytes > former.memory_bytes
        for id_, former in members.items()
        if id_ in touched
    )
    others = competing_points(session, target.id) if is_worse else members.values()
    pool = [*(point for point in others if point.id not in touched), *moved.values()]
    dominance = dominance_of(session.get_one(Job, target.job_id))
    kept = dominance.frontier(rows_of(pool), [point.digest for point in pool])
    return {point.id: point for point, keep in zip(pool, kept, strict=True) if keep}


def point_of(candidate: Candidate) -> Point | None:
    """Returns the candidate as a point; None if its latency or peak memory is not measured."""
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


def points_of(candidates: Iterable[Candidate]) -> list[Point]:
    return [point for candidate in candidates if (point := point_of(candidate)) is not None]


def candidate_entry(candidate: Candidate) -> Entry:
    """Returns an event with the candidate's new state. Readers load the figures from the candidate."""
    data = {
        "id": candidate.id,
        "number": candidate.number,
        "role": candidate.role,
        "state": candidate.state,
        "reason": candidate.reason,
    }
    return Entry(JobEventKind.CANDIDATE, data, candidate.target_id)
