"""Agents claim wanted launches, and report their results.

A report is stored once and acknowledged; `result_processing` derives the consequences later. One short transaction
handles a batch of reports: it locks the launches of the batch, evaluates each report, and stores the raw results of the
launches in the state `reported`. No other rows are locked, so a report never waits for a search.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

import orjson
from sqlalchemy.orm import Session

from edgefront.core.common.errors import InvalidInput, within
from edgefront.core.common.states import DeviceState, LaunchOutcome, LaunchState, ReportOutcome
from edgefront.core.measurement.plausible import longest_s
from edgefront.core.schemas.agent import MAX_BATCH, LaunchReport, ReportReceipt, ReportRequest, ReportResponse
from edgefront.core.services import tasks
from edgefront.core.services.fleet import instances
from edgefront.core.services.fleet import queries as device_queries
from edgefront.core.services.fleet.capability import device_keys, mark_unsupported, runnable
from edgefront.core.services.fleet.devices import own_device
from edgefront.core.services.measuring.decision import MAX_MARK, ReportDecision, charged, evaluate_report
from edgefront.core.services.measuring.leases import seen
from edgefront.core.services.measuring.queries import launches as launch_queries
from edgefront.core.services.measuring.queries.launches import LaunchRow
from edgefront.core.services.stored import PROTOCOL
from edgefront.core.services.work import interval_s
from edgefront.core.store.clock import elapsed_s
from edgefront.core.store.database import enqueue
from edgefront.core.store.sql import Document

MAX_HELD = 2 * MAX_BATCH
"""Maximum number of leased launches without a result per device: an agent requests its next batch when it starts the
final launch of the previous batch.
"""


class GrantedLease(NamedTuple):
    """Response to an agent's request for launches (`core.schemas.agent.LeaseResponse`)."""

    keys: frozenset[str]
    """Device keys of launches that the device may run. The API waits for launches of these keys. Not sent."""
    lease_id: str | None = None
    items: tuple[LaunchRow, ...] = ()
    expires_at: datetime | None = None
    ttl_s: float = 0.0
    heartbeat_s: float = 0.0
    state: DeviceState = DeviceState.ACTIVE
    blocked_reason: str | None = None
    """Reason why the device gets no launches, and how to end this; sent as a header."""

    def as_json(self) -> bytes:
        """Serialises the response; architectures are included as stored JSON text."""
        items = [
            {
                "launch_id": row.id,
                "fence": row.fence,
                "digest": row.digest,
                "architecture": orjson.Fragment(row.architecture),
                "protocol": orjson.Fragment(_protocol_as_json(row.protocol_json)),
                "seed": row.seed,
            }
            for row in self.items
        ]
        sent = {name: value for name, value in self._asdict().items() if name not in ("keys", "blocked_reason")}
        return orjson.dumps({**sent, "items": items}, option=orjson.OPT_UTC_Z)


@lru_cache(maxsize=1024)
def _protocol_as_json(stored: str) -> bytes:
    return PROTOCOL.read(orjson.loads(stored)).model_dump_json().encode()


def claim(
    session: Session, device_id: str, max_items: int, now: datetime, ttl_s: float, instance: str | None = None
) -> GrantedLease:
    """Claims up to `max_items` wanted launches of the device and of its class that the device can run, in the order of
    the launches' turns (`services.turns`).

    `items` is empty if there are no such launches, or if the device is draining, in quarantine, claiming in another
    request, or has `MAX_HELD` leased launches. Launches that another device is claiming are skipped, so that claims
    never wait for each other.

    `instance` identifies the requesting agent process; None for older agents.

    Raises:
        NotFound, Gone: the device does not exist, or was revoked.
        Conflict: the agent runs beside another agent with the same credential.
    """
    device = own_device(session, device_id)
    if instance is not None:
        instances.admit(session, device, instance, now)
    keys = frozenset(device_keys(device))
    if device.state == DeviceState.DRAINING or device.quarantine is not None:
        seen(session, device_id, device.last_seen_at, now)
        return GrantedLease(keys, state=DeviceState.DRAINING, blocked_reason=_blocked_reason(device))
    # A concurrent second request of the device gets no launches, so that both together do not exceed the maximum.
    most = (
        min(max_items, MAX_HELD - launch_queries.held(session, device_id))
        if launch_queries.claims_alone(session, device_id)
        else 0
    )
    taken = _take(session, device, most) if most > 0 else []
    seen(session, device_id, device.last_seen_at, now)
    if not taken:
        return GrantedLease(keys)
    expires_at = now + timedelta(seconds=ttl_s)
    lease_id = launch_queries.lease_out(session, device_id, [row.id for row in taken], now, expires_at)
    return GrantedLease(keys, lease_id, tuple(taken), expires_at, ttl_s, interval_s(ttl_s))


