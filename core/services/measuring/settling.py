"""Takes what is known of measurements into the candidates that wait for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.measurement.statistics import LaunchVariance, half_width_ms
from edgefront.core.services import tasks
from edgefront.core.services.jobs import events, frontier
from edgefront.core.services.jobs.due import due
from edgefront.core.services.measuring.aggregation import add_bad_end
from edgefront.core.services.measuring.queries import launches
from edgefront.core.services.measuring.queries import measurements as rows
from edgefront.core.store import bulk, outbox
from edgefront.core.store.tables import Candidate, Measurement, Target


def settle(
    session: Session,
    targets: Sequence[Target],
    candidates: Sequence[Candidate],
    known: Mapping[str, Measurement],
    now: datetime,
    entries: Mapping[str, Sequence[events.Entry]] | None = None,
) -> None:
    """Brings measurements to the candidates that have them, and moves their targets' frontiers.

    Args:
        targets: the live targets with candidates of these measurements, locked by id.
        candidates: `rows.candidates_of(…)` of these measurements.
        known: by id, measurements that have an answer now (measured, infeasible, failed), locked and flushed.
        entries: by target id, what else is to go into the logs, before the news of the candidates.

    A live target that has come to share one of them since the targets were locked is left to its own `advance`.
    """
    locked = {target.id: target for target in targets}
    spreads: dict[tuple[str, str], LaunchVariance] = {}
    findings: dict[str, list[frontier.Finding]] = {}
    for candidate in candidates:
        measurement = known.get(candidate.measurement_id or "")
        if measurement is None:
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
        frontier.candidate_settled(session, target, news, now, entries=logged)
    if any(target.state != "searching" or target.settled >= target.candidates for target in targets):
        bulk.send(session)  # it may be asked what still waits
    for target in targets:
        if due(session, target, now):
            outbox.enqueue(session, tasks.ADVANCE, target_id=target.id)


def end_badly(
    session: Session,
    infeasible: Sequence[tuple[Measurement, str]],
    failed: Sequence[tuple[Measurement, str]],
    now: datetime,
) -> dict[str, Measurement]:
    """Marks measurements whose launches came to a bad end; returns by id those that this settles.

    Infeasible settles at once and cancels sibling launches. A failed launch settles only if no sibling is still to
    come. A measurement that an earlier launch has measured stays measured. The launches' own states are written.
    """
    settled = {m.id: m for m, reason in infeasible if add_bad_end(m, "infeasible", reason, now)}
    launches.cancel_siblings(session, settled, now)
    hopeful = launches.with_open_launches(session, [m.id for m, _ in failed]) if failed else set()
    settled |= {m.id: m for m, reason in failed if m.id not in hopeful and add_bad_end(m, "failed", reason, now)}
    return settled


def _half_width_ms(measurement: Measurement, variance: LaunchVariance) -> float | None:
    if measurement.latency_ms is None:
        return None
    return half_width_ms(measurement.latency_ms, measurement.launches, variance)
