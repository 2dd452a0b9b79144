"""The one place where reports become measurements, candidates, frontiers and events.

`process` takes a target's reports that have come since it last ran, in one transaction under the row locks of the
targets concerned: load, decide what becomes of each launch, aggregate the done ones into their measurements, apply
those. `apply_results` brings known measurements to the candidates that have them: whoever finds something to be known
(reports, expired leases, a search that proposes what was measured before) calls one of the two. What follows is a
function of the rows: run twice, late, or after a crash it comes to the same.

A launch is made again, up to a bound, where its result cannot be true, where it was infeasible, where the launches of a
model differ by more than the scatter of their device, and where one alone decides whether a depth of the stock model is
within the limits.

Locks are taken in one order by all services: targets, measurements, launches, jobs, each by id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from edgefront.core.common.states import (
    FINISHED_LAUNCHES,
    LIVE_LAUNCHES,
    JobEventKind,
    LaunchState,
    MeasurementState,
    Purpose,
)
from edgefront.core.measurement.figures import DoneLaunches, aggregated
from edgefront.core.measurement.plausible import STARTED_LATE_S
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.measurement.statistics import LaunchVariance, LogLaunches
from edgefront.core.schemas.jobs import NO_LIMITS, Limits
from edgefront.core.services import tasks
from edgefront.core.services.event_log import Entry
from edgefront.core.services.jobs import frontier
from edgefront.core.services.jobs.progress import has_next_step
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.measuring import anchors, plausibility, quarantine
from edgefront.core.services.measuring.queries import launches
from edgefront.core.services.measuring.queries import measurements as rows
from edgefront.core.services.measuring.queries import reported as reported_rows
from edgefront.core.services.measuring.queries.reported import ReportedLaunch
from edgefront.core.services.measuring.reports import MAX_ATTEMPTS
from edgefront.core.services.stored import LIMITS
from edgefront.core.store import outbox
from edgefront.core.store.tables import Candidate, Measurement, Target

BATCH = 200
"""Launches that one transaction processes at most."""
MAX_IMPLAUSIBLE, MAX_INFEASIBLE = 3, 2
"""Launches of one measurement that end so; then the measurement does."""
MAX_REPEATED = 3
"""Launches of one measurement up to which it is repeated where they differ, or one alone decides on a depth."""
MAX_MARK = 400
"""Characters of what an agent says of its conditions that a launch's mark keeps."""
_MAX_ENDED = {
    LaunchState.IMPLAUSIBLE: MAX_IMPLAUSIBLE,
    LaunchState.INFEASIBLE: MAX_INFEASIBLE,
    LaunchState.FAILED: 1,
}


@dataclass(frozen=True)
class _Processed:
    """A reported launch, and what becomes of it."""

    launch: ReportedLaunch
    end: LaunchState | None
    """Done, implausible, infeasible or failed; None if the launch is wanted again."""
    refusal: str | None
    """Why its result cannot be true."""

    @property
    def is_anchor(self) -> bool:
        return self.launch.purpose == Purpose.ANCHOR


def _decide(launch: ReportedLaunch, refusal: str | None) -> _Processed:
    end: LaunchState | None = LaunchState(launch.result.outcome)
    if refusal is not None:
        end = LaunchState.IMPLAUSIBLE
    elif end == LaunchState.FAILED and launch.purpose != Purpose.ANCHOR and launch.attempts < MAX_ATTEMPTS:
        end = None
    return _Processed(launch, end, refusal)


def process(session: Session, target_id: str | None, now: datetime) -> bool:
    """Processes the reported launches that the target asked for, for all targets that wait for the same; None: those
    of deleted targets.

    Returns whether there may be more: commit, and call again.
    """
    reported = waiting(session, target_id)
    if reported:
        process_launches(session, reported, now)
    return len(reported) == BATCH


