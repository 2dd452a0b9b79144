"""Turns reports of launches into results of measurements and candidates, frontiers and events.

`process` handles a target's reports since its previous run, in one transaction under the row locks of all affected
targets:

1. Load the launches with their results, their measurements and targets, and the evidence.
2. Decide the outcome of each launch, and the consequences for its measurement and its device (`decision.decide`).
3. Aggregate the results of done launches into their measurements.
4. Apply the decisions to launches and to measurements that end without a result.
5. Copy the measurements to their candidates, and update the frontiers (`apply_results`).
6. Log the events.

Reports and expired leases call `process`; a search whose proposals were measured before calls `apply_results`. The
effects depend on the rows only, so repeated, late or crashed runs have the same effects.

Locks are taken in one order by all services: targets, measurements, launches, jobs, each by id.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from edgefront.core.common.states import (
    FINISHED_LAUNCHES,
    LIVE_LAUNCHES,
    JobEventKind,
    LaunchOutcome,
    LaunchState,
    MeasurementState,
    Purpose,
)
from edgefront.core.measurement.figures import aggregate_figures, launches_of
from edgefront.core.measurement.plausible import STARTED_LATE_S
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.schemas.jobs import NO_LIMITS
from edgefront.core.services import tasks
from edgefront.core.services.event_log import Entry
from edgefront.core.services.jobs import frontier
from edgefront.core.services.jobs.progress import has_next_step
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.measuring import anchors, quarantine
from edgefront.core.services.measuring.decision import MAX_MARK, Decision, Evidence, decide, refusals
from edgefront.core.services.measuring.queries import launches
from edgefront.core.services.measuring.queries import measurements as measurement_queries
from edgefront.core.services.measuring.queries.launches import LaunchRow
from edgefront.core.services.measuring.queries.measurements import MeasurementKey
from edgefront.core.services.stored import LIMITS
from edgefront.core.store.database import enqueue
from edgefront.core.store.tables import Candidate, Measurement, Target

BATCH = 200
"""Maximum number of launches that one transaction processes."""
MAX_REPEATED = 3
"""Maximum number of launches of a measurement whose launches differ, or whose single launch decides on a limit."""


def process(session: Session, target_id: str | None, now: datetime) -> bool:
    """Processes reported launches that the target requested (None: that deleted targets requested), for all targets
    that use the same measurements.

    Returns whether more launches may be left. If so, the caller must commit, and call again.
    """
    reported = waiting(session, target_id)
    if reported:
        process_launches(session, reported, now)
    return len(reported) == BATCH


def waiting(session: Session, target_id: str | None) -> dict[str, str]:
    """Returns launch id → measurement id of the launches that `process` handles next."""
    return launches.unprocessed(session, target_id, BATCH)


def process_launches(
    session: Session, reported: Mapping[str, str], now: datetime, *, with_targets: bool = True
) -> None:
    """Processes `reported` launches (launch id → measurement id). If not `with_targets`, adds no device time to the
    targets, and each target's own `advance` must update the target.
    """
    measurement_ids = set(reported.values())
    live = measurement_queries.lock_live_targets(session, measurement_ids) if with_targets else []
    targets = [target for target, _ in live]
    measurements = demand.lock(session, measurement_ids)
    locked = launches.lock_unprocessed(session, list(reported))
    devices = measurement_queries.reporting_devices(session, {row.holder for row in locked})
    every = decide(locked, _evidence(session, locked, measurements, devices))
    decisions = [each for each in every if not each.row.is_anchor]
    with session.no_autoflush:
        answered = _store_measurements(session, decisions, measurements, now)
        _apply(session, every, now)
        answered |= _end_measurements(session, decisions, measurements, now)
        candidates = measurement_queries.candidates_of(session, {each.row.measurement_id for each in decisions})
        # All these rows are written below, so the session must neither track nor flush them.
        for written in (*answered.values(), *candidates):
            session.expunge(written)
        measurement_queries.write(session, list(answered.values()))
        _account(decisions, targets, now)
        apply_results(session, targets, candidates, answered, now, _entries(decisions, targets, candidates))
        measurement_queries.write_targets(session, targets)
        _watch_devices(session, every, devices, now)
        for target in targets:
            session.expunge(target)


def _evidence(
    session: Session,
    locked: Sequence[LaunchRow],
    measurements: Mapping[str, Measurement],
    devices: Mapping[str, measurement_queries.ReportingDevice],
) -> Evidence:
    refused = refusals(locked, measurement_queries.costs(session, measurements), devices)
    bad = [row for row in locked if row.id in refused or row.result.outcome != LaunchOutcome.DONE]
    return Evidence(
        refusals=refused,
        states=demand.launch_counts(session, {row.measurement_id for row in bad}) if bad else {},
        measured={id_ for id_, measurement in measurements.items() if measurement.launches},
        needed=launches.still_needed(session, [row.id for row in bad]) if bad else (),
    )


def give_up(session: Session, launch_id: str, measurement_id: str, reason: str, now: datetime) -> None:
    """Marks a launch as failed because its report cannot be processed.

    The report is not read. The measurement fails too, unless it has a result or a live launch. The next `advance` of
    each target that waits for the measurement updates the target.
    """
    targets = measurement_queries.lock_live_targets(session, {measurement_id})
    measurements = demand.lock(session, {measurement_id})
    if launches.fail(session, launch_id, reason):
        fail_measurements(session, [(measurement, reason) for measurement in measurements.values()], now)
        for target, _ in targets:
            enqueue(session, tasks.ADVANCE, target_id=target.id)


def apply_results(
    session: Session,
    targets: Sequence[Target],
    candidates: Sequence[Candidate],
    answered: Mapping[str, Measurement],
    now: datetime,
    entries: Mapping[str, Sequence[Entry]] | None = None,
) -> None:
    """Copies measurements to their candidates, updates the frontiers of the candidates' targets, and requests repeated
    launches.

    Args:
        targets: the live targets with candidates of these measurements, locked by id.
        candidates: `measurement_queries.candidates_of(…)` of these measurements.
        answered: measurement id → measurement with an outcome (measured, infeasible, failed), locked and flushed.
        entries: target id → other log entries, which are logged before the candidates' entries.

    If a live target got a candidate of one of these measurements after the locks, the target's `advance` updates it.
    """
    # A target with unreadable limits is also left to its own `advance`, which ends the target.
    limits = {target.id: LIMITS.read_or(target.limits, None) for target in targets}
    news: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        if candidate.measurement_id not in answered:
            continue
        if limits.get(candidate.target_id) is None:
            enqueue(session, tasks.ADVANCE, target_id=candidate.target_id)
            continue
        news.setdefault(candidate.target_id, []).append(candidate)
    entries = entries or {}
    concerned = [target for target in targets if target.id in news or entries.get(target.id)]
    jobs = {target.job_id for target in concerned}
    if len(jobs) > 1:
        measurement_queries.lock_jobs(session, jobs)
    variances = measurement_queries.launch_variances(session, {_key(target) for target in concerned})
    for target in concerned:
        variance, own = variances[_key(target)], news.get(target.id, [])
        frontier.update_frontier(session, target, own, answered, variance, now, entries=entries.get(target.id, ()))
        known = limits[target.id] or NO_LIMITS
        left_open = {
            measurement.id
            for candidate in own
            if (measurement := answered[candidate.measurement_id or ""])
            and frontier.needs_launch(candidate, measurement, variance, known)
        }
        _repeat(session, target, left_open, now)
    for target in targets:
        if has_next_step(session, target, now):
            enqueue(session, tasks.ADVANCE, target_id=target.id)


def _key(target: Target) -> MeasurementKey:
    return target.device_key, target.protocol_digest


def _repeat(session: Session, target: Target, left_open: Collection[str], now: datetime) -> None:
    """Requests another launch of the measurements whose results are not certain enough for this target."""
    if not left_open:
        return
    counts = demand.launch_counts(session, left_open)
    chosen = [
        id_
        for id_ in sorted(left_open)
        if not any(counts[id_][state] for state in LIVE_LAUNCHES)
        and sum(counts[id_][state] for state in FINISHED_LAUNCHES) < MAX_REPEATED
    ]
    demand.add_launches(session, target, chosen, purpose=Purpose.REPEAT, now=now)


def fail_measurements(
    session: Session, failed: Sequence[tuple[Measurement, str]], now: datetime
) -> dict[str, Measurement]:
    """Fails the paired measurements that have neither a result nor a live launch. Returns those that failed, by id."""
    states = demand.launch_counts(session, [measurement.id for measurement, _ in failed])
    return {
        measurement.id: measurement
        for measurement, reason in failed
        if not any(states[measurement.id][state] for state in LIVE_LAUNCHES)
        and _end(measurement, MeasurementState.FAILED, reason, now)
    }


def _end(measurement: Measurement, state: MeasurementState, reason: str, now: datetime) -> bool:
    """Ends a measurement without a result. Returns False, and changes nothing, if the measurement has a result."""
    if measurement.launches:
        return False
    measurement.state, measurement.reason, measurement.measured_at = state, reason, now
    return True


def _apply(session: Session, decisions: Sequence[Decision], now: datetime) -> None:
    """Writes the launches' new states: finished with a result, or wanted again without a result."""
    ended = [each for each in decisions if each.is_final]
    launches.write(
        session,
        [
            {
                "id": each.row.id,
                "state": each.state,
                "busy_s": 0.0,
                "reason": each.reason,
                "mark": (each.row.result.conditions or "")[:MAX_MARK] or None,
            }
            for each in ended
        ],
    )
    again = {each.row.id: each.state for each in decisions if not each.is_final}
    launches.write(session, [{"id": id_, "result": None, "finished_at": None, "busy_s": 0.0} for id_ in again])
    launches.give_back(session, again, {id_ for id_, state in again.items() if state == LaunchState.WANTED}, now)


