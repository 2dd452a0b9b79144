"""Further launches of what was measured: where they can change the frontier, and where one device alone has said what
another should confirm.

A candidate's place is uncertain while the 95 % interval of its latency is wider than the protocol wants, and it is on
the frontier or could be, beyond the job's ε, at the fast end of its interval. Such candidates, and baselines that are
as uncertain, get further launches from devices that have nothing else to do: behind a generation's barrier, and after
the search. Where the best model within limits is wanted, only that and the largest stock model within them do, once the
search has ended; each has two launches at least.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.errors import InvalidInput
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.statistics import LaunchVariance, half_width_ms, relative_half_width
from edgefront.core.services.fleet.capability import device_keys, runnable
from edgefront.core.services.fleet.device_keys import DEVICE, key_of_device
from edgefront.core.services.fleet.queries import OwnDevice
from edgefront.core.services.jobs.frontier import dominance_of
from edgefront.core.services.jobs.progress import refinement_budget
from edgefront.core.services.jobs.queries import candidates, demand, jobs
from edgefront.core.services.jobs.rivals import has_one_answer, target_ahead
from edgefront.core.services.measuring.queries import measurements, validation
from edgefront.core.services.measuring.result_validation import BASELINE_OF_ONE, ResultValidator
from edgefront.core.services.stored import JOB_REQUEST, PROTOCOL
from edgefront.core.states import OPEN_MEASUREMENTS, REFINABLE_TARGETS, Goal, MeasurementState, Purpose, TargetState
from edgefront.core.store.tables import Job, Measurement, Target

WHILE_SEARCHING = 2
"""Launches at a time while the search continues: the next generation should not wait long behind them."""

SPREAD_UNKNOWN = 2
"""While it is unknown how far launches scatter, every frontier point gets so many launches."""


def propose(session: Session, device: OwnDevice, max_items: int, now: datetime) -> int:
    """Makes wanted launches for uncertain frontier points of this device's targets; returns how many.

    Targets are looked at all together, without their lock, in as many queries as for one; those that have such points
    are locked one after the other, by id, before launches are made.
    """
    made = 0
    for target_id in sorted(_uncertain_there(session, device)):
        if made >= max_items:
            break
        target = jobs.lock_target(session, target_id)
        if target is None:
            continue
        room = max_items - made if target.state == TargetState.REFINING else min(max_items - made, WHILE_SEARCHING)
        chosen = uncertain(session, target)[:room]
        demand.add_launches(session, target, chosen, purpose=Purpose.REFINEMENT, now=now)
        target.refinements += len(chosen)
        made += len(chosen)
    return made


def _uncertain_there(session: Session, device: OwnDevice) -> set[str]:
    """The targets that the device can measure for which have uncertain points, and a budget for further launches."""
    seen = measurements.refinement_targets(session, device_keys(device))
    baselines = candidates.baseline_counts(session, [target.id for target, _ in seen])
    asked: list[tuple[Job, Target, MeasurementProtocol]] = []
    for target, job in seen:
        try:
            if _left(session, job, target, baselines.get(target.id, 0)) >= 1:
                asked.append((job, target, PROTOCOL.read(target.protocol)))
        except InvalidInput:  # `advance` ends the target and says why
            continue
    able = runnable(session, device, [protocol for *_, protocol in asked])
    refinements = _refinable(session, [(job, target, 1) for job, target, protocol in asked if protocol.digest in able])
    return {target_id for target_id, measurement_ids in refinements.items() if measurement_ids}


def uncertain(session: Session, target: Target) -> list[str]:
    """Measurement ids that deserve a further launch, the widest interval first, within the target's budget.

    Empty when every place on the frontier is certain, or the budget or `max_launches` is spent: a refining target is
    then finished as soon as it has no launches to come. Measurements that have a launch to come are not named.
    """
    if target.state not in REFINABLE_TARGETS:
        return []
    job = session.get_one(Job, target.job_id)
    left = _left(session, job, target, candidates.baseline_count(session, target.id))
    return [] if left < 1 else _refinable(session, [(job, target, left)])[target.id]


def is_short_of_launches(session: Session, target: Target) -> bool:
    """Whether places on the frontier are uncertain, and the budget for further launches is spent."""
    job = session.get_one(Job, target.job_id)
    left = _left(session, job, target, candidates.baseline_count(session, target.id))
    return left < 1 and bool(_refinable(session, [(job, target, 1)])[target.id])


def _refinable(session: Session, asked: Sequence[tuple[Job, Target, int]]) -> dict[str, list[str]]:
    """Target id → at most so many measurements of it that deserve a further launch."""
    places = {target.id: (target.device_key, target.protocol_digest) for _, target, _ in asked}
    variances = measurements.launch_variances(session, set(places.values()))
    one_answer = {target.id for job, target, _ in asked if _wants_best(job)}
    answers = candidates.answers(session, one_answer)
    uncertainties = {}
    for job, target, most in asked:
        factors = optimism(PROTOCOL.read(target.protocol), variances[places[target.id]])
        if target.id in one_answer:
            factors = {1: 1.0} | factors  # no answer rests on a single launch
        uncertainties[target.id] = measurements.Uncertainty(factors, most, dominance_of(job), answers.get(target.id))
    return measurements.refinable(session, uncertainties)


def _wants_best(job: Job) -> bool:
    request = JOB_REQUEST.read_or(job.request, None)
    return request is not None and request.goal == Goal.BEST_WITHIN_LIMITS


def optimism(protocol: MeasurementProtocol, variance: LaunchVariance) -> dict[int, float]:
    """Launches → factor to the fast end of the interval, for those numbers of launches that are not precise enough."""
    factors: dict[int, float] = {}
    for launches in range(1, protocol.max_launches):
        half = relative_half_width(launches, variance)
        width = half_width_ms(1.0, launches, variance)
        if half is None or width is None:
            if launches < SPREAD_UNKNOWN:
                factors[launches] = 1.0
        elif width > protocol.precision:
            factors[launches] = math.exp(-half)
    return factors


def _left(session: Session, job: Job, target: Target, baselines: int) -> int:
    """Further launches that the target may have: for the best model within limits once its search has ended, and of a
    job with one answer only the best of its targets.
    """
    request = JOB_REQUEST.read(job.request)
    if request.goal == Goal.BEST_WITHIN_LIMITS and target.state != TargetState.REFINING:
        return 0
    if has_one_answer(request) and target_ahead(session, target) is not None:
        return 0
    return refinement_budget(request, target, baselines) - target.refinements


def ask_again(
    session: Session, measurements: Iterable[Measurement], target: Target, now: datetime, *, baselines: bool
) -> None:
    """Requests another launch for locked measurements that are known, if another device should measure them before this
    target uses them. They have no answer until then:

    - that failed because their launches contradict each other, where a device can make it that has made none, or one of
      the devices was put in quarantine since;
    - that were infeasible or failed on one device alone, where another can measure them, or on devices in quarantine;
    - baselines that one device alone has measured, where another can.
    """
    by_id = {measurement.id: measurement for measurement in measurements if measurement.state not in OPEN_MEASUREMENTS}
    if not by_id:
        return
    validator = ResultValidator(session, now, validation.subjects(session, by_id), {})
    makers, ended = validation.makers(session, by_id), validation.ended_badly(session, by_id)
    disputed = [
        measurement.id
        for measurement in by_id.values()
        if measurement.state == MeasurementState.FAILED and measurement.launches
    ]
    done = validation.done_launches(session, disputed)
    reason: str | None
    for id_, measurement in by_id.items():
        if measurement.state == MeasurementState.MEASURED and not (baselines and len(makers.get(id_, ())) < 2):
            continue
        other = validator.other_device(measurement, seen_since=True)
        if measurement.state == MeasurementState.MEASURED:
            again, reason = other is not None, BASELINE_OF_ONE
        elif measurement.launches:
            again, reason = other is not None or any(row.in_quarantine for row in done[id_]), measurement.reason
        else:
            devices = len(ended.get(id_, ()))
            again, reason = devices == 0 or (devices == 1 and other is not None), None
        if again:
            key = measurement.device_key if other is None else key_of_device(other)
            validation.add_launch(session, id_, target.id, key, Purpose.CONFIRM, now)
            measurement.state = MeasurementState.UNCONFIRMED if measurement.launches else MeasurementState.WANTED
            measurement.reason = reason


def confirm_frontier(session: Session, target: Target, now: datetime) -> bool:
    """Requests launches by other devices for frontier points and baselines of a locked target that one device alone has
    measured, or only devices that are in quarantine by now. Whether there were any.
    """
    if target.device_key.startswith(DEVICE):
        return False
    members = validation.members(session, target.id)
    makers = validation.makers(session, members)
    lone = [id_ for id_ in members if len(makers.get(id_, ())) < 2]
    measurements = demand.lock(session, lone)
    validator = ResultValidator(session, now, validation.subjects(session, lone), {})
    validator.look_up(lone)
    keys = _shared_out(validator, [measurements[id_] for id_ in lone])
    for id_, key in keys.items():
        validation.add_launch(session, id_, target.id, key, Purpose.CONFIRM, now)
    return bool(keys)


def _shared_out(validator: ResultValidator, measurements: Iterable[Measurement]) -> dict[str, str]:
    """Measurement id → key of another device that can measure it; those that can share the work."""
    keys: dict[str, str] = {}
    given: dict[str, int] = {}
    for measurement in measurements:
        able = validator.other_devices(measurement, seen_since=True)
        if able:
            chosen = min(able, key=lambda device: given.get(device, 0))
            given[chosen] = given.get(chosen, 0) + 1
            keys[measurement.id] = key_of_device(chosen)
    return keys
