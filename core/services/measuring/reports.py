"""Reports: what agents found, appended once and answered. What follows from it is derived by `result_processing`.

One short transaction for a batch: the launches of the batch are locked, each report is evaluated, and the launches keep
their raw results in the state `reported`. Nothing else is locked, so a report never waits for a search.
"""

from __future__ import annotations

import hashlib
from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.errors import InvalidInput, within
from edgefront.core.measurement.plausible import longest_s
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.services import tasks
from edgefront.core.services.fleet import queries as devices
from edgefront.core.services.fleet.capability import device_keys, without
from edgefront.core.services.fleet.devices import own_device
from edgefront.core.services.measuring.queries import launches
from edgefront.core.services.measuring.queries.launches import LaunchForReport
from edgefront.core.services.measuring.report_policy import ReportDecision, charged, evaluate_report
from edgefront.core.services.stored import PROTOCOL
from edgefront.core.states import ACTIVE_TARGETS, LIVE_JOBS, LaunchOutcome, LaunchState, Purpose, ReportOutcome
from edgefront.core.store import outbox
from edgefront.core.store.clock import elapsed_s
from edgefront.core.store.sql import Document
from edgefront.core.wire.agent import LaunchReport, ReportReceipt, ReportRequest, ReportResponse

_COUNTS = frozenset({"done", "infeasible", "failed", "retry", "reassign"})
_ACCEPTED: dict[ReportDecision, str] = {
    "retry": "an attempt is used up; it will be launched again",
    "reassign": "it goes to another device; skipped on this device until its agent restarts",
}
_ANCHOR_FAILED = "the device's anchor has failed; the next one comes in half an hour"
_REFUSED = {
    "duplicate": "this report was received and counted before",
    "conflict": "another report has settled this launch, or is about to; drop this one",
    "not_lease_holder": (
        "this launch was not leased to this device, or not under this fence, or given back; drop this report"
    ),
    "unknown": "no such launch of this device; its job was deleted",
}


def _began(row: LaunchForReport, fence: int) -> datetime | None:
    """When the launch was started or leased under this fence; None (unknown by now) for an earlier lease."""
    return row.launch.started_at or row.leased_at if fence == row.launch.fence else None


def _is_wanted(row: LaunchForReport) -> bool:
    """Whether the target that asked for it is active, or its job paused; anchors are wanted by the service."""
    if row.launch.purpose == Purpose.ANCHOR:
        return True
    return row.target_state in ACTIVE_TARGETS and row.job_state in LIVE_JOBS


class _Facts:
    """The facts of the device, read only when a report says that it cannot run something, and locked from then on:
    another report of the device at the same time adds its note to this one's.
    """

    def __init__(self, session: Session, device_id: str) -> None:
        self._session, self._device_id = session, device_id
        self._changed: Document | None = None

    def take_out(self, protocol: MeasurementProtocol, message: str) -> bool:
        """Notes that the device does not support the protocol; False if there is no room for another note."""
        facts = self._changed or devices.lock_facts(self._session, self._device_id)
        without_it = without(facts, protocol, message)
        if without_it is None:
            return False
        self._changed = without_it
        return True

    def write(self) -> None:
        if self._changed is not None:
            devices.write_facts(self._session, self._device_id, self._changed)


def accept(session: Session, device_id: str, request: ReportRequest, now: datetime) -> ReportResponse:
    """Takes a batch of reports; one receipt for each, in order. Sending a batch again changes nothing.

    A launch takes one result while it is unfinished: from the device that holds it or held it last, or from the one
    before, whose successor then gets a conflict. Three deaths of its child make it failed;
    until then it is wanted again. A device that reports a protocol as unsupported is skipped for it until its agent
    restarts, and the launch goes to another device, or waits for one, at no cost of attempts.

    Raises:
        NotFound, Gone: no such device; it was revoked.
        InvalidInput: peak memory was taken by another method than the launch's protocol asks for, there are more
            samples than it asks for, or the times of generations are missing, or of a launch that does not generate.
    """
    device = own_device(session, device_id)
    locked = launches.lock_for_report(session, {report.launch_id for report in request.reports})
    by_id = {row.launch.id: row for row in locked if row.launch.device_key in device_keys(device)}
    most_s: list[float] = []
    """Of each report, the seconds that it can have taken at most."""
    for position, report in enumerate(request.reports):
        row = by_id.get(report.launch_id)
        with within("reports", position):
            _check(row, report)
        began = None if row is None else _began(row, report.fence) or row.launch.created_at
        most_s.append(0.0 if began is None else longest_s(elapsed_s(began, now)))
    facts = _Facts(session, device_id)
    decisions = [
        _evaluate(device, facts, by_id.get(report.launch_id), report, longest, now)
        for report, longest in zip(request.reports, most_s, strict=True)
    ]
    facts.write()
    counted = [
        (by_id[report.launch_id].launch, report.result, longest)
        for report, decision, longest in zip(request.reports, decisions, most_s, strict=True)
        if decision in _COUNTS
    ]
    busy_s = min(request.busy_s, max((longest for *_, longest in counted), default=0.0))
    wall_s = sum(result.wall_s for _, result, _ in counted)
    for launch, result, _ in counted:  # the device's busy time is shared by wall time
        launch.busy_s = busy_s * (result.wall_s / wall_s if wall_s > 0 else 1 / len(counted))
    session.flush()
    measuring_s = sum(min(result.measuring_s, longest) for _, result, longest in counted)
    devices.worked(session, device_id, now, busy_s, measuring_s, has_result=bool(counted))
    for target_id in {launch.target_id for launch, *_ in counted}:
        outbox.enqueue(session, tasks.PROCESS_RESULTS, target_id=target_id)
    return ReportResponse(
        receipts=tuple(
            _receipt(report, decision, by_id.get(report.launch_id))
            for report, decision in zip(request.reports, decisions, strict=True)
        )
    )


