"""Further launches, where they can change the frontier.

A candidate's place is uncertain while the 95 % interval of its latency is wider than the protocol wants, and it is on
the frontier or could be, beyond the job's ε, at the fast end of its interval. Such candidates, and baselines that are
as uncertain, get further launches from devices that have nothing else to do: behind a generation's barrier, and after
the search.
"""

from __future__ import annotations

import math
from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.errors import InvalidInput
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.statistics import LaunchVariance, half_width_ms, relative_half_width
from edgefront.core.services.fleet.abilities import can_run_on
from edgefront.core.services.fleet.capability import device_keys
from edgefront.core.services.fleet.queries import OwnDevice
from edgefront.core.services.jobs.dominance import dominance_of
from edgefront.core.services.jobs.progress import refinement_budget
from edgefront.core.services.jobs.queries import candidates, demand, jobs
from edgefront.core.services.measuring.queries import measurements
from edgefront.core.services.stored import JOB_REQUEST, PROTOCOL
from edgefront.core.states import REFINABLE_TARGETS
from edgefront.core.store.tables import Job, Target

WHILE_SEARCHING = 2
"""At a time while the search continues: the next generation should not wait long behind them."""

SPREAD_UNKNOWN = 2
"""While it is unknown how far launches scatter, every frontier point gets so many launches."""


def propose(session: Session, device: OwnDevice, max_items: int, now: datetime) -> int:
    """Makes wanted launches for uncertain frontier points of this device's targets; returns how many.

    Targets are looked at without their lock, and locked one after the other, by id, before launches are made.
    """
    made = 0
    for seen, job in measurements.refinement_targets(session, device_keys(device)):
        try:
            protocol = PROTOCOL.read(seen.protocol)
            if made >= max_items or _left(session, job, seen) < 1 or not can_run_on(session, device, protocol):
                continue
        except InvalidInput:  # `advance` ends the target and says why
            continue
        target = jobs.lock_target(session, seen.id)
        if target is None:
            continue
        room = max_items - made if target.state == "refining" else min(max_items - made, WHILE_SEARCHING)
        chosen = uncertain(session, target)[:room]
        demand.add_launches(session, target, chosen, purpose="refinement", now=now)
        target.refinements += len(chosen)
        made += len(chosen)
    return made


def uncertain(session: Session, target: Target) -> list[str]:
    """Measurement ids that deserve a further launch, the widest interval first, within the target's budget.

    Empty when every place on the frontier is certain, or the budget or `max_launches` is spent: a refining target is
    then finished as soon as it has no launches to come. Measurements that have a launch to come are not named.
    """
    if target.state not in REFINABLE_TARGETS:
        return []
    job = session.get_one(Job, target.job_id)
    left = _left(session, job, target)
    return [] if left < 1 else _refinable(session, job, target, left)


def is_short_of_launches(session: Session, target: Target) -> bool:
    """Whether places on the frontier are uncertain, and the budget for further launches is spent."""
    job = session.get_one(Job, target.job_id)
    return _left(session, job, target) < 1 and bool(_refinable(session, job, target, 1))


def _refinable(session: Session, job: Job, target: Target, most: int) -> list[str]:
    protocol = PROTOCOL.read(target.protocol)
    variance = measurements.launch_variance(session, target.device_key, target.protocol_digest)
    return measurements.refinable(session, target.id, optimism(protocol, variance), most, dominance_of(job))


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


def _left(session: Session, job: Job, target: Target) -> int:
    baselines = candidates.baseline_count(session, target.id)
    return refinement_budget(JOB_REQUEST.read(job.request), target, baselines) - target.refinements
