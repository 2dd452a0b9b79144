"""Further launches of what was measured, where they can change the frontier.

A candidate's place is uncertain while the 95 % interval of its latency is wider than the protocol wants, and it is on
the frontier or could be, beyond the job's ε, at the fast end of its interval. Such candidates, and baselines that are
as uncertain, get further launches after the search. Where the best model within limits is wanted, only that and the
largest stock model within them do; each has two launches at least.
"""

from __future__ import annotations

import math

from sqlalchemy.orm import Session

from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.statistics import LaunchVariance, half_width_ms, relative_half_width
from edgefront.core.services.jobs.frontier import dominance_of
from edgefront.core.services.jobs.progress import refinement_budget
from edgefront.core.services.jobs.queries import candidates
from edgefront.core.services.jobs.rivals import has_one_answer, target_ahead
from edgefront.core.services.measuring.queries import measurements
from edgefront.core.services.stored import JOB_REQUEST, PROTOCOL
from edgefront.core.states import Goal
from edgefront.core.store.tables import Job, Target

SPREAD_UNKNOWN = 2
"""While it is unknown how far launches scatter, every frontier point gets so many launches."""


def uncertain(session: Session, target: Target) -> list[str]:
    """Measurement ids that deserve a further launch, the widest interval first, within the budget of a target that
    refines.

    Empty when every place on the frontier is certain, or the budget or `max_launches` is spent: the target is then
    finished as soon as it has no launches to come. Measurements that have a launch to come are not named.
    """
    return _uncertain(session, target, _left(session, target))


def is_short_of_launches(session: Session, target: Target) -> bool:
    """Whether places on the frontier are uncertain, and the budget for further launches is spent."""
    return _left(session, target) < 1 and bool(_uncertain(session, target, 1))


def _uncertain(session: Session, target: Target, most: int) -> list[str]:
    if most < 1:
        return []
    job = session.get_one(Job, target.job_id)
    variance = measurements.launch_variance(session, target.device_key, target.protocol_digest)
    factors, only = optimism(PROTOCOL.read(target.protocol), variance), None
    request = JOB_REQUEST.read_or(job.request, None)
    if request is not None and request.goal == Goal.BEST_WITHIN_LIMITS:
        factors = {1: 1.0} | factors  # no answer rests on a single launch
        answer, stock = (
            candidates.best_within_limits(session, target.id),
            candidates.measured_baselines(session, target.id),
        )
        only = [row.id for row in (answer, *stock[-1:]) if row is not None]
    return measurements.refinable(session, target.id, factors, dominance_of(job), only)[:most]


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


def _left(session: Session, target: Target) -> int:
    """Further launches that the target may have; of a job with one answer only the best of its targets has any."""
    request = JOB_REQUEST.read(session.get_one(Job, target.job_id).request)
    if has_one_answer(request) and target_ahead(session, target) is not None:
        return 0
    return refinement_budget(request, target, candidates.baseline_count(session, target.id)) - target.refinements
