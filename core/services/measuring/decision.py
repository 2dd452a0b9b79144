"""Decides the outcome of launches (runs of a model on a device), by pure functions of rows, reports and other evidence.

1. `evaluate_report`, when a report arrives: whether the report counts, and whether the launch is charged an attempt.
2. `refusals`: which results are impossible, by the measured work and the device.
3. `decide`, when reports are processed: the state of each launch, and the consequences for measurement and device.

This module reads and writes no rows: `launches` and `result_processing` do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

import orjson

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import EdgefrontError
from edgefront.core.common.states import FINISHED_LAUNCHES, LIVE_LAUNCHES, LaunchOutcome, LaunchState
from edgefront.core.measurement.passes import generation_passes, protocol_costs
from edgefront.core.measurement.plausible import (
    Counted,
    GenerationWork,
    Work,
    ceiling,
    implausible,
    over_time_too_early,
)
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.provider import Provider
from edgefront.core.schemas.agent import LaunchReport
from edgefront.core.services.measuring.queries.launches import LaunchRow
from edgefront.core.services.measuring.queries.measurements import MeasuredCosts, ReportingDevice
from edgefront.core.store.clock import elapsed_s
from edgefront.core.store.sql import Document

LAUNCH_ATTEMPTS = 3
"""Number of deaths of the child process (or of the agent during the launch) after which a launch has failed."""
MAX_MARK = 400
"""Maximum number of characters of the agent's note on conditions in a launch's mark."""
MAX_IMPLAUSIBLE, MAX_INFEASIBLE = 3, 2
"""Number of implausible or infeasible launches of one measurement that end the measurement."""
_MAX_ENDED = {
    LaunchState.IMPLAUSIBLE: MAX_IMPLAUSIBLE,
    LaunchState.INFEASIBLE: MAX_INFEASIBLE,
    LaunchState.FAILED: 1,
}

ReportDecision = Literal[
    "done",  # counts; the launch has its result
    "infeasible",  # counts; the device cannot run the launch
    "failed",  # counts; the final attempt is spent
    "retry",  # an attempt is spent; the launch is wanted again
    "reassign",  # no attempt is spent; this device is not asked again
    "duplicate",  # the same report came before
    "conflict",  # another report completed the launch, or a later holder reports on it
    "not_lease_holder",  # the launch was leased to another device, given back, or leased with another fencing token
]


def evaluate_report(row: LaunchRow, device_id: str, report: LaunchReport, digest: str) -> ReportDecision:
    """Decides whether a report of this device counts. `digest` is the digest of the report.

    A report counts only from the device with the present or latest lease of the launch, or from the previous device,
    and only with a fencing token of the reporting device. A result (done, infeasible) of the previous device counts
    even though another device has leased the launch since. A death of the child process is charged once. It is not
    charged if another device has leased the launch since, or if the expiry of the lease was charged, because both raise
    the fencing token.
    """
    fence = report.fence
    if device_id not in (row.device_id, row.former_device_id):
        return "not_lease_holder"
    if digest in row.reports:
        return "duplicate"
    if row.state in (*FINISHED_LAUNCHES, LaunchState.REPORTED):
        return "conflict"
    if not 1 <= fence <= row.fence or (device_id != row.device_id and fence == row.fence):
        return "not_lease_holder"
    if report.result.outcome == LaunchOutcome.DONE:
        return "done"
    if report.result.outcome == LaunchOutcome.INFEASIBLE:
        return "infeasible"
    if fence != row.fence:
        return "conflict"
    return "reassign" if report.result.reason == "unsupported" else charged(row)


def charged(row: LaunchRow) -> Literal["failed", "retry"]:
    """Outcome of a launch after one more charged attempt: failed, or another try."""
    return "failed" if is_spent(row._replace(attempts=row.attempts + 1)) else "retry"


def is_spent(row: LaunchRow) -> bool:
    """Whether a failed launch has spent all its attempts."""
    return row.attempts >= LAUNCH_ATTEMPTS


@dataclass(frozen=True)
class Evidence:
    """Evidence that decides on reported launches, in addition to the launches' rows."""

    refusals: Mapping[str, str]
    """Launch id → reason why the launch's result is impossible (`refusals`)."""
    states: Mapping[str, Counter[str]]
    """Measurement id → number of launches by state, for measurements with a launch that was not done."""
    measured: Collection[str]
    """Ids of the measurements that already have a result."""
    needed: Collection[str]
    """Ids of launches that may be tried again and that a job still needs."""


@dataclass(frozen=True)
class Decision:
    """The new state of one reported launch, and the consequences for its measurement and its device."""

    row: LaunchRow
    state: LaunchState
    """Done, implausible, infeasible or failed; for another attempt wanted, or cancelled if no job needs the launch."""
    reason: str | None
    charge: bool | None = None
    """Whether the device failed at the launch; None if the launch says nothing about its device."""
    follow_up: Literal["aggregate", "end", "launch"] | None = None
    """Effect on the measurement: one more result, an end without a result, or one more launch."""

    @property
    def is_final(self) -> bool:
        """Whether the launch has ended."""
        return self.state in FINISHED_LAUNCHES

    @property
    def why(self) -> str:
        """Reason of this decision, which is stored if the decision ends the measurement."""
        reason = self.reason or self.state
        return f"{self.row.attempts} attempts; the last: {reason}" if self.state == LaunchState.FAILED else reason


