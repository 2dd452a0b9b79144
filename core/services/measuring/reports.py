"""Reports: what agents found, taken in once.

One transaction for a batch: launches, measurements, candidates, frontiers and events. Rows are locked in the order
that holds everywhere (targets, measurements, launches, jobs), and the number of statements does not grow with the
batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Row
from sqlalchemy.orm import Session

from edgefront.core.errors import InvalidInput
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.services.fleet import queries as devices
from edgefront.core.services.fleet.capability import device_keys, without
from edgefront.core.services.fleet.devices import own_device
from edgefront.core.services.jobs import events
from edgefront.core.services.measuring.aggregation import add_done
from edgefront.core.services.measuring.queries import launches
from edgefront.core.services.measuring.queries import measurements as rows
from edgefront.core.services.measuring.settling import end_badly, settle
from edgefront.core.services.measuring.verdict import MAX_ATTEMPTS, LaunchSoFar, Verdict, judge
from edgefront.core.store import bulk
from edgefront.core.store.tables import Candidate, Device, Measurement, Target
from edgefront.core.wire.agent import LaunchReport, ReportReceipt, ReportRequest, ReportResponse

_STATE = {"done": "done", "infeasible": "infeasible", "failed": "failed"}
_ACCEPTED: dict[Verdict, str] = {
    "again": "an attempt is spent; it will be launched again",
    "elsewhere": "it goes to another device; this one is not asked again until its agent starts anew",
}
_REFUSED = {
    "duplicate": "this report came before and counted then",
    "conflict": "another report has settled this launch, or answers for it; drop this one",
    "unknown": "no such launch of this device; its job was deleted",
}


@dataclass
class _Batch:
    """What the reports of one request do, gathered so that each table is written once."""

    device: Device
    now: datetime
    measurements: dict[str, Measurement]
    earlier: dict[str, list[dict[str, Any]]]
    launches: dict[str, _Launch]
    counted: list[tuple[LaunchReport, _Launch, Verdict]] = field(default_factory=list)
    measured: dict[str, Measurement] = field(default_factory=dict)
    infeasible: list[tuple[Measurement, str]] = field(default_factory=list)
    failed: list[tuple[Measurement, str]] = field(default_factory=list)


class _Launch:
    """A locked launch as it stands after the reports of this batch that came before."""

    def __init__(self, row: Row[Any]) -> None:
        self.id: str = row.id
        self.measurement_id: str = row.measurement_id
        self.target_id: str | None = row.target_id
        self.device_key: str = row.device_key
        self.state: str = row.state
        self.attempts: int = row.attempts
        self.fence: int = row.fence
        self.reports: list[str] = list(row.reports)
        self.reason: str | None = None
        self.result: dict[str, Any] | None = None

    def values(self, device_id: str, now: datetime) -> dict[str, Any]:
        """The columns of a launch that has its result."""
        return {
            "id": self.id,
            "state": self.state,
            "attempts": self.attempts,
            "reports": self.reports,
            "reason": self.reason,
            "result": self.result,
            "device_id": device_id,
            "lease_id": None,
            "finished_at": now,
        }


def accept(session: Session, device_id: str, request: ReportRequest, now: datetime) -> ReportResponse:
    """Takes a batch of reports; one receipt for each, in order. Sending a batch again changes nothing.

    A launch takes one result, from whichever lease, while it is unfinished. Three deaths of its child make it failed;
    until then it is wanted again. A device that reports a protocol as unsupported is not asked for it again until its
    agent starts anew, and the launch goes to another device, or waits for one, at no cost of attempts.

    Raises:
        NotFound, Gone: no such device; it was revoked.
        InvalidInput: peak memory was taken by another method than the launch's protocol asks for.
    """
    device = own_device(session, device_id)
    ids = {report.launch_id for report in request.reports}
    live_targets = rows.lock_live_targets_of(session, ids)
    targets = [target for target, _ in live_targets]
    measurements = rows.lock_of(session, ids)
    locked = launches.lock_for_report(session, ids)
    batch = _Batch(
        device,
        now,
        measurements,
        launches.results(session, [id_ for id_, measurement in measurements.items() if measurement.launches]),
        {row.id: _Launch(row) for row in locked if row.device_key in device_keys(device)},
    )
    for position, report in enumerate(request.reports):
        _check_ruler(batch, position, report)
    verdicts = [_judge(batch, report) for report in request.reports]
    _account(batch, targets, request.busy_s)
    with session.no_autoflush, bulk.together(session):
        candidates = _write(session, batch, targets) if batch.counted else []
    measuring_s = sum(report.result.measuring_s for report, _, _ in batch.counted)
    # Last, for the device's own claims wait for its row, and must not while they are waited for.
    devices.worked(session, device_id, now, request.busy_s if batch.counted else 0.0, measuring_s)
    live = {candidate.measurement_id for candidate in candidates}
    return ReportResponse(
        receipts=tuple(
            _receipt(report, verdict, batch.launches.get(report.launch_id), live)
            for report, verdict in zip(request.reports, verdicts, strict=True)
        )
    )


def _check_ruler(batch: _Batch, position: int, report: LaunchReport) -> None:
    """Figures of different memory methods never share a frontier: refuse what another ruler took."""
    launch, memory = batch.launches.get(report.launch_id), report.result.memory
    if launch is None or memory is None:
        return
    wanted = batch.measurements[launch.measurement_id].protocol["memory"]
    if memory.method != wanted:
        raise InvalidInput(
            f"launch {launch.id} asks for peak memory by the method {wanted!r}, not {memory.method!r}",
            field=f"reports.{position}.result.memory.method",
            value=memory.method,
            allowed=wanted,
        )


def _judge(batch: _Batch, report: LaunchReport) -> Verdict | None:
    launch = batch.launches.get(report.launch_id)
    if launch is None:
        return None
    result = report.result
    digest = hashlib.sha256(report.model_dump_json().encode()).hexdigest()
    state = LaunchSoFar(launch.state, launch.attempts, launch.fence, launch.reports)
    verdict = judge(state, report.fence, result.outcome, result.reason, digest)
    if verdict in ("duplicate", "conflict"):
        return verdict
    measurement = batch.measurements[launch.measurement_id]
    if verdict == "elsewhere":
        protocol = MeasurementProtocol.model_validate(measurement.protocol)
        facts = without(batch.device.facts, protocol, result.message)
        if facts is not None:
            batch.device.facts = facts
        else:
            verdict = "failed" if launch.attempts + 1 >= MAX_ATTEMPTS else "again"
    launch.reports.append(digest)
    launch.reason = f"{result.reason}: {result.message}" if result.reason else None
    if verdict in ("again", "failed"):
        launch.attempts += 1
    if verdict in _STATE:
        launch.state = _STATE[verdict]
        launch.result = result.model_dump(mode="json")
    if verdict == "done":
        add_done(measurement, result, batch.earlier.setdefault(measurement.id, []), batch.now)
        batch.earlier[measurement.id].append(launch.result or {})
        batch.measured[measurement.id] = measurement
    elif verdict == "infeasible":
        batch.infeasible.append((measurement, launch.reason or "infeasible"))
    elif verdict == "failed":
        batch.failed.append((measurement, f"{launch.attempts} attempts; the last: {launch.reason}"))
    batch.counted.append((report, launch, verdict))
    return verdict


def _write(session: Session, batch: _Batch, targets: Sequence[Target]) -> Sequence[Candidate]:
    """Writes launches and measurements, then what follows for candidates; returns the candidates that wanted them."""
    touched = {launch.id: launch for _, launch, _ in batch.counted}
    finished = [launch for launch in touched.values() if launch.state in _STATE]
    launches.write(session, [launch.values(batch.device.id, batch.now) for launch in finished])
    unfinished = [launch for launch in touched.values() if launch.state not in _STATE]
    launches.write(
        session,
        [{"id": it.id, "attempts": it.attempts, "reports": it.reports, "reason": it.reason} for it in unfinished],
    )
    launches.give_back(session, [launch.id for launch in unfinished if launch.state == "leased"], batch.now)
    if batch.infeasible or batch.failed:
        bulk.send(session)  # it is asked below what other launches there are
    known = {**batch.measured, **end_badly(session, batch.infeasible, batch.failed, batch.now)}
    rows.write(session, list(known.values()))
    if any(measurement.launches > 1 for measurement in known.values()):
        bulk.send(session)  # they count in the spread of launches that is asked for below
    candidates = rows.candidates_of(session, {launch.measurement_id for launch in touched.values()})
    settle(session, targets, candidates, known, batch.now, _entries(batch, targets, candidates))
    rows.write_targets(session, targets)
    # All is written: nothing of these is for the session's own flush to look through.
    for written in (*known.values(), *candidates, *targets):
        session.expunge(written)
    return candidates


def _entries(
    batch: _Batch, targets: Sequence[Target], candidates: Sequence[Candidate]
) -> dict[str, list[events.Entry]]:
    """By target, one `launch` event for each report that counted."""
    ids: dict[tuple[str, str], list[str]] = {}
    for candidate in candidates:
        ids.setdefault((candidate.target_id, candidate.measurement_id or ""), []).append(candidate.id)
    entries: dict[str, list[events.Entry]] = {}
    for target in targets:
        for report, launch, verdict in batch.counted:
            having = ids.get((target.id, launch.measurement_id))
            if having:
                data = {
                    "launch_id": launch.id,
                    "candidate_ids": having,
                    "outcome": report.result.outcome,
                    "reason": launch.reason,
                    "attempts": launch.attempts,
                    "final": verdict in _STATE,
                }
                entries.setdefault(target.id, []).append(events.Entry("launch", data, target.id))
    return entries


def _account(batch: _Batch, targets: Sequence[Target], busy_s: float) -> None:
    """Adds the device's time to the targets that asked for the launches, by their wall time."""
    by_id = {target.id: target for target in targets}
    wall_s = sum(report.result.wall_s for report, _, _ in batch.counted)
    for report, launch, verdict in batch.counted:
        target = by_id.get(launch.target_id or "")
        if target is not None:
            share = report.result.wall_s / wall_s if wall_s > 0 else 1 / len(batch.counted)
            target.launches_done += verdict in _STATE
            target.busy_s += busy_s * share
            target.measuring_s += report.result.measuring_s


def _receipt(
    report: LaunchReport, verdict: Verdict | None, launch: _Launch | None, live: set[str | None]
) -> ReportReceipt:
    if verdict is None or launch is None:
        return ReportReceipt(launch_id=report.launch_id, outcome="unknown", detail=_REFUSED["unknown"])
    if verdict == "duplicate" or verdict == "conflict":
        return ReportReceipt(launch_id=report.launch_id, outcome=verdict, detail=_REFUSED[verdict])
    if launch.measurement_id not in live:
        detail = "the job wants it no more; the measurement is kept"
        return ReportReceipt(launch_id=report.launch_id, outcome="cancelled", detail=detail)
    return ReportReceipt(launch_id=report.launch_id, outcome="accepted", detail=_ACCEPTED.get(verdict, ""))
