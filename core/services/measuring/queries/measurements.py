"""Queries on measurements: the targets that wait for them, and the launch variance of a device."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, bindparam, case, or_, select, true
from sqlalchemy.orm import Session, aliased, defer

from edgefront.core.measurement.generation import MEASURED as TIMES
from edgefront.core.measurement.statistics import LaunchVariance
from edgefront.core.pareto.dominance import Dominance
from edgefront.core.states import ACTIVE_TARGETS, LIVE_JOBS, LIVE_LAUNCHES, REFINABLE_TARGETS
from edgefront.core.store.any_of import any_of, texts
from edgefront.core.store.bulk import write_back
from edgefront.core.store.tables import Candidate, Job, Launch, Measurement, Target

_FOUND = (
    "state",
    "reason",
    "launches",
    "latency_ms",
    "latency_p90_ms",
    "log_mean",
    "log_m2",
    "memory_bytes",
    "build_peak_bytes",
    *TIMES,
    "measured_at",
)
_PROGRESS = (
    "settled",
    "launches_done",
    "busy_s",
    "measuring_s",
    "started_at",
    "frontier_size",
    "hypervolume",
)


POOLED_AT_MOST = 1000
"""Measurements that say how far launches scatter: more would not say it better."""

# Statements of the hot paths are built once: SQLAlchemy takes several times as long to build one as to run it.
_POOLED = (
    select(Measurement.launches, Measurement.log_m2)
    .where(
        Measurement.device_key == bindparam("device_key"),
        Measurement.protocol_digest == bindparam("protocol"),
        Measurement.launches > 1,
    )
    .limit(POOLED_AT_MOST)
)


def launch_variance(session: Session, device_key: str, protocol_digest: str) -> LaunchVariance:
    """Pooled over the measurements there that have at least two launches (a partial index holds those alone)."""
    rows = session.execute(_POOLED, {"device_key": device_key, "protocol": protocol_digest})
    return LaunchVariance.pooled((launches, float(log_m2 or 0.0)) for launches, log_m2 in rows)


def _live_targets(wanted: ColumnElement[bool]) -> Any:
    return (
        select(Target, Job)
        .join(Job, Job.id == Target.job_id)
        .where(
            Target.id.in_(select(Candidate.target_id).where(wanted)),
            Target.state.in_(ACTIVE_TARGETS),
            Job.state.in_(LIVE_JOBS),
        )
        .order_by(Target.id)
        .with_for_update(of=Target, key_share=True)
        .execution_options(populate_existing=True)
    )


_LIVE_TARGETS = _live_targets(any_of(Candidate.measurement_id, texts("ids")))


def lock_live_targets(session: Session, measurement_ids: Collection[str]) -> list[tuple[Target, Job]]:
    """Live targets that have a candidate with one of these measurements, locked in the order of their ids.

    Their jobs are returned too, not locked, so that their constant columns need not be queried again.
    Live: it has not ended and its job is running or paused (launches that were running when it was paused count).
    """
    if not measurement_ids:
        return []
    return [(target, job) for target, job in session.execute(_LIVE_TARGETS, {"ids": list(measurement_ids)})]


def write(session: Session, found: Sequence[Measurement]) -> None:
    """Writes the changed columns of these measurements."""
    write_back(session, found, _FOUND)


def write_targets(session: Session, targets: Sequence[Target]) -> None:
    """Writes the changed columns of these targets."""
    write_back(session, targets, _PROGRESS)


def lock_jobs(session: Session, job_ids: Collection[str]) -> None:
    query = select(Job.id).where(any_of(Job.id, job_ids)).order_by(Job.id).with_for_update(key_share=True)
    session.execute(query)


_CANDIDATES_OF = (
    select(Candidate)
    .join(Target, Target.id == Candidate.target_id)
    .join(Job, Job.id == Candidate.job_id)
    .where(
        any_of(Candidate.measurement_id, texts("ids")),
        Candidate.state != "cancelled",
        Target.state.in_(ACTIVE_TARGETS),
        Job.state.in_(LIVE_JOBS),
    )
    .order_by(Candidate.target_id, Candidate.number)
    .options(defer(Candidate.genome), defer(Candidate.architecture))
)


def candidates_of(session: Session, measurement_ids: Collection[str]) -> Sequence[Candidate]:
    """Candidates of live targets with these measurements, in the order of their proposal."""
    return session.scalars(_CANDIDATES_OF, {"ids": list(measurement_ids)}).all()


def refinable(
    session: Session, target_id: str, optimism: Mapping[int, float], limit: int, dominance: Dominance
) -> list[str]:
    """Measurements of baselines, and of candidates that are on the target's frontier or could be with a lower latency.

    Args:
        optimism: number of launches → factor from a latency to the lower end of its interval. Measurements with any
        other number of launches need no more.
        dominance: what counts as better: one that a member keeps off the frontier even so is not named.

    Frontier members and baselines come first, then the fewest launches, i.e. the widest intervals. Measurements with a
    live launch are left out.
    """
    if not optimism:
        return []
    member = aliased(Candidate)
    hopeful = Candidate.latency_ms * case(optimism, value=Measurement.launches, else_=1.0)
    factor = 1.0 + dominance.epsilon
    dominated = select(member.id).where(
        member.target_id == target_id,
        member.on_frontier == true(),
        _raised(member.proxy, dominance) >= Candidate.proxy,
        member.memory_bytes <= Candidate.memory_bytes * factor,
        member.latency_ms <= hopeful * factor,
    )
    coming = select(Launch.id).where(Launch.measurement_id == Measurement.id, Launch.state.in_(LIVE_LAUNCHES))
    return list(
        session.scalars(
            select(Measurement.id)
            .join(Candidate, Candidate.measurement_id == Measurement.id)
            .where(
                Candidate.target_id == target_id,
                Candidate.state == "measured",
                Measurement.launches.in_(optimism),
                or_(Candidate.role == "baseline", Candidate.on_frontier == true(), ~dominated.exists()),
                ~coming.exists(),
            )
            .order_by(
                or_(Candidate.role == "baseline", Candidate.on_frontier == true()).desc(),
                Measurement.launches,
                Candidate.number,
            )
            .limit(limit)
        )
    )


def _raised(proxy: Any, dominance: Dominance) -> Any:
    """The column, better by ε."""
    factor = 1.0 + dominance.epsilon
    if dominance.logarithmic:
        return proxy + math.log(factor)
    return case((proxy > 0, proxy * factor), else_=proxy / factor)


def refinement_targets(session: Session, device_keys: Collection[str]) -> list[tuple[Target, Job]]:
    """The targets of running jobs for these keys that have a frontier, with their jobs, in the order of their ids."""
    rows = session.execute(
        select(Target, Job)
        .join(Job, Job.id == Target.job_id)
        .where(
            Target.device_key.in_(device_keys),
            Target.state.in_(REFINABLE_TARGETS),
            Target.frontier_size > 0,
            Job.state == "running",
        )
        .order_by(Target.id)
    )
    return [(row[0], row[1]) for row in rows]
