"""The one place where reports become measurements, candidates, frontiers and events.

`process` takes a target's reports that have come since it last ran, in one transaction under the row locks of the
targets concerned, and `apply_results` brings known measurements to the candidates that have them: whoever finds
something to be known (reports, expired leases, a search that proposes what was measured before) calls one of the two.
What follows is a function of the rows: run twice, late, or after a crash it comes to the same.

Locks are taken in one order by all services: targets, measurements, launches, jobs, each by id.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from sqlalchemy.orm import Session

from edgefront.core.measurement.plausible import STARTED_LATE_S
from edgefront.core.measurement.protocol import Latency
from edgefront.core.measurement.record import GenerationSamples, LaunchResult
from edgefront.core.measurement.statistics import LaunchVariance, LogLaunches, half_width_ms, median, p90
from edgefront.core.services import tasks
from edgefront.core.services.event_log import Entry
from edgefront.core.services.jobs import frontier
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.jobs.readiness import due
from edgefront.core.services.measuring import anchors, plausibility, quarantine
from edgefront.core.services.measuring.queries import launches, validation
from edgefront.core.services.measuring.queries import measurements as rows
from edgefront.core.services.measuring.queries.launches import ReportedLaunch, UnprocessedLaunch
from edgefront.core.services.measuring.report_policy import MAX_ATTEMPTS
from edgefront.core.services.measuring.result_validation import ResultValidator
from edgefront.core.services.stored import LIMITS
from edgefront.core.states import CandidateState, JobEventKind, LaunchOutcome, LaunchState, MeasurementState, Purpose
from edgefront.core.store import outbox
from edgefront.core.store.tables import Candidate, Measurement, Target

BATCH = 200
"""Launches that one transaction processes at most."""


@dataclass(frozen=True)
class _Processed:
    """A reported launch, and what becomes of it."""

    launch: ReportedLaunch
    refusal: str | None = None
    """Why its result cannot be true."""

    @cached_property
    def end(self) -> LaunchState | None:
        """Done, implausible, infeasible or failed; None if the launch is wanted again."""
        if self.refusal is not None:
            return LaunchState.IMPLAUSIBLE
        outcome = LaunchState(self.launch.result.outcome)
        if self.launch.purpose == Purpose.ANCHOR:
            return outcome
        return None if outcome == LaunchState.FAILED and self.launch.attempts < MAX_ATTEMPTS else outcome


def process(session: Session, target_id: str | None, now: datetime) -> bool:
    """Processes the reported launches that the target asked for, for all targets that wait for the same; None: those
    of deleted targets.

    Returns whether there may be more: commit, and call again.
    """
    reported = waiting(session, target_id)
    if reported:
        process_launches(session, reported, now)
    return len(reported) == BATCH


def waiting(session: Session, target_id: str | None) -> list[UnprocessedLaunch]:
    """The next launches that `process` takes."""
    return launches.reported(session, target_id, BATCH)


def process_launches(
    session: Session, reported: Sequence[UnprocessedLaunch], now: datetime, *, with_targets: bool = True
) -> None:
    """Processes these launches. Without targets, these are left to their own `advance`, and are not charged."""
    measurement_ids = {row.measurement_id for row in reported}
    live = rows.lock_live_targets(session, measurement_ids) if with_targets else []
    targets = [target for target, _ in live]
    measurements = demand.lock(session, measurement_ids)
    locked = launches.lock_reported(session, [row.id for row in reported])
    validator = ResultValidator(
        session,
        now,
        validation.subjects(session, measurement_ids),
        validation.devices(session, {row.device_id for row in locked}),
    )
    refusals = plausibility.refusals(locked, validator.subjects, validator.devices)
    every = [_Processed(row, refusals.get(row.id)) for row in locked]
    processed = [report for report in every if report.launch.purpose != Purpose.ANCHOR]
    with session.no_autoflush:
        _finish(session, every, validator, now)
        answered = _aggregated(session, processed, measurements, validator, now)
        candidates = rows.candidates_of(session, {report.launch.measurement_id for report in processed})
        # All of these are written below: there is nothing for the session to note, and nothing for its own flush.
        for written in (*answered.values(), *candidates):
            session.expunge(written)
        rows.write(session, list(answered.values()))
        _account(processed, targets, now)
        requested: dict[str, set[str | None]] = {}
        for report in processed:
            requested.setdefault(report.launch.measurement_id, set()).add(report.launch.target_id)
        apply_results(session, targets, candidates, answered, now, _entries(processed, targets, candidates), requested)
        rows.write_targets(session, targets)
        _watch_devices(session, every, validator)
        for target in targets:
            session.expunge(target)


def give_up(session: Session, reported: UnprocessedLaunch, reason: str, now: datetime) -> None:
    """Marks a launch as failed, whatever was reported: its report cannot be processed.

    Nothing of the report is read. Targets that wait for the measurement take that in by their own `advance`.
    """
    targets = rows.lock_live_targets(session, {reported.measurement_id})
    measurements = demand.lock(session, {reported.measurement_id})
    if launches.fail_reported(session, reported.id, reason):
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
    requested: Mapping[str, Collection[str | None]] | None = None,
) -> None:
    """Brings measurements to the candidates that have them, and moves their targets' frontiers.

    Args:
        targets: the live targets with candidates of these measurements, locked by id.
        candidates: `rows.candidates_of(…)` of these measurements.
        answered: by id, measurements that have an answer now (measured, infeasible, failed), locked and flushed.
        entries: by target id, what else is to go into the logs, before the news of the candidates.
        requested: by measurement id, the targets that requested its launches: they alone see it unconfirmed.

    A live target that has come to share one of them since the targets were locked is left to its own `advance`.
    """
    # One whose limits cannot be read is left to its own `advance` too, which ends it.
    locked = {target.id: target for target in targets if LIMITS.read_or(target.limits, None) is not None}
    spreads: dict[tuple[str, str], LaunchVariance] = {}
    findings: dict[str, list[frontier.Finding]] = {}
    for candidate in candidates:
        measurement = answered.get(candidate.measurement_id or "")
        if measurement is None or _is_kept_from(candidate, measurement, requested or {}):
            continue
        if candidate.target_id not in locked:
            outbox.enqueue(session, tasks.ADVANCE, target_id=candidate.target_id)
            continue
        place = (measurement.device_key, measurement.protocol_digest)
        if place not in spreads:
            spreads[place] = rows.launch_variance(session, *place)
        findings.setdefault(candidate.target_id, []).append(
            frontier.Finding(candidate, measurement, _half_width_ms(measurement, spreads[place]))
        )
    entries = entries or {}
    concerned = [target for target in targets if target.id in findings or entries.get(target.id)]
    jobs = {target.job_id for target in concerned}
    if len(jobs) > 1:
        rows.lock_jobs(session, jobs)
    for target in concerned:
        news, logged = findings.get(target.id, ()), entries.get(target.id, ())
        frontier.update_frontier(session, target, news, now, entries=logged)
    for target in targets:
        if due(session, target, now):
            outbox.enqueue(session, tasks.ADVANCE, target_id=target.id)


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
    processed = {m.id: m for m, reason in infeasible if add_bad_end(m, MeasurementState.INFEASIBLE, reason, now)}
    launches.cancel_siblings(session, processed, now)
    hopeful = launches.with_open_launches(session, [m.id for m, _ in failed]) if failed else set()
    for measurement, reason in failed:
        if measurement.id not in hopeful and add_bad_end(measurement, MeasurementState.FAILED, reason, now):
            processed[measurement.id] = measurement
    return processed


def _finish(session: Session, processed: Sequence[_Processed], validator: ResultValidator, now: datetime) -> None:
    """Writes the launches' own states: finished with their result, or wanted again without it."""
    final = [report for report in processed if report.end is not None]
    launches.write(
        session,
        [
            {
                "id": report.launch.id,
                "state": report.end,
                "busy_s": 0.0,
                "reason": report.refusal or report.launch.reason,
                "mark": anchors.mark_of(
                    report.launch,
                    validator.devices.get(report.launch.device_id),
                    validator.subjects[report.launch.measurement_id].provider,
                ),
            }
            for report in final
        ],
    )
    again = [report for report in processed if report.end is None]
    launches.write(
        session,
        [{"id": report.launch.id, "result": None, "finished_at": None, "busy_s": 0.0} for report in again],
    )
    launches.release(session, [report.launch.id for report in again], now)


