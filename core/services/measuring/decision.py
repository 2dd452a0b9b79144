"""What becomes of a launch: pure functions of its row, a report on it, and what else is known.

1. `evaluate_report`, when a report comes: whether it counts, and whether it costs an attempt.
2. `refusals`: which results cannot be true, from what was measured and what the device is.
3. `decide`, when reports are processed: the state of each launch, and what follows for its measurement and its device.

Nothing here reads or writes a row: `reports` and `result_processing` do.
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

MAX_ATTEMPTS = 3
"""Deaths of the child (or of the agent during it) after which the launch has failed."""
MAX_IMPLAUSIBLE, MAX_INFEASIBLE = 3, 2
"""Launches of one measurement that end so; then the measurement does."""
_MAX_ENDED = {
    LaunchState.IMPLAUSIBLE: MAX_IMPLAUSIBLE,
    LaunchState.INFEASIBLE: MAX_INFEASIBLE,
    LaunchState.FAILED: 1,
}

ReportDecision = Literal[
    "done",  # counts; the launch has its result
    "infeasible",  # counts; the device cannot run it
    "failed",  # counts; the last attempt is spent
    "retry",  # an attempt is spent; another launch of it is to be made
    "reassign",  # no attempt is spent; this device is not to be asked again
    "duplicate",  # the same report came before
    "conflict",  # another report settled the launch, or a later holder answers for it
    "not_lease_holder",  # the launch was leased to others, or given back, or under another fence
]


def evaluate_report(row: LaunchRow, device_id: str, report: LaunchReport, digest: str) -> ReportDecision:
    """The decision on a report of this device, whose digest is given.

    A report counts only from the device that holds the launch, or held it last, or held it before the present holder,
    and under a fence that this device had. A result (done, infeasible) of such a device is true though the launch may
    have gone to another since. A death of the child is charged once: not if a later holder has the launch, or if the
    expiry of the lease has charged it, for both raise the fence.
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
    """What becomes of a launch that is charged one more attempt."""
    return "failed" if is_spent(row._replace(attempts=row.attempts + 1)) else "retry"


def is_spent(row: LaunchRow) -> bool:
    """Whether a launch that has failed is tried no more."""
    return row.attempts >= MAX_ATTEMPTS


@dataclass(frozen=True)
class Evidence:
    """What decides on reported launches beside their rows."""

    refusals: Mapping[str, str]
    """Launch id → why its result cannot be true (`refusals`)."""
    states: Mapping[str, Counter[str]]
    """Measurement id → its launches by state; of measurements with a launch that did not end well."""
    measured: Collection[str]
    """Measurements that have a result already."""
    needed: Collection[str]
    """Launches that somebody still needs, of those that may be tried again."""


@dataclass(frozen=True)
class Decision:
    """What becomes of one reported launch."""

    row: LaunchRow
    state: LaunchState
    """Done, implausible, infeasible or failed; wanted (cancelled where nobody needs it) for the next attempt."""
    reason: str | None
    charge: bool | None = None
    """Whether its device has failed at it; None where the launch says nothing of its device."""
    follow_up: Literal["aggregate", "end", "launch"] | None = None
    """For its measurement: it has one more result, or ends without one, or gets a launch more."""

    @property
    def is_final(self) -> bool:
        """Whether the launch has ended."""
        return self.state in FINISHED_LAUNCHES

    @property
    def why(self) -> str:
        """Why its measurement ends by it."""
        reason = self.reason or self.state
        return f"{self.row.attempts} attempts; the last: {reason}" if self.state == LaunchState.FAILED else reason


def decide(rows: Sequence[LaunchRow], evidence: Evidence) -> list[Decision]:
    """The decisions on reported launches, in their order.

    A launch that failed is tried again until its attempts are spent; an anchor's is not. A measurement without a result
    ends with its `MAX_INFEASIBLE`th infeasible launch, and, once no launch of it is to come, with its
    `MAX_IMPLAUSIBLE`th implausible one or one that failed. Until then it gets another launch.
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
    """The decision on one launch, without what depends on the others of its measurement."""
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
    """Launch id → why its result cannot be true; launches whose result can be are left out.

    Args:
        rows: with their results. costs: of their measurements. devices: that reported.
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
    """What the device has of the memory that the protocol's method reads; None where its facts do not say."""
    of_gpu = not Provider(protocol.provider).shares_host_memory and protocol.memory in ("allocator", "device")
    holders = facts.get("gpus", ()) if of_gpu else (facts,)
    sizes = [holder.get("memory_bytes") for holder in holders]
    numbers = [value for value in sizes if isinstance(value, int | float) and not isinstance(value, bool)]
    return max(numbers, default=0) or None


def _asked(row: LaunchRow, costs: MeasuredCosts) -> tuple[MeasurementProtocol, Work, GenerationWork | None] | None:
    """What a launch had to do; None for a form that this release does not have."""
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
        # Every time of a generation is held against its own passes, whichever of them is the latency.
        first_token, token = (Work.of(each, protocol, translates=False) for each in passes)
        total = replace(first_token, flops=first_token.flops + (protocol.new_tokens - 1) * token.flops)
        work = {"total": total, "first_token": first_token, "token": token}[protocol.latency]
        generation = GenerationWork(first_token, token, protocol.new_tokens, protocol.batch, protocol.latency)
        return protocol, work, generation
    except EdgefrontError:
        return None