def _store_measurements(
    session: Session, decisions: Sequence[Decision], measurements: Mapping[str, Measurement], now: datetime
) -> dict[str, Measurement]:
    """Aggregates results of done launches. Returns the measurements that have a new result, by id."""
    done = [each.row for each in decisions if each.follow_up == "aggregate"]
    results = measurement_queries.done_results(session, done)
    for id_, of_measurement in results.items():
        store_figures(measurements[id_], of_measurement, now)
    return {id_: measurements[id_] for id_ in results}


def _end_measurements(
    session: Session, decisions: Sequence[Decision], measurements: Mapping[str, Measurement], now: datetime
) -> dict[str, Measurement]:
    """Ends measurements without a result, or requests another launch. Returns the ended measurements by id."""
    ended: dict[str, Measurement] = {}
    for each in decisions:
        row = each.row
        if each.follow_up == "launch":
            demand.add_first(session, row.measurement_id, row.target_id, row.device_key, row.purpose, now)
        elif each.follow_up == "end":
            ended[row.measurement_id] = measurement = measurements[row.measurement_id]
            infeasible = each.state == LaunchState.INFEASIBLE
            _end(measurement, MeasurementState.INFEASIBLE if infeasible else MeasurementState.FAILED, each.why, now)
    launches.cancel_siblings(session, ended, now)
    return ended