def decide(rows: Sequence[LaunchRow], evidence: Evidence) -> list[Decision]:
    """Returns the decisions on reported launches, in the order of `rows`.

    A failed launch is tried again until all attempts are spent; launches of anchors (reference models) are not. A
    measurement without a result ends with its `MAX_INFEASIBLE`th infeasible launch. Once no launch is live, a
    measurement also ends with its `MAX_IMPLAUSIBLE`th implausible launch or with a failed launch. Until then the
    measurement gets another launch.
    """
    decisions = [_decide(row, evidence) for row in rows]
    done = {each.row.measurement_id for each in decisions if each.follow_up == "aggregate"}
    states = {id_: Counter(counted) for id_, counted in evidence.states.items()}
    for each in decisions:
        if each.row.measurement_id in states:
            states[each.row.measurement_id].update({LaunchState.REPORTED: -1, each.state: 1})
    decided = []
    for each in decisions:
        id_ = each.row.measurement_id
        if each.state in _MAX_ENDED and not each.row.is_anchor and id_ not in done and id_ not in evidence.measured:
            is_live = any(states[id_][state] > 0 for state in LIVE_LAUNCHES)
            if states[id_][each.state] < _MAX_ENDED[each.state]:
                if not is_live:
                    each = replace(each, follow_up="launch")
                    states[id_][LaunchState.WANTED] += 1
            elif each.state == LaunchState.INFEASIBLE or not is_live:
                each = replace(each, follow_up="end")
        decided.append(each)
    return decided


def _decide(row: LaunchRow, evidence: Evidence) -> Decision:
    """Decides on one launch, without the effects of other launches of the same measurement."""
    result, refusal = row.result, evidence.refusals.get(row.id)
    if refusal is not None:
        return Decision(row, LaunchState.IMPLAUSIBLE, refusal, charge=True)
    if result.outcome == LaunchOutcome.DONE:
        follow_up: Literal["aggregate"] | None = None if row.is_anchor else "aggregate"
        return Decision(row, LaunchState.DONE, row.reason, charge=False, follow_up=follow_up)
    if result.outcome == LaunchOutcome.INFEASIBLE:
        return Decision(row, LaunchState.INFEASIBLE, row.reason)
    state = LaunchState.FAILED
    if not row.is_anchor and not is_spent(row):
        state = LaunchState.WANTED if row.id in evidence.needed else LaunchState.CANCELLED
    return Decision(row, state, row.reason, charge=None if result.reason == "unsupported" else True)


def refusals(
    rows: Sequence[LaunchRow], costs: Mapping[str, MeasuredCosts], devices: Mapping[str, ReportingDevice]
) -> dict[str, str]:
    """Returns launch id → reason why the launch's result is impossible. Launches with possible results are left out.

    Args:
        rows: reported launches with results.
        costs: measurement id → computational costs of the measured model.
        devices: device id → reporting device.
    """
    reasons: dict[str, str] = {}
    asked: dict[str, tuple[MeasurementProtocol, Work, GenerationWork | None] | None] = {}
    for row in rows:
        why, id_ = None, row.measurement_id
        if row.result.outcome == LaunchOutcome.DONE and row.holder in devices:
            if id_ not in asked:
                asked[id_] = _asked(row, costs[id_])
            known, facts = asked[id_], devices[row.holder].facts
            if known is not None:
                protocol, work, generation = known
                bound = ceiling(facts, protocol, work.read_bytes)
                memory_bytes = _memory_bytes(facts, protocol)
                why = implausible(row.result, work, bound, _elapsed_s(row), generation, memory_bytes)
        elif row.result.reason == "over_time" and row.protocol is not None:
            why = over_time_too_early(row.result, row.protocol.time_limit_s, _elapsed_s(row))
        if why is not None:
            reasons[row.id] = why
    return reasons


def _elapsed_s(row: LaunchRow) -> float:
    return elapsed_s(row.started_at or row.created_at, row.reported_at)


def _memory_bytes(facts: Document, protocol: MeasurementProtocol) -> float | None:
    """Size of the memory that the protocol measures, bytes; None if the device's facts do not contain the size."""
    of_gpu = not Provider(protocol.provider).shares_host_memory and protocol.memory in ("allocator", "device")
    holders = facts.get("gpus", ()) if of_gpu else (facts,)
    sizes = [holder.get("memory_bytes") for holder in holders]
    numbers = [value for value in sizes if isinstance(value, int | float) and not isinstance(value, bool)]
    return max(numbers, default=0) or None


def _asked(row: LaunchRow, costs: MeasuredCosts) -> tuple[MeasurementProtocol, Work, GenerationWork | None] | None:
    """Returns protocol and computational work of a launch; None if this release cannot read the protocol."""
    protocol = row.protocol
    if protocol is None:
        return None
    if protocol.mode != "generate" and costs.flops is not None:
        return protocol, Work.of(cast(Counted, costs), protocol, translates=costs.translates), None
    try:
        architecture = Architecture.model_validate(orjson.loads(row.architecture))
        if protocol.mode != "generate":
            counted = protocol_costs(architecture, protocol)
            return protocol, Work.of(counted, protocol, translates=costs.translates), None
        passes = generation_passes(architecture, protocol)
        # Every time of a generation is compared with its own forward passes, whichever time is the latency.
        first_token, token = (Work.of(each, protocol, translates=False) for each in passes)
        total = replace(first_token, flops=first_token.flops + (protocol.new_tokens - 1) * token.flops)
        work = {"total": total, "first_token": first_token, "token": token}[protocol.latency]
        generation = GenerationWork(first_token, token, protocol.new_tokens, protocol.batch, protocol.latency)
        return protocol, work, generation
    except EdgefrontError:
        return None