def waiting(session: Session, target_id: str | None) -> dict[str, str]:
    """The next launches that `process` takes: launch id → measurement id."""
    return reported_rows.waiting(session, target_id, BATCH)


def process_launches(
    session: Session, reported: Mapping[str, str], now: datetime, *, with_targets: bool = True
) -> None:
    """Processes these launches (`waiting`). Without targets, these are left to their own `advance`, and are not
    charged.
    """
    measurement_ids = set(reported.values())
    live = rows.lock_live_targets(session, measurement_ids) if with_targets else []
    targets = [target for target, _ in live]
    measurements = demand.lock(session, measurement_ids)
    locked = reported_rows.lock(session, list(reported))
    subjects = reported_rows.subjects(session, measurement_ids)
    devices = reported_rows.devices(session, {row.device_id for row in locked})
    refusals = plausibility.refusals(locked, subjects, devices)
    every = [_decide(row, refusals.get(row.id)) for row in locked]
    processed = [report for report in every if not report.is_anchor]
    with session.no_autoflush:
        _finish(session, every, now)
        answered = _aggregated(session, processed, measurements, now)
        candidates = rows.candidates_of(session, {report.launch.measurement_id for report in processed})
        # All of these are written below: there is nothing for the session to note, and nothing for its own flush.
        for written in (*answered.values(), *candidates):
            session.expunge(written)
        rows.write(session, list(answered.values()))
        _account(processed, targets, now)
        apply_results(session, targets, candidates, answered, now, _entries(processed, targets, candidates))
        rows.write_targets(session, targets)
        _watch_devices(session, every, subjects, devices, now)
        for target in targets:
            session.expunge(target)


def give_up(session: Session, launch_id: str, measurement_id: str, reason: str, now: datetime) -> None:
    """Marks a launch as failed, whatever was reported: its report cannot be processed.

    Nothing of the report is read. Targets that wait for the measurement take that in by their own `advance`.
    """
    targets = rows.lock_live_targets(session, {measurement_id})
    measurements = demand.lock(session, {measurement_id})
    if reported_rows.fail(session, launch_id, reason):
        mark_unsuccessful(session, [], [(measurement, reason) for measurement in measurements.values()], now)
        for target, _ in targets:
            outbox.enqueue(session, tasks.ADVANCE, target_id=target.id)


def apply_results(
    session: Session,
    targets: Sequence[Target],
    candidates: Sequence[Candidate],
    answered: Mapping[str, Measurement],
    now: datetime,
    entries: Mapping[str, Sequence[Entry]] | None = None,
) -> None:
    """Brings measurements to the candidates that have them, moves their targets' frontiers, and requests the launches
    that are to be repeated.

    Args:
        targets: the live targets with candidates of these measurements, locked by id.
        candidates: `rows.candidates_of(…)` of these measurements.
        answered: by id, measurements that have an answer now (measured, infeasible, failed), locked and flushed.
        entries: by target id, what else is to go into the logs, before the news of the candidates.

    A live target that has come to share one of them since the targets were locked is left to its own `advance`.
    """
    # One whose limits cannot be read is left to its own `advance` too, which ends it.
    limits = {target.id: LIMITS.read_or(target.limits, None) for target in targets}
    variances: dict[tuple[str, str], LaunchVariance] = {}
    findings: dict[str, list[frontier.Finding]] = {}
    for candidate in candidates:
        measurement = answered.get(candidate.measurement_id or "")
        if measurement is None:
            continue
        if limits.get(candidate.target_id) is None:
            outbox.enqueue(session, tasks.ADVANCE, target_id=candidate.target_id)
            continue
        place = (measurement.device_key, measurement.protocol_digest)
        if place not in variances:
            variances[place] = rows.launch_variance(session, *place)
        finding = frontier.Finding(candidate, measurement, variances[place])
        findings.setdefault(candidate.target_id, []).append(finding)
    entries = entries or {}
    concerned = [target for target in targets if target.id in findings or entries.get(target.id)]
    jobs = {target.job_id for target in concerned}
    if len(jobs) > 1:
        rows.lock_jobs(session, jobs)
    for target in concerned:
        news, logged = findings.get(target.id, ()), entries.get(target.id, ())
        frontier.update_frontier(session, target, news, now, entries=logged)
        _repeat(session, target, limits[target.id] or NO_LIMITS, news, now)
    for target in targets:
        if has_next_step(session, target, now):
            outbox.enqueue(session, tasks.ADVANCE, target_id=target.id)