def _aggregated(
    session: Session,
    processed: Sequence[_Processed],
    measurements: Mapping[str, Measurement],
    validator: ResultValidator,
    now: datetime,
) -> dict[str, Measurement]:
    """Id → measurement, of those that have an answer now, with it."""
    asked = {report.launch.measurement_id: report.launch.target_id for report in processed}
    reported = {report.launch.id: report.launch.result for report in processed}
    fresh = set(reported)
    done = {report.launch.measurement_id for report in processed if report.end == LaunchState.DONE}
    for id_, done_here in validation.done_launches(session, done, reported).items():
        _judge(measurements[id_], done_here, fresh, asked[id_], validator, now)
    infeasible: list[tuple[Measurement, str]] = []
    failed: list[tuple[Measurement, str]] = []
    for report in processed:
        reason = report.launch.reason or report.end or ""
        if report.end in (LaunchState.INFEASIBLE, LaunchState.FAILED):
            measurement, why = measurements[report.launch.measurement_id], report.launch.result.reason or ""
            final = validator.is_final(measurement, report.launch.id, report.end, why)
            if final or not validator.confirm(measurement, report.launch.target_id):
                if report.end == LaunchState.INFEASIBLE:
                    infeasible.append((measurement, reason))
                else:
                    failed.append((measurement, f"{report.launch.attempts} attempts; the last: {reason}"))
        elif report.end == LaunchState.IMPLAUSIBLE:
            validator.caught.setdefault(report.launch.device_id, f"launch {report.launch.id} is {report.refusal}")
            if not validator.replace(measurements[report.launch.measurement_id], report.launch):
                failed.append((measurements[report.launch.measurement_id], report.refusal or ""))
    ended = mark_unsuccessful(session, infeasible, failed, now)
    # What was to confirm these came to a bad end.
    ending = {report.launch.measurement_id for report in processed if report.end is not None} - done
    unsure = {id_ for id_ in ending if measurements[id_].state == MeasurementState.UNCONFIRMED}
    for id_, done_here in validation.done_launches(session, unsure).items():
        _judge(measurements[id_], done_here, fresh, asked[id_], validator, now)
        if measurements[id_].state != MeasurementState.UNCONFIRMED:
            ended[id_] = measurements[id_]
    return {**{id_: measurements[id_] for id_ in done}, **ended}