def _blocked_reason(device: device_queries.OwnDevice) -> str | None:
    if device.quarantine is None:
        return None
    reason, trust = device.quarantine.rstrip("."), f"edgefront device trust {device.id}"
    return f"it is in quarantine: {reason}; its owner or an admin lets it back ({trust})"


def _take(session: Session, device: device_queries.OwnDevice, max_items: int) -> list[LaunchRow]:
    """Locks and returns launches that the device can run. Their fencing token is already that of the new lease."""
    own, shared = device_keys(device)
    unfit: set[str] = set()
    while True:
        first = launch_queries.claimable(session, own, shared, unfit, max_items)
        protocols = {row.protocol_digest: row.protocol for row in first}
        able = runnable(session, device, [protocol for protocol in protocols.values() if protocol is not None])
        fit = {key for key, protocol in protocols.items() if protocol is not None and protocol.digest in able}
        refused = protocols.keys() - fit
        if not refused:
            return [row._replace(fence=row.fence + 1) for row in first]
        # Launches that the device cannot run may come before others: search again without their protocols.
        unfit |= refused


_ACCEPTED: dict[ReportDecision, str] = {
    "retry": "an attempt is used up; the launch will be repeated",
    "reassign": "the launch goes to another device; this device skips it until its agent restarts",
}
_ANCHOR_FAILED = "the device's anchor has failed; the next one comes in half an hour"
_REFUSED: dict[ReportDecision, str] = {
    "duplicate": "this report was received and counted before",
    "conflict": "another report has completed this launch, or is about to; drop this report",
    "not_lease_holder": (
        "this launch was not leased to this device with this fencing token, or was given back; drop this report"
    ),
}


def report(session: Session, device_id: str, request: ReportRequest, now: datetime) -> ReportResponse:
    """Stores a batch of reports. Returns one receipt per report, in order. Sending a batch again changes nothing.

    An unfinished launch accepts one result, from the device with its present or latest lease or from the previous
    device. If the previous device reports a result, the present device's later report raises a conflict. A launch whose
    child process dies is wanted again, and fails at the third death. A device that reports a protocol as unsupported
    gets no launches of this protocol until its agent restarts. The launch then waits for another device, and no attempt
    is charged.

    Raises:
        NotFound, Gone: the device does not exist, or was revoked.
        InvalidInput: peak memory was measured by another method than the protocol's, the report has more samples than
            the protocol requires, or times of token generation are missing or are not expected in the launch's mode.
    """
    device = own_device(session, device_id)
    locked = launch_queries.lock_for_report(session, {report.launch_id for report in request.reports})
    by_id = {row.id: row for row in locked if row.device_key in device_keys(device)}
    for position, report in enumerate(request.reports):
        if report.launch_id in by_id:
            with within("reports", position):
                _check(by_id[report.launch_id], report)
    receipts: list[ReportReceipt] = []
    counted: list[tuple[LaunchRow, LaunchReport, ReportDecision]] = []
    for report in request.reports:
        launch = by_id.get(report.launch_id)
        if launch is None:
            detail = "this device has no such launch; its job was deleted"
            receipts.append(ReportReceipt(launch_id=report.launch_id, outcome=ReportOutcome.UNKNOWN, detail=detail))
            continue
        digest = hashlib.sha256(report.model_dump_json().encode()).hexdigest()
        decision = evaluate_report(launch, device.id, report, digest)
        if decision == "reassign":
            protocol = PROTOCOL.read(orjson.loads(launch.protocol_json))
            # The facts stay locked, so that a concurrent report of the device adds its note to this one's.
            facts = mark_unsupported(device_queries.lock_facts(session, device.id), protocol, report.result.message)
            if facts is not None:
                device_queries.write_facts(session, device.id, facts)
            else:
                # The facts have no room for the note, so an attempt is charged, to prevent endless retries.
                decision = charged(launch)
        if decision not in _REFUSED:
            by_id[launch.id] = launch._replace(state=LaunchState.REPORTED, reports=[*launch.reports, digest])
            counted.append((by_id[launch.id], report, decision))
        receipts.append(_receipt(launch, decision))
    longest = {
        launch.id: longest_s(elapsed_s(_began(launch, report.fence) or launch.created_at, now))
        for launch, report, _ in counted
    }
    busy_s = min(request.busy_s, max(longest.values(), default=0.0))
    wall_s = sum(report.result.wall_s for _, report, _ in counted)
    written = []
    for launch, report, decision in counted:
        share = report.result.wall_s / wall_s if wall_s > 0 else 1 / len(counted)
        written.append(_row(launch, report, decision, device.id, longest[launch.id], now) | {"busy_s": busy_s * share})
    launch_queries.write(session, written)
    measuring_s = sum(min(report.result.measuring_s, longest[launch.id]) for launch, report, _ in counted)
    if counted:
        conditions = counted[-1][1].result.conditions
        device_queries.worked(session, device_id, now, busy_s, measuring_s, conditions and conditions[:MAX_MARK])
    else:
        device_queries.seen(session, device_id, now)
    for target_id in {launch.target_id for launch, _, _ in counted}:
        enqueue(session, tasks.PROCESS_RESULTS, target_id=target_id)
    return ReportResponse(receipts=tuple(receipts))


