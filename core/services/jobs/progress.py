"""Progress of a target: planned candidates, remaining time, whether there is a next step, and a note for users."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.states import (
    ACTIVE_TARGETS,
    LIVE_LAUNCHES,
    WAITS,
    CandidateState,
    Goal,
    JobState,
    Purpose,
    TargetState,
)
from edgefront.core.schemas.jobs import JobRequest
from edgefront.core.search.interface import PREDICTED, SPREAD
from edgefront.core.services.fleet.capability import can_run, unsupported_reason
from edgefront.core.services.fleet.device_keys import parsed
from edgefront.core.services.jobs.incumbents import grouped_by_answer, has_one_answer
from edgefront.core.services.jobs.queries import candidates as candidate_queries
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.services.jobs.queries.candidates import Latencies
from edgefront.core.services.jobs.resolved import sizes_of
from edgefront.core.services.stored import JOB_REQUEST, PROTOCOL
from edgefront.core.store.sql import Document
from edgefront.core.store.tables import Job, Target

RESERVED = 4
"""Number of launches that a search for the best model within limits reserves time for: further launches of the answer
and of the stock model.
"""
RECENT = 5
"""Number of latest launches from which the current pace is computed."""


def planned(request: JobRequest | None, target: Target) -> int | None:
    """Returns the maximum number of candidates, including baselines, when the target ends; None if unknown."""
    if target.state not in (TargetState.BASELINES, TargetState.SEARCHING):
        return target.candidates
    try:
        if request is None or request.targets[target.position].added:  # predictions decide how many are measured
            return None
        sizes = sizes_of(request)
    except InvalidInput:  # an unknown space or algorithm
        return None
    return sizes.baselines + sizes.candidates


def seconds_left(
    job: Job,
    request: JobRequest | None,
    targets: Sequence[Target],
    live: Mapping[str, tuple[int, datetime | None]],
    latencies: Mapping[str, Latencies],
    now: datetime,
) -> dict[str, float | None]:
    """Estimates the seconds until each of these targets of a job ends; None if unknown. `live`:
    `demand.live_launches`.

    1. The remaining launches of a target take the device time of the target's launches so far, of which the measuring
       share rises with the predicted latency.
    2. Targets on one device take turns: a launch of each active target in turn. Targets that share one answer search
       one after another.
    3. Device time is converted to time by the ratio for the job up to the launch that runs, which includes the turns of
       other jobs. The time since its start is subtracted, at most that of one launch.
    """
    left: dict[str, float | None] = {target.id: 0.0 for target in targets if target.state not in ACTIVE_TARGETS}
    one_answer = request is not None and has_one_answer(request)
    first = {group[0].id if one_answer else target.id for group in grouped_by_answer(targets) for target in group}
    for device_key in {target.device_key for target in targets}:
        own = [target for target in targets if target.device_key == device_key]
        active = [target for target in own if target.state in ACTIVE_TARGETS]
        began = min((target.started_at for target in own if target.started_at is not None), default=None)
        busy, launches = (sum(getattr(target, name) for target in own) for name in ("busy_s", "launches_done"))
        if request is None or job.state != JobState.RUNNING or began is None or launches < 2 or not busy:
            left |= {target.id: None for target in active}
            continue
        running = {target: live[target.id] for target in active if target.id in live}
        elapsed = max(0.0, (now - began).total_seconds())
        start = min((start for _, start in running.values() if start is not None), default=now)
        since = min(elapsed, max(0.0, (now - start).total_seconds()))
        ratio, mean = (elapsed - since) / busy, busy / launches
        each = {target: ratio * _launch_seconds(target, mean, latencies.get(target.id)) for target in active}
        seconds = {
            target: count * each[target]
            for target in active
            if (count := remaining_launches(request, target, running.get(target, (0,))[0], target.id in first))
            is not None
        }
        since = min(since, max((each[target] for target in running), default=0.0))
        limit = math.inf if request.budget.minutes is None else max(0.0, request.budget.minutes * 60 - elapsed)
        for target in active:
            before = [other for other in seconds if not one_answer or other.position <= target.position]
            most = math.inf if one_answer else seconds.get(target, 0.0)
            total = sum(min(most, seconds[other]) for other in before) - since
            left[target.id] = min(limit, max(0.0, total)) if target in seconds else None
    return left


LATER = 1
"""Expected number of launches of each later target, if targets share one answer."""


def remaining_launches(request: JobRequest | None, target: Target, live: int, leads: bool = True) -> int | None:
    """Returns the expected number of launches until the target ends, of which `live` are requested; None if unknown.
    Of the targets that share one answer only the first one `leads`.
    """
    if request is None or planned(request, target) is None:
        return None
    launches = max(live, target.candidates - target.settled)
    if target.state == TargetState.REFINING:
        return launches
    sizes = sizes_of(request)
    if not leads:
        return launches + max(0, LATER - target.candidates)
    refinements = int(request.budget.refinement * sizes.expected)
    launches += min(refinements, RESERVED) if request.goal == Goal.BEST_WITHIN_LIMITS else refinements
    if target.state == TargetState.BASELINES:
        baselines = sizes.baselines * sizes.baseline_launches - target.launches_done - live
        return launches + max(0, baselines) + sizes.expected
    proposed = target.candidates - sizes.baselines
    # Past the expected number, about every second generation is the last.
    further = max(sizes.expected - proposed, sizes.generation // 2)
    return launches + max(0, min(sizes.candidates - proposed, further))


def _launch_seconds(target: Target, of_job: float, latencies: Latencies | None) -> float:
    """Device time of one of the target's next launches. `of_job` is the mean of the job's launches on this device."""
    if not target.launches_done:
        return of_job
    seconds, ratio = target.busy_s / target.launches_done, 1.0
    if latencies is not None and latencies.measured and latencies.waiting:
        ratio = latencies.waiting / latencies.measured
    return seconds + (ratio - 1) * target.measuring_s / target.launches_done


def launches_in_time(session: Session, request: JobRequest, target: Target, now: datetime) -> int | None:
    """Estimates the number of launches in the rest of the job's time budget, from the target's average pace or from the
    pace of the latest `RECENT` launches, whichever is slower, because later models of a search may be larger. Before
    the target's first launch has finished, the pace is that of the job on the device.

    Returns None if there is no time budget, or before the job's first launch on the device has finished.
    """
    began, since, done = job_queries.first_start(session, target), target.started_at, target.launches_done
    if since is None or not done:
        own = job_queries.targets(session, [target.job_id])
        since, done = began, sum(each.launches_done for each in own if each.device_key == target.device_key)
    if request.budget.minutes is None or began is None or since is None or not done:
        return None
    left = request.budget.minutes * 60 - (now - began).total_seconds()
    pace = (now - since).total_seconds() / done
    before = demand.finished_before(session, target, RECENT)
    if before is not None:
        pace = max(pace, (now - before).total_seconds() / RECENT)
    return int(max(0.0, left) / max(1e-3, pace))


def baselines_in_time(session: Session, request: JobRequest, target: Target, now: datetime) -> int | None:
    """Returns the number of baselines to measure next; None: any. With a time budget one at first, then those that take
    a quarter of the time, so that candidates and the answer's further launches follow.
    """
    launches = launches_in_time(session, request, target, now)
    if launches is None:
        return None if request.budget.minutes is None else 1
    share = (target.launches_done + launches) // RESERVED
    return max(0, share // sizes_of(request).baseline_launches - target.candidates)


def out_of_time(session: Session, request: JobRequest, target: Target, now: datetime) -> bool:
    """Whether the job's time budget on the target's device is used up. The time runs from the job's first launch on the
    device, for any target, and pauses do not count.
    """
    return request.budget.minutes is not None and is_spent(request, job_queries.first_start(session, target), now)


def is_spent(request: JobRequest, began: datetime | None, now: datetime) -> bool:
    """Whether the job's time budget has passed since `began`, the job's first launch on a device."""
    minutes = request.budget.minutes
    return minutes is not None and began is not None and (now - began).total_seconds() >= minutes * 60


def has_next_step(session: Session, target: Target, now: datetime) -> bool:
    """Whether `search.advance` can do a step for this target. This must be fast, because all transactions call it."""
    job = job_queries.find(session, target.job_id)
    if job is None or job.state != JobState.RUNNING or target.state not in ACTIVE_TARGETS:
        return False
    try:
        request = JOB_REQUEST.read(job.request)
        if out_of_time(session, request, target, now):
            return True
    except InvalidInput:  # `advance` ends the target and says why
        return True
    if target.state == TargetState.REFINING:
        return not demand.has_live_launch(session, target)
    if target.settled < target.candidates:
        return False
    if candidate_queries.any_waiting(session, target.id) or demand.has_live_launch(session, target, Purpose.REPEAT):
        return False
    return target.state != TargetState.BASELINES or baselines_complete(session, request, target)


def baselines_complete(session: Session, request: JobRequest, target: Target) -> bool:
    """Whether every baseline of the target has a result and no further launch of a baseline is pending."""
    baselines = candidate_queries.baselines(session, target.id)
    if not baselines or any(baseline.state == CandidateState.WAITING for baseline in baselines):
        return False
    if demand.has_live_launch(session, target, Purpose.REPEAT):
        return False
    incomplete = [
        row.measurement_id
        for row in baselines
        if row.measurement_id and row.launches < sizes_of(request).baseline_launches
    ]
    counts = demand.launch_counts(session, incomplete)
    return not any(counts[id_][state] for id_ in incomplete for state in LIVE_LAUNCHES)


def note(
    job: Job,
    target: Target,
    device: str,
    online: int,
    seen: Sequence[tuple[Document, str | None]],
    blocked_device: tuple[str, str] | None = None,
    unserved: str = "",
) -> str:
    """Returns a note for users: why the target ended, that the job is paused, or that no online agent can measure.

    `online` is the number of online devices of the target, and `seen` are their facts and conditions; empty if not
    queried. `blocked_device` is the name of a device and what blocks it, from `job_queries.blocked_devices`.
    `unserved` says that no worker serves the queues of work.
    """
    parts = [target.note] if target.note else []
    if target.state in ACTIVE_TARGETS:
        if unserved and job.state == JobState.RUNNING:
            parts.append(unserved)
        if job.state == JobState.PAUSED:
            parts.append("Paused.")
        elif online == 0 and blocked_device is not None:
            name, state = blocked_device
            parts.append(
                f"The device {name!r} is {state}, and no other is online for {_kind(target)} {device!r}. "
                f"The device's owner or an admin may {_REMEDIES[state]}."
            )
        elif online == 0:
            parts.append(f"The target waits, because no agent is online for {_kind(target)} {device!r}.")
        elif all(conditions == WAITS for _, conditions in seen) and seen:
            parts.append(f"The device {WAITS}.")
        elif seen:
            parts.append(_unsupported_note(target, device, [facts for facts, _ in seen]))
    return " ".join(text for text in parts if text)


_REMEDIES = {
    "in quarantine": "trust it again",
    "draining": "activate it",
    "revoked": "enrol it again (`edgefront device reenrol`); or add a target on another device to the job",
}


def added_note(session: Session, request: JobRequest, target: Target) -> str:
    """Returns a text on how many candidates an added target measures; empty for the job's first targets."""
    if not request.targets[target.position].added:
        return ""
    own = [
        sibling.id
        for sibling in job_queries.targets(session, [target.job_id])
        if not request.targets[sibling.position].added
    ]
    every, measured = (
        candidate_queries.architectures_scored(session, own),
        candidate_queries.measured_by_operator(session, target.id),
    )
    return (
        f"Added to the job later: {sum(measured.values())} of the job's {every} candidates were measured for this "
        f"target ({measured.get(SPREAD, 0)} spread out to fit predictions, {measured.get(PREDICTED, 0)} predicted to "
        "matter); the others were only predicted."
    )


def _unsupported_note(target: Target, device: str, facts: Sequence[Document]) -> str:
    """Returns a message that no device with these facts can run the target's protocol; empty if some device can."""
    protocol = PROTOCOL.read_or(target.protocol, None)
    if protocol is None or any(can_run(device_facts, protocol) for device_facts in facts):
        return ""
    reasons = sorted({unsupported_reason(device_facts, protocol) for device_facts in facts} - {""})
    because = f" ({reasons[0]})" if reasons else ""
    return (
        f"The target waits, because no agent online for {_kind(target)} {device!r} can measure {protocol.runtime} on "
        f"{protocol.provider} in {protocol.number_format}{because}. Start an agent that can, or restart the agent."
    )


def _kind(target: Target) -> str:
    return parsed(target.device_key)[0]
