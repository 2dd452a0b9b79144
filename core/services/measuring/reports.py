"""Reports: what agents found, appended once and answered. What follows from it is derived by `result_processing`.

One short transaction for a batch: the launches of the batch are locked, each report is evaluated, and the launches keep
their raw results in the state `reported`. Nothing else is locked, so a report never waits for a search.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime

import orjson
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
from edgefront.core.services.measuring.report_policy import LaunchSoFar, ReportDecision, charged, evaluate_report
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


class _Launch:
    """A locked launch as it stands after the reports of this batch that came before."""

    def __init__(self, row: LaunchForReport) -> None:
        self.row = row
        self.state: LaunchState = row.state
        self.reports: list[str] = list(row.reports)
        self.values: Document | None = None
        self.holders: tuple[str | None, str | None] = (row.device_id, row.former_device_id)

    @property
    def protocol(self) -> Document:
        """What was asked for, as a document."""
        document: Document = orjson.loads(self.row.protocol)
        return document

    def longest_s(self, fence: int, now: datetime) -> float:
        """The most seconds that a report under this fence can have taken."""
        return longest_s(elapsed_s(self.began(fence) or self.row.created_at, now))

    def began(self, fence: int) -> datetime | None:
        """When the launch was started or leased under this fence; None (unknown by now) for an earlier lease."""
        began: datetime | None = self.row.started_at or self.row.leased_at
        return began if fence == self.row.fence else None

    @property
    def is_wanted(self) -> bool:
        """Whether the target that asked for it is active, or its job paused; anchors are wanted by the service."""
        if self.row.purpose == Purpose.ANCHOR:
            return True
        return self.row.target_state in ACTIVE_TARGETS and self.row.job_state in LIVE_JOBS


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
    by_id = {row.id: _Launch(row) for row in locked if row.device_key in device_keys(device)}
    for position, report in enumerate(request.reports):
        with within("reports", position):
            _check_memory_method(by_id, report)
            _check_generation(by_id, report)
            _check_samples(by_id, report)
    facts = _Facts(session, device_id)
    decisions = [_evaluate(device, facts, by_id.get(report.launch_id), report, now) for report in request.reports]
    facts.write()
    counted = [report for report, decision in zip(request.reports, decisions, strict=True) if decision in _COUNTS]
    longest = {id(report): by_id[report.launch_id].longest_s(report.fence, now) for report in counted}
    busy_s = min(request.busy_s, max(longest.values(), default=0.0))
    _share(by_id, counted, busy_s)
    launches.write(session, [launch.values for launch in by_id.values() if launch.values is not None])
    measuring_s = sum(min(report.result.measuring_s, longest[id(report)]) for report in counted)
    devices.worked(session, device_id, now, busy_s, measuring_s, has_result=bool(counted))
    for target_id in {by_id[report.launch_id].row.target_id for report in counted}:
        outbox.enqueue(session, tasks.PROCESS_RESULTS, target_id=target_id)
    return ReportResponse(
        receipts=tuple(
            _receipt(report, decision, by_id.get(report.launch_id))
            for report, decision in zip(request.reports, decisions, strict=True)
        )
    )


def _check_memory_method(by_id: dict[str, _Launch], report: LaunchReport) -> None:
    """Figures of different memory methods never share a frontier: refuses those of another method."""
    launch, memory = by_id.get(report.launch_id), report.result.memory
    if launch is None or memory is None:
        return
    method = launch.protocol["memory"]
    if memory.method != method:
        raise InvalidInput(
            f"launch {launch.row.id} asks for peak memory by the method {method!r}, not {memory.method!r}",
            field="result.memory.method",
            value=memory.method,
            allowed=method,
        )


def _check_generation(by_id: dict[str, _Launch], report: LaunchReport) -> None:
    """Times of a generation belong to launches that generate, and to no others."""
    launch, result = by_id.get(report.launch_id), report.result
    if launch is None or result.outcome != LaunchOutcome.DONE:
        return
    generates = launch.protocol.get("mode") == "generate"
    if generates == (result.generation is not None):
        return
    lacking = "is of mode generate: its result needs the times of the generations"
    raise InvalidInput(
        f"launch {launch.row.id} {lacking if generates else 'is not of mode generate: it has no generations'}",
        field="result.generation",
        value=None,
        allowed="GenerationSamples" if generates else "no value",
    )


def _check_samples(by_id: dict[str, _Launch], report: LaunchReport) -> None:
    """Percentiles are taken over the samples of all launches: one launch has no more of them than the others."""
    launch, latency = by_id.get(report.launch_id), report.result.latency
    if launch is None or latency is None:
        return
    most = launch.protocol["repeats"]
    if len(latency.samples_ms) > most:
        raise InvalidInput(
            f"launch {launch.row.id} asks for {most} timed passes, not {len(latency.samples_ms)}",
            field="result.latency.samples_ms",
            value=len(latency.samples_ms),
            allowed=f"at most {most} values",
        )


def _evaluate(
    device: devices.OwnDevice, facts: _Facts, launch: _Launch | None, report: LaunchReport, now: datetime
) -> ReportDecision | None:
    """The decision; where the report counts, the launch takes it."""
    if launch is None:
        return None
    result = _bounded(report.result, launch.longest_s(report.fence, now))
    digest = hashlib.sha256(report.model_dump_json().encode()).hexdigest()
    so_far = LaunchSoFar(launch.state, launch.row.attempts, launch.row.fence, launch.reports, *launch.holders)
    decision = evaluate_report(so_far, device.id, report.fence, result.outcome, result.reason, digest)
    if decision in _REFUSED:
        return decision
    if decision == "reassign" and not facts.take_out(PROTOCOL.read(launch.protocol), result.message):
        # No room for the note: an attempt is spent instead, so that it does not come back for ever.
        decision = charged(launch.row.attempts)
    launch.state = LaunchState.REPORTED
    launch.reports.append(digest)
    launch.values = {
        "id": launch.row.id,
        "state": LaunchState.REPORTED.value,
        "attempts": launch.row.attempts + (decision in ("retry", "failed")),
        "reports": launch.reports,
        "reason": f"{result.reason}: {result.message}" if result.reason else None,
        "result": result.model_dump(mode="json"),
        "busy_s": 0.0,
        "device_id": device.id,
        "former_device_id": next((holder for holder in launch.holders if holder != device.id), None),
        "started_at": launch.began(report.fence),
        "lease_id": None,
        "finished_at": now,
    }
    return decision


def _bounded(result: LaunchResult, most_s: float) -> LaunchResult:
    """Limits times of a result to what it can have taken, as they are added up. A longer done one is implausible."""
    times = ("build_s", "measuring_s") if result.outcome == LaunchOutcome.DONE else ("build_s", "measuring_s", "wall_s")
    return result.model_copy(update={name: min(getattr(result, name), most_s) for name in times})


def _share(by_id: dict[str, _Launch], counted: Sequence[LaunchReport], busy_s: float) -> None:
    """Shares the device's busy time among the launches that count, by their wall time."""
    wall_s = sum(report.result.wall_s for report in counted)
    for report in counted:
        values = by_id[report.launch_id].values
        if values is not None:
            values["busy_s"] += busy_s * (report.result.wall_s / wall_s if wall_s > 0 else 1 / len(counted))


def _receipt(report: LaunchReport, decision: ReportDecision | None, launch: _Launch | None) -> ReportReceipt:
    if decision is None or launch is None:
        return ReportReceipt(launch_id=report.launch_id, outcome=ReportOutcome.UNKNOWN, detail=_REFUSED["unknown"])
    if decision in _REFUSED:
        outcome = ReportOutcome.DUPLICATE if decision == "duplicate" else ReportOutcome.CONFLICT
        return ReportReceipt(launch_id=report.launch_id, outcome=outcome, detail=_REFUSED[decision])
    if not launch.is_wanted:
        detail = "the job no longer wants it; the measurement is kept"
        return ReportReceipt(launch_id=report.launch_id, outcome=ReportOutcome.CANCELLED, detail=detail)
    is_anchor = launch.row.purpose == Purpose.ANCHOR
    detail = _ANCHOR_FAILED if is_anchor and decision in _ACCEPTED else _ACCEPTED.get(decision, "")
    return ReportReceipt(launch_id=report.launch_id, outcome=ReportOutcome.ACCEPTED, detail=detail)