def _check(launch: LaunchRow, report: LaunchReport) -> None:
    """Raises `InvalidInput` for figures that are not comparable with other launches: memory by another method, too many
    samples, and times of token generation if the launch generates no tokens, or no such times if it does.
    """
    protocol, result = orjson.loads(launch.protocol_json), report.result
    asks = f"launch {launch.id} requires"
    if result.memory is not None and result.memory.method != protocol["memory"]:
        raise InvalidInput(
            f"{asks} peak memory by the method {protocol['memory']!r}, not {result.memory.method!r}",
            field="result.memory.method",
            value=result.memory.method,
            allowed=protocol["memory"],
        )
    generates = protocol.get("mode") == "generate"
    if result.outcome == LaunchOutcome.DONE and generates != (result.generation is not None):
        lacking = "is of mode generate: its result must contain the times of the generations"
        raise InvalidInput(
            f"launch {launch.id} {lacking if generates else 'is not of mode generate: omit the generations'}",
            field="result.generation",
            value=None,
            allowed="GenerationSamples" if generates else "no value",
        )
    if result.latency is not None and len(result.latency.samples_ms) > protocol["repeats"]:
        raise InvalidInput(
            f"{asks} {protocol['repeats']} timed passes, not {len(result.latency.samples_ms)}",
            field="result.latency.samples_ms",
            value=len(result.latency.samples_ms),
            allowed=f"at most {protocol['repeats']} values",
        )


def _began(launch: LaunchRow, fence: int) -> datetime | None:
    """Time when the launch was started, or else leased, with this fencing token; None for tokens of earlier leases."""
    return launch.started_at or launch.leased_at if fence == launch.fence else None


def _row(
    launch: LaunchRow,
    report: LaunchReport,
    decision: ReportDecision,
    device_id: str,
    most_s: float,
    now: datetime,
) -> Document:
    """Returns the launch's new row with the report. Times that are later added up are limited to `most_s`, except the
    wall time of a done launch, because a longer wall time makes the launch implausible.
    """
    result = report.result
    times = ("build_s", "measuring_s") if result.outcome == LaunchOutcome.DONE else ("build_s", "measuring_s", "wall_s")
    bounded = result.model_copy(update={name: min(getattr(result, name), most_s) for name in times})
    holders = (launch.device_id, launch.former_device_id)
    return {
        "id": launch.id,
        "state": launch.state,
        "attempts": launch.attempts + (decision in ("retry", "failed")),
        "reports": launch.reports,
        "reason": f"{result.reason}: {result.message}" if result.reason else None,
        "result": bounded.model_dump(mode="json"),
        "device_id": device_id,
        "former_device_id": next((holder for holder in holders if holder != device_id), None),
        "started_at": _began(launch, report.fence),
        "lease_id": None,
        "finished_at": now,
    }


def _receipt(launch: LaunchRow, decision: ReportDecision) -> ReportReceipt:
    outcome, detail = ReportOutcome.ACCEPTED, _ACCEPTED.get(decision, "")
    if decision in _REFUSED:
        outcome = ReportOutcome.DUPLICATE if decision == "duplicate" else ReportOutcome.CONFLICT
        detail = _REFUSED[decision]
    elif not launch.is_wanted:
        outcome, detail = ReportOutcome.CANCELLED, "the job no longer needs the launch; the measurement is stored"
    elif launch.is_anchor and decision in _ACCEPTED:
        detail = _ANCHOR_FAILED
    return ReportReceipt(launch_id=launch.id, outcome=outcome, detail=detail)