def _judge(
    measurement: Measurement,
    done: Sequence[validation.DoneLaunch],
    fresh: set[str],
    target_id: str | None,
    validator: ResultValidator,
    now: datetime,
) -> None:
    """Makes a measurement what its done launches say that count; an outlier gets another launch, or has failed."""
    results, outlier_reason = validator.validate(measurement, done, fresh)
    aggregate(measurement, results, now)
    if outlier_reason is not None:
        confirmed = validator.confirm(measurement, target_id)
        measurement.state = MeasurementState.UNCONFIRMED if confirmed else MeasurementState.FAILED
        measurement.reason = outlier_reason


def _watch_devices(session: Session, processed: Sequence[_Processed], validator: ResultValidator) -> None:
    """What the reports say of the devices themselves. Devices are the last rows to be locked, in the order of ids."""
    noted = {
        report.launch.device_id
        for report in processed
        if report.launch.purpose == Purpose.ANCHOR
        or report.launch.result.outcome != LaunchOutcome.DONE
        or validator.devices[report.launch.device_id].failing
    }
    if len(written := noted.union(validator.audits, validator.caught)) > 1:
        validation.lock_devices(session, written)
    for device_id, (made, held) in sorted(validator.audits.items()):
        validation.audited(session, device_id, made, held)
    refusals = {report.launch.id: report.refusal for report in processed if report.refusal is not None}
    of_anchors = [report.launch for report in processed if report.launch.purpose == Purpose.ANCHOR]
    providers = {
        of_anchor.measurement_id: validator.subjects[of_anchor.measurement_id].provider for of_anchor in of_anchors
    }
    anchors.apply_results(session, of_anchors, providers, refusals)
    others = [
        report.launch for report in processed if report.launch.purpose != Purpose.ANCHOR and report.refusal is None
    ]
    quarantine.apply_results(session, others, validator.devices, validator.unlikely_ends)
    for device_id, reason in sorted(validator.caught.items()):
        quarantine.put_in(session, device_id, reason)


