"""What a report means for its launch: the rules of attempts, fences and duplicates, as a pure function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from edgefront.core.states import FINISHED_LAUNCHES, LaunchOutcome, LaunchState

MAX_ATTEMPTS = 3
"""Deaths of the child (or of the agent during it) after which the launch has failed."""


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


@dataclass(frozen=True)
class LaunchSoFar:
    """What a decision depends on: the launch's state, attempts and fence, and the digests of reports that counted."""

    state: LaunchState
    attempts: int
    fence: int
    reports: Sequence[str]
    holder: str | None
    """The device that holds it, or held it last; None once that has given it back, or was made to."""
    former: str | None
    """The one before."""


def evaluate_report(
    launch: LaunchSoFar, device_id: str, fence: int, outcome: LaunchOutcome, reason: str | None, digest: str
) -> ReportDecision:
    """The decision on a report of this device with this fence, outcome and digest.

    A report counts only from the device that holds the launch, or held it last, or held it before the present holder,
    and under a fence that this device had. A result (done, infeasible) of such a device is true though the launch may
    have gone to another since. A death of the
    child is charged once: not if a later holder has the launch, or if the expiry of the lease has charged it, for
    both raise the fence.
    """
    if device_id not in (launch.holder, launch.former):
        return "not_lease_holder"
    if digest in launch.reports:
        return "duplicate"
    if launch.state in (*FINISHED_LAUNCHES, LaunchState.REPORTED):
        return "conflict"
    if not 1 <= fence <= launch.fence or (device_id != launch.holder and fence == launch.fence):
        return "not_lease_holder"
    if outcome == LaunchOutcome.DONE:
        return "done"
    if outcome == LaunchOutcome.INFEASIBLE:
        return "infeasible"
    if fence != launch.fence:
        return "conflict"
    if reason == "unsupported":
        return "reassign"
    return charged(launch.attempts)


def charged(attempts: int) -> ReportDecision:
    """What becomes of a launch that has spent so many attempts and is charged one more."""
    return "failed" if attempts + 1 >= MAX_ATTEMPTS else "retry"