def _check(row: LaunchForReport | None, report: LaunchReport) -> None:
    """`InvalidInput` of a result that is not what the launch's protocol asks for.

    Figures of different memory methods never share a frontier. Times of a generation belong to launches that generate,
    and to no others. Percentiles are taken over the samples of all launches: one has no more of them than the others.
    """
    if row is None:
        return
    id_, protocol, result = row.launch.id, row.protocol, report.result
    method, memory = protocol["memory"], result.memory
    if memory is not None and memory.method != method:
        raise InvalidInput(
            f"launch {id_} asks for peak memory by the method {method!r}, not {memory.method!r}",
            field="result.memory.method",
            value=memory.method,
            allowed=method,
        )
    generates = protocol.get("mode") == "generate"
    if result.outcome == LaunchOutcome.DONE and generates != (result.generation is not None):
        lacking = "is of mode generate: its result needs the times of the generations"
        raise InvalidInput(
            f"launch {id_} {lacking if generates else 'is not of mode generate: it has no generations'}",
            field="result.generation",
            value=None,
            allowed="GenerationSamples" if generates else "no value",
        )
    most = protocol["repeats"]
    if result.latency is not None and len(result.latency.samples_ms) > most:
        raise InvalidInput(
            f"launch {id_} asks for {most} timed passes, not {len(result.latency.samples_ms)}",
            field="result.latency.samples_ms",
            value=len(result.latency.samples_ms),
            allowed=f"at most {most} values",
        )


def _evaluate(
    device: devices.OwnDevice,
    facts: _Facts,
    row: LaunchForReport | None,
    report: LaunchReport,
    longest: float,
    now: datetime,
) -> ReportDecision | None:
    """The decision; where the report counts, the launch takes it."""
    if row is None:
        return None
    launch, result = row.launch, _bounded(report.result, longest)
    digest = hashlib.sha256(report.model_dump_json().encode()).hexdigest()
    decision = evaluate_report(launch, device.id, report.fence, result.outcome, result.reason, digest)
    if decision in _REFUSED:
        return decision
    if decision == "reassign" and not facts.take_out(PROTOCOL.read(row.protocol), result.message):
        # No room for the note: an attempt is spent instead, so that it does not come back for ever.
        decision = charged(launch.attempts)
    launch.started_at = _began(row, report.fence)
    launch.state = LaunchState.REPORTED
    launch.attempts += decision in ("retry", "failed")
    launch.reports = [*launch.reports, digest]
    launch.reason = f"{result.reason}: {result.message}" if result.reason else None
    launch.result = result.model_dump(mode="json")
    holders = (launch.device_id, launch.former_device_id)
    launch.former_device_id = next((holder for holder in holders if holder != device.id), None)
    launch.device_id = device.id
    launch.lease_id, launch.finished_at = None, now
    return decision


def _bounded(result: LaunchResult, most_s: float) -> LaunchResult:
    """Limits times of a result to what it can have taken, as they are added up. A longer done one is implausible."""
    times = ("build_s", "measuring_s") if result.outcome == LaunchOutcome.DONE else ("build_s", "measuring_s", "wall_s")
    return result.model_copy(update={name: min(getattr(result, name), most_s) for name in times})


def _receipt(report: LaunchReport, decision: ReportDecision | None, row: LaunchForReport | None) -> ReportReceipt:
    if decision is None or row is None:
        return ReportReceipt(launch_id=report.launch_id, outcome=ReportOutcome.UNKNOWN, detail=_REFUSED["unknown"])
    if decision in _REFUSED:
        outcome = ReportOutcome.DUPLICATE if decision == "duplicate" else ReportOutcome.CONFLICT
        return ReportReceipt(launch_id=report.launch_id, outcome=outcome, detail=_REFUSED[decision])
    if not _is_wanted(row):
        detail = "the job no longer wants it; the measurement is kept"
        return ReportReceipt(launch_id=report.launch_id, outcome=ReportOutcome.CANCELLED, detail=detail)
    is_anchor = row.launch.purpose == Purpose.ANCHOR
    detail = _ANCHOR_FAILED if is_anchor and decision in _ACCEPTED else _ACCEPTED.get(decision, "")
    return ReportReceipt(launch_id=report.launch_id, outcome=ReportOutcome.ACCEPTED, detail=detail)