def _watch_devices(
    session: Session,
    decisions: Sequence[Decision],
    devices: Mapping[str, measurement_queries.ReportingDevice],
    now: datetime,
) -> None:
    """Evaluates the devices' anchors, and quarantines devices. Device rows are locked last, in the order of ids."""
    noted = [
        each
        for each in decisions
        if each.row.is_anchor or each.charge or (each.charge is False and devices[each.row.holder].failing)
    ]
    noted.sort(key=lambda each: (each.row.holder, each.row.reported_at))
    quarantine.lock(session, {each.row.holder for each in noted})
    for each in noted:
        if each.row.is_anchor:
            anchors.apply_result(session, each, now)
        else:
            quarantine.add_failing(session, each.row.holder, [each.row.measurement_id] if each.charge else ())


def _account(decisions: Sequence[Decision], targets: Sequence[Target], now: datetime) -> None:
    """Adds the launches' device time to the targets that requested them. A target starts with its first launch."""
    by_id = {target.id: target for target in targets}
    for each in decisions:
        row, target = each.row, by_id.get(each.row.target_id or "")
        if target is not None:
            if target.started_at is None:
                began = row.started_at or row.created_at
                longest, wall = timedelta(seconds=STARTED_LATE_S), timedelta(seconds=row.result.wall_s)
                target.started_at = min(now, max(began - longest, now - wall))
            target.launches_done += each.is_final
            target.busy_s += row.busy_s
            target.measuring_s += row.result.measuring_s


def _entries(
    decisions: Sequence[Decision], targets: Sequence[Target], candidates: Sequence[Candidate]
) -> dict[str, list[Entry]]:
    """Returns target id → its `launch` events, one for each decided report."""
    ids: dict[tuple[str, str], list[str]] = {}
    for candidate in candidates:
        ids.setdefault((candidate.target_id, candidate.measurement_id or ""), []).append(candidate.id)
    entries: dict[str, list[Entry]] = {}
    for target in targets:
        for each in decisions:
            having = ids.get((target.id, each.row.measurement_id))
            if having:
                data = {
                    "launch_id": each.row.id,
                    "candidate_ids": having,
                    "outcome": each.state if each.is_final else each.row.result.outcome,
                    "reason": each.reason,
                    "attempts": each.row.attempts,
                    "final": each.is_final,
                }
                entries.setdefault(target.id, []).append(Entry(JobEventKind.LAUNCH, data, target.id))
    return entries


def store_figures(measurement: Measurement, results: Sequence[LaunchResult], now: datetime) -> None:
    """Aggregates the results of done launches into their measurement.

    Args:
        results: results of all done launches of the measurement (at least one), oldest first.
    """
    scatter = launches_of(results)
    measurement.state = MeasurementState.MEASURED
    measurement.reason = None
    measurement.launches = scatter.count
    measurement.log_m2 = scatter.sum_squares
    measurement.measured_at = now
    for name, value in aggregate_figures(results, measurement.protocol["batch"]).items():
        setattr(measurement, name, value)
