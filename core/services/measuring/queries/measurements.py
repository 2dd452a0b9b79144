"""Queries on measurements: the targets that wait for them, and the launch variance of a device."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import orjson
from sqlalchemy import (
    ColumnElement,
    Double,
    FromClause,
    Integer,
    Select,
    String,
    and_,
    bindparam,
    case,
    cast,
    column,
    func,
    or_,
    select,
    true,
    type_coerce,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session, aliased, defer

from edgefront.core.measurement.generation import MEASURED as TIMES
from edgefront.core.measurement.statistics import LaunchVariance
from edgefront.core.pareto.dominance import Dominance
from edgefront.core.states import (
    ACTIVE_TARGETS,
    LIVE_JOBS,
    LIVE_LAUNCHES,
    REFINABLE_TARGETS,
    CandidateRole,
    CandidateState,
    JobState,
)
from edgefront.core.store.sql import Prepared, any_of, texts, write_back
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


MAX_POOLED = 1000
"""Measurements that say how far launches scatter, the first by id: more would not say it better."""

# Statements of the hot paths are built once: SQLAlchemy takes several times as long to build one as to run it.
_PLACE = (Measurement.device_key, Measurement.protocol_digest)
_NUMBERED = (
    select(
        *_PLACE,
        Measurement.launches,
        Measurement.log_m2,
        func.row_number().over(partition_by=_PLACE, order_by=Measurement.id).label("number"),
    )
    .where(
        any_of(Measurement.device_key, texts("device_keys")),
        any_of(Measurement.protocol_digest, texts("protocols")),
        Measurement.launches > 1,
    )
    .subquery()
)
_POOLED = Prepared(select(_NUMBERED).where(_NUMBERED.c.number <= MAX_POOLED))

Place = tuple[str, str]
"""A device key and the digest of a protocol."""


def launch_variance(session: Session, device_key: str, protocol_digest: str) -> LaunchVariance:
    """Variance pooled over the measurements there that have at least two launches (a partial index holds those)."""
    place = (device_key, protocol_digest)
    return launch_variances(session, [place])[place]


def launch_variances(session: Session, places: Collection[Place]) -> dict[Place, LaunchVariance]:
    """Place → its variance, as `launch_variance` has it."""
    device_keys, protocols = ({place[part] for place in places} for part in (0, 1))
    pools: dict[Place, list[tuple[int, float]]] = {place: [] for place in places}
    asked = {"device_keys": sorted(device_keys), "protocols": sorted(protocols)}
    for device_key, protocol, launches, log_m2, _ in _POOLED.run(session, asked):
        if (device_key, protocol) in pools:
            pools[device_key, protocol].append((launches, float(log_m2 or 0.0)))
    return {place: LaunchVariance.pooled(each) for place, each in pools.items()}


def _live_targets(condition: ColumnElement[bool]) -> Select[Target, Job]:
    return (
        select(Target, Job)
        .join(Job, Job.id == Target.job_id)
        .where(
            Target.id.in_(select(Candidate.target_id).where(condition)),
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


def write(session: Session, measurements: Sequence[Measurement]) -> None:
    """Writes the changed columns of these measurements."""
    write_back(session, measurements, _FOUND)


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
        Candidate.state != CandidateState.CANCELLED,
        Target.state.in_(ACTIVE_TARGETS),
        Job.state.in_(LIVE_JOBS),
    )
    .order_by(Candidate.target_id, Candidate.number)
    .options(defer(Candidate.genome), defer(Candidate.architecture))
)


def candidates_of(session: Session, measurement_ids: Collection[str]) -> Sequence[Candidate]:
    """Candidates of live targets with these measurements, in the order of their proposal."""
    return session.scalars(_CANDIDATES_OF, {"ids": list(measurement_ids)}).all()


class Uncertainty(NamedTuple):
    """What makes a measurement of a target uncertain."""

    optimism: Mapping[int, float]
    """Number of launches → factor from a latency to the lower end of its interval. Measurements with any other number
    of launches need no more.
    """
    most: int
    """Measurements that are asked for."""
    dominance: Dominance
    """What counts as better: one that a member keeps off the frontier even so is not named."""
    only: Collection[str] | None = None
    """The candidates that are named at all, at most two; None: any."""


_WANTED = {
    "target_id": String,
    "launches": Integer,
    "optimism": Double,
    "most": Integer,
    "factor": Double,
    "log": Double,
    "only": Integer,
    "one": String,
    "other": String,
}


def _refinable(asked: FromClause) -> Select[str, str]:
    member = aliased(Candidate)
    hopeful = Candidate.latency_ms * asked.c.optimism
    raised = case(
        (asked.c.log.is_not(None), member.proxy + asked.c.log),
        (member.proxy > 0, member.proxy * asked.c.factor),
        else_=member.proxy / asked.c.factor,
    )
    dominated = select(member.id).where(
        member.target_id == Candidate.target_id,
        member.on_frontier == true(),
        raised >= Candidate.proxy,
        member.memory_bytes <= Candidate.memory_bytes * asked.c.factor,
        member.latency_ms <= hopeful * asked.c.factor,
    )
    coming = select(Launch.id).where(Launch.measurement_id == Measurement.id, Launch.state.in_(LIVE_LAUNCHES))
    comes_first = or_(Candidate.role == CandidateRole.BASELINE, Candidate.on_frontier == true())
    order = (comes_first.desc(), Measurement.launches, Candidate.proxy.desc(), Candidate.number)
    ranked = (
        select(
            Candidate.target_id,
            Measurement.id,
            asked.c.most,
            func.row_number().over(partition_by=Candidate.target_id, order_by=order).label("place"),
        )
        .join_from(asked, Candidate, Candidate.target_id == asked.c.target_id)
        .join(Measurement, and_(Measurement.id == Candidate.measurement_id, Measurement.launches == asked.c.launches))
        .where(
            Candidate.state == CandidateState.MEASURED,
            or_(asked.c.only == 0, Candidate.id == asked.c.one, Candidate.id == asked.c.other),
            or_(comes_first, ~dominated.exists()),
            ~coming.exists(),
        )
        .subquery()
    )
    return (
        select(ranked.c.target_id, ranked.c.id)
        .where(ranked.c.place <= ranked.c.most)
        .order_by(ranked.c.target_id, ranked.c.place)
    )


_ROWS = bindparam("rows", type_=String)
_OF_JSON = func.json_each(_ROWS).table_valued("value")
_REFINABLE = {
    "postgresql": _refinable(
        func.jsonb_to_recordset(cast(_ROWS, JSONB))
        .table_valued(*(column(name, type_()) for name, type_ in _WANTED.items()), name="wanted")
        .render_derived(with_types=True)
    ),
    "sqlite": _refinable(
        select(
            *(
                type_coerce(func.json_extract(_OF_JSON.c.value, f"$.{name}"), type_()).label(name)
                for name, type_ in _WANTED.items()
            )
        ).subquery("wanted")
    ),
}


def refinable(session: Session, asked: Mapping[str, Uncertainty]) -> dict[str, list[str]]:
    """Target id → measurements of baselines, and of candidates that are on the target's frontier or could be with a
    lower latency.

    Frontier members and baselines come first, then the fewest launches, i.e. the widest intervals, of these the best
    quality. Measurements with a live launch are left out.
    """
    by_target: dict[str, list[str]] = {target_id: [] for target_id in asked}
    rows = [
        {
            "target_id": target_id,
            "launches": launches,
            "optimism": optimism,
            "most": of.most,
            "factor": 1.0 + of.dominance.epsilon,
            "log": math.log1p(of.dominance.epsilon) if of.dominance.logarithmic else None,
            "only": int(of.only is not None),
            **dict(zip(("one", "other"), (*(of.only or ()), None, None), strict=False)),
        }
        for target_id, of in asked.items()
        for launches, optimism in of.optimism.items()
    ]
    if rows:
        statement = _REFINABLE[session.get_bind().dialect.name]
        for target_id, measurement_id in session.execute(statement, {"rows": orjson.dumps(rows).decode()}):
            by_target[target_id].append(measurement_id)
    return by_target


def refinement_targets(session: Session, device_keys: Collection[str]) -> list[tuple[Target, Job]]:
    """The targets of running jobs for these keys that have a frontier, with their jobs, in the order of their ids."""
    rows = session.execute(
        select(Target, Job)
        .join(Job, Job.id == Target.job_id)
        .where(
            Target.device_key.in_(device_keys),
            Target.state.in_(REFINABLE_TARGETS),
            Target.frontier_size > 0,
            Job.state == JobState.RUNNING,
        )
        .order_by(Target.id)
    )
    return [(row[0], row[1]) for row in rows]