def _account(processed: Sequence[_Processed], targets: Sequence[Target], now: datetime) -> None:
    """Adds the device's time to the targets that asked for the launches; their clocks start with the first of them."""
    by_id = {target.id: target for target in targets}
    for report in processed:
        target = by_id.get(report.launch.target_id or "")
        if target is not None:
            if target.started_at is None:
                began = report.launch.started_at or report.launch.created_at
                target.started_at = max(
                    began - timedelta(seconds=STARTED_LATE_S), now - timedelta(seconds=report.launch.result.wall_s)
                )
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


def _is_kept_from(
    candidate: Candidate, measurement: Measurement, requested: Mapping[str, Collection[str | None]]
) -> bool:
    """An unconfirmed result is not shared with other jobs, whose candidates continue to wait for it."""
    if measurement.state != MeasurementState.UNCONFIRMED or candidate.state != CandidateState.WAITING:
        return False
    return candidate.target_id not in requested.get(measurement.id, ())


def _half_width_ms(measurement: Measurement, variance: LaunchVariance) -> float | None:
    if measurement.latency_ms is None:
        return None
    return half_width_ms(measurement.latency_ms, measurement.launches, variance)


def aggregate(measurement: Measurement, results: Sequence[LaunchResult], now: datetime) -> None:
    """Makes a measurement what its done launches say.

    Args:
        results: of all its done launches (at least one), oldest first.

    Latency is the median over launches of each launch's median; p90 is over all their samples together, once there
    are enough; memory and build peak are medians over launches. The times of generations are
    medians as the latency, their energy is the median of the launches that know it.
    """
    samples = [result.timed.samples_ms for result in results]
    medians = [median(launch) for launch in samples]
    logs = LogLaunches()
    for value in medians:
        logs = logs.with_launch(value)
    measurement.state = MeasurementState.MEASURED
    measurement.reason = None
    measurement.launches = logs.count
    measurement.log_mean = logs.mean
    measurement.log_m2 = logs.sum_squares
    measurement.latency_ms = median(medians)
    measurement.latency_p90_ms = p90([sample for launch in samples for sample in launch])
    measurement.memory_bytes = _middle([result.peak.peak_bytes for result in results])
    measurement.build_peak_bytes = _middle([result.peak.build_peak_bytes for result in results])
    _aggregate_generation(measurement, [result.generation for result in results if result.generation is not None])
    measurement.measured_at = now


def _aggregate_generation(measurement: Measurement, generations: Sequence[GenerationSamples]) -> None:
    def middle(latency: Latency) -> float | None:
        return median([median(samples.times(latency)) for samples in generations]) if generations else None

    measurement.first_token_ms = middle("first_token")
    measurement.token_ms = middle("token")
    measurement.total_ms = middle("total")
    measurement.tokens_per_s = None
    if measurement.total_ms:
        tokens = measurement.protocol["new_tokens"] * measurement.protocol["batch"]
        measurement.tokens_per_s = 1000 * tokens / measurement.total_ms
    energies = [samples.energy_token_mj for samples in generations if samples.energy_token_mj is not None]
    measurement.energy_token_mj = median(energies) if energies else None


def add_bad_end(measurement: Measurement, state: MeasurementState, reason: str, now: datetime) -> bool:
    """Marks a measurement as infeasible or failed, unless an earlier launch has measured it; True if it is marked."""
    if measurement.launches:
        return False
    measurement.state = state
    measurement.reason = reason
    measurement.measured_at = now
    return True


def _middle(sizes: Sequence[int]) -> int:
    return round(median(sizes))