def _repeat(
    session: Session, target: Target, limits: Limits, findings: Sequence[frontier.Finding], now: datetime
) -> None:
    """Requests another launch of measurements that leave something open for this target."""
    left_open = {finding.measurement.id for finding in findings if finding.is_open(limits)}
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


def mark_unsuccessful(
    session: Session,
    infeasible: Sequence[tuple[Measurement, str]],
    failed: Sequence[tuple[Measurement, str]],
    now: datetime,
) -> dict[str, Measurement]:
    """Marks measurements whose launches were infeasible or failed; returns by id those that have ended by that.

    Infeasible ends one at once and cancels sibling launches. A failed launch ends one only if no sibling is still to
    come. A measurement that an earlier launch has measured stays measured. The launches' own states are written.
    """
    ended: dict[str, Measurement] = {}

    def end(measurement: Measurement, state: MeasurementState, reason: str) -> None:
        if not measurement.launches:
            measurement.state, measurement.reason, measurement.measured_at = state, reason, now
            ended[measurement.id] = measurement

    for measurement, reason in infeasible:
        end(measurement, MeasurementState.INFEASIBLE, reason)
    launches.cancel_siblings(session, ended, now)
    hopeful = launches.with_open_launches(session, [m.id for m, _ in failed]) if failed else set()
    for measurement, reason in failed:
        if measurement.id not in hopeful:
            end(measurement, MeasurementState.FAILED, reason)
    return ended


def _finish(session: Session, processed: Sequence[_Processed], now: datetime) -> None:
    """Writes the launches' own states: finished with their result, or wanted again without it."""
    launches.write(
        session,
        [
            {
                "id": report.launch.id,
                "state": report.end,
                "busy_s": 0.0,
                "reason": report.refusal or report.launch.reason,
                "mark": (report.launch.result.conditions or "")[:MAX_MARK] or None,
            }
            for report in processed
            if report.end is not None
        ],
    )
    again = [report.launch.id for report in processed if report.end is None]
    launches.write(session, [{"id": id_, "result": None, "finished_at": None, "busy_s": 0.0} for id_ in again])
    launches.release(session, again, now)


def _aggregated(
    session: Session, processed: Sequence[_Processed], measurements: Mapping[str, Measurement], now: datetime
) -> dict[str, Measurement]:
    """Id → measurement, of those that have an answer now, with it."""
    reported = {report.launch.id: report.launch.result for report in processed}
    done = {report.launch.measurement_id for report in processed if report.end == LaunchState.DONE}
    for id_, results in reported_rows.done_results(session, done, reported).items():
        aggregate(measurements[id_], results, now)
    without = {report.launch.measurement_id for report in processed if report.end in _MAX_ENDED} - done
    counts = demand.launch_counts(session, without) if without else {}
    unsuccessful: dict[LaunchState, list[tuple[Measurement, str]]] = {end: [] for end in _MAX_ENDED}
    for report in processed:
        row, id_, end = report.launch, report.launch.measurement_id, report.end
        if id_ not in without or end not in _MAX_ENDED or measurements[id_].launches:
            continue
        if counts[id_][end] >= _MAX_ENDED[end]:
            reason = report.refusal or row.reason or end
            said = f"{row.attempts} attempts; the last: {reason}" if end == LaunchState.FAILED else reason
            unsuccessful[end].append((measurements[id_], said))
        elif not any(counts[id_][state] for state in LIVE_LAUNCHES):
            demand.add_first(session, id_, row.target_id, row.device_key, row.purpose, now)
            counts[id_][LaunchState.WANTED] += 1
    infeasible = unsuccessful.pop(LaunchState.INFEASIBLE)
    failed = [each for of_end in unsuccessful.values() for each in of_end]
    ended = mark_unsuccessful(session, infeasible, failed, now)
    return {**{id_: measurements[id_] for id_ in done}, **ended}


def _watch_devices(
    session: Session,
    processed: Sequence[_Processed],
    subjects: Mapping[str, reported_rows.Subject],
    devices: Mapping[str, reported_rows.ReportingDevice],
    now: datetime,
) -> None:
    """What the reports say of the devices themselves. Devices are the last rows to be locked, in the order of ids."""
    noted = [
        report
        for report in processed
        if report.is_anchor or report.end != LaunchState.DONE or devices[report.launch.device_id].failing
    ]
    quarantine.lock(session, {report.launch.device_id for report in noted})
    for report in sorted(noted, key=lambda report: (report.launch.device_id, report.launch.finished_at)):
        if report.is_anchor:
            provider = subjects[report.launch.measurement_id].provider
            anchors.apply_result(session, report.launch, provider, report.refusal, now)
        else:
            quarantine.apply_result(session, report.launch, is_refused=report.refusal is not None)


def _account(processed: Sequence[_Processed], targets: Sequence[Target], now: datetime) -> None:
    """Adds the device's time to the targets that asked for the launches; their clocks start with the first of them."""
    by_id = {target.id: target for target in targets}
    for report in processed:
        target = by_id.get(report.launch.target_id or "")
        if target is not None:
            if target.started_at is None:
                began = report.launch.started_at or report.launch.created_at
                longest, wall = timedelta(seconds=STARTED_LATE_S), timedelta(seconds=report.launch.result.wall_s)
                target.started_at = min(now, max(began - longest, now - wall))
            target.launches_done += report.end is not None
            target.busy_s += report.launch.busy_s
            target.measuring_s += report.launch.result.measuring_s


def _entries(
    processed: Sequence[_Processed], targets: Sequence[Target], candidates: Sequence[Candidate]
) -> dict[str, list[Entry]]:
    """Target id → a `launch` event for each report."""
    ids: dict[tuple[str, str], list[str]] = {}
    for candidate in candidates:
        ids.setdefault((candidate.target_id, candidate.measurement_id or ""), []).append(candidate.id)
    entries: dict[str, list[Entry]] = {}
    for target in targets:
        for report in processed:
            having = ids.get((target.id, report.launch.measurement_id))
            if having:
                data = {
                    "launch_id": report.launch.id,
                    "candidate_ids": having,
                    "outcome": LaunchState.IMPLAUSIBLE if report.refusal else report.launch.result.outcome,
                    "reason": report.refusal or report.launch.reason,
                    "attempts": report.launch.attempts,
                    "final": report.end is not None,
                }
                entries.setdefault(target.id, []).append(Entry(JobEventKind.LAUNCH, data, target.id))
    return entries


def aggregate(measurement: Measurement, results: Sequence[LaunchResult], now: datetime) -> None:
    """Makes a measurement what its done launches say.

    Args:
        results: of all its done launches (at least one), oldest first.
    """
    generates = any(result.generation is not None for result in results)
    asked = measurement.protocol if generates else {"new_tokens": 0, "batch": 0}
    launches = DoneLaunches(results, asked["new_tokens"] * asked["batch"])
    logs = LogLaunches.of(launches.medians_ms)
    measurement.state = MeasurementState.MEASURED
    measurement.reason = None
    measurement.launches = logs.count
    measurement.log_mean = logs.mean
    measurement.log_m2 = logs.sum_squares
    measurement.measured_at = now
    for name, value in aggregated(launches).items():
        setattr(measurement, name, value)
