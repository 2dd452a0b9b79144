"""Queries on candidates."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from sqlalchemy import (
    ColumnElement,
    Select,
    and_,
    case,
    func,
    insert,
    literal,
    or_,
    select,
    true,
)
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased, defer

from edgefront.core.architectures.space import Genome
from edgefront.core.common.states import (
    LIVE_LAUNCHES,
    MEASURED_CANDIDATES,
    CandidateRole,
    CandidateState,
    MeasurementState,
)
from edgefront.core.common.units import MB
from edgefront.core.measurement.figures import FIGURES, MEASURED
from edgefront.core.measurement.statistics import DECISIVE
from edgefront.core.schemas.jobs import Limits
from edgefront.core.store.sql import Document, any_of, columns, typed, write_back
from edgefront.core.store.tables import Candidate, Launch, Measurement, Target

MAX_BASELINES = 256
"""Maximum number of baselines. Baselines have the lowest numbers of a target, so queries find them by number."""

COPIED = (*MEASURED, "launches", "measured_at")
"""Columns that a candidate copies from its measurement."""
HALF_WIDTHS = tuple(name for name, figure in FIGURES.items() if figure.aggregate is None)
"""Columns of half-widths, which also depend on the other measurements of the device."""
_NEWS = ("state", "reason", "marked", "on_frontier", *HALF_WIDTHS, *COPIED)

_LARGEST = 1e18
"""Bytes: upper bound of a memory limit, below the maximum of the column."""


Figure = InstrumentedAttribute[float | None] | InstrumentedAttribute[int | None]
"""Column of a measured figure."""


IS_BASELINE = and_(Candidate.number < MAX_BASELINES, Candidate.role == CandidateRole.BASELINE)


def add(session: Session, rows: Sequence[Document]) -> None:
    if rows:
        session.execute(insert(Candidate), list(rows))


def by_ids(session: Session, ids: Collection[str]) -> list[Candidate]:
    return list(session.scalars(select(Candidate).where(any_of(Candidate.id, ids)).order_by(Candidate.number)))


def architectures(session: Session, ids: Collection[str]) -> dict[str, Document]:
    """Candidate id → architecture."""
    query = select(Candidate.id, Candidate.architecture).where(any_of(Candidate.id, ids))
    return dict(session.execute(query).all())


def numbers(session: Session, ids: Collection[str]) -> dict[str, int]:
    """Candidate id → number of the candidate within its target."""
    query = select(Candidate.id, Candidate.number).where(any_of(Candidate.id, ids))
    return dict(session.execute(query).all())


def without_launches(session: Session, target_id: str, most: int) -> list[Candidate]:
    """Returns the first `most` candidates that wait for a result although none of their launches is live."""
    live = select(Launch.id).where(Launch.measurement_id == Candidate.measurement_id, Launch.state.in_(LIVE_LAUNCHES))
    query = _of_measurements(target_id).where(
        Candidate.state == CandidateState.WAITING, Measurement.state == MeasurementState.WANTED, ~live.exists()
    )
    return list(session.scalars(query.limit(most)))


def with_results(session: Session, target_id: str, most: int) -> list[Candidate]:
    """Returns the first `most` candidates that still wait although their measurement has a result."""
    query = _of_measurements(target_id).where(
        Candidate.state == CandidateState.WAITING, Measurement.state != MeasurementState.WANTED
    )
    return list(session.scalars(query.limit(most)))


def _of_measurements(target_id: str) -> Select[Candidate]:
    joined = select(Candidate).join(Measurement, Measurement.id == Candidate.measurement_id)
    return joined.where(Candidate.target_id == target_id).order_by(Candidate.number)


def waiting(session: Session, target_id: str) -> list[Candidate]:
    """Returns the target's candidates that wait for a result. Genome and architecture are not loaded."""
    query = select(Candidate).where(Candidate.target_id == target_id, Candidate.state == CandidateState.WAITING)
    light = query.options(defer(Candidate.genome), defer(Candidate.architecture))
    return list(session.scalars(light.order_by(Candidate.number)))


class Latencies(NamedTuple):
    """Mean latencies of a target's candidates, ms; None without such candidates."""

    measured: float | None
    waiting: float | None
    """Mean latency that was predicted for the candidates that wait for a result, else that of their FLOPs."""


def latencies(session: Session, target_ids: Collection[str]) -> dict[str, Latencies]:
    """Target id → mean latencies, for targets with candidates."""
    predicted = Candidate.predicted["latency_ms"].as_float()
    waits, measured = Candidate.state == CandidateState.WAITING, Candidate.latency_ms
    per_flop = func.avg(measured) / func.avg(case((measured.is_not(None), Candidate.flops)))
    by_flops = func.avg(case((waits, Candidate.flops))) * per_flop
    waiting = func.coalesce(func.avg(case((waits, predicted))), by_flops)
    query = select(Candidate.target_id, func.avg(measured), waiting)
    rows = session.execute(query.where(any_of(Candidate.target_id, target_ids)).group_by(Candidate.target_id))
    return {id_: Latencies(*figures) for id_, *figures in rows}


def mean_flops(session: Session, target: Target) -> float | None:
    """Mean FLOPs of the models that the job has measured on the target's device; None if there are none."""
    own = Target.job_id == target.job_id, Target.device_key == target.device_key, Candidate.latency_ms.is_not(None)
    mean = session.scalar(select(func.avg(Candidate.flops)).join(Target, Target.id == Candidate.target_id).where(*own))
    return None if mean is None else float(mean)


def marked_counts(session: Session, target_ids: Collection[str]) -> dict[str, int]:
    """Target id → number of flagged candidates on the frontier, for targets with flagged candidates."""
    own = (any_of(Candidate.target_id, target_ids), Candidate.on_frontier == true(), Candidate.marked == true())
    query = select(Candidate.target_id, func.count()).where(*own).group_by(Candidate.target_id)
    return dict(session.execute(query).all())


def any_waiting(session: Session, target_id: str) -> bool:
    waiting = select(Candidate.id).where(Candidate.target_id == target_id, Candidate.state == CandidateState.WAITING)
    return bool(session.scalar(select(waiting.exists())))


def baselines(session: Session, target_id: str) -> list[Candidate]:
    query = select(Candidate).where(Candidate.target_id == target_id, IS_BASELINE)
    return list(session.scalars(query.order_by(Candidate.number)))


def frontiers_and_baselines(session: Session, target_ids: Collection[str]) -> list[Candidate]:
    """Returns the candidates on the frontiers and the baselines of these targets, by candidate number."""
    own = any_of(Candidate.target_id, target_ids)
    found = [
        candidate
        for condition in (IS_BASELINE, Candidate.on_frontier == true())
        for candidate in session.scalars(select(Candidate).where(own, condition))
    ]
    return sorted(found, key=lambda candidate: candidate.number)


def baseline_count(session: Session, target_id: str) -> int:
    return session.scalar(select(func.count()).where(Candidate.target_id == target_id, IS_BASELINE)) or 0


def measured_baselines(session: Session, target_id: str) -> list[Candidate]:
    """Returns the measured baselines within the limits, by rising number of decoder parameters."""
    measured = (row for row in baselines(session, target_id) if row.state == CandidateState.MEASURED)
    return sorted(measured, key=lambda row: row.decoder_parameters)


def write(session: Session, changed: Sequence[Candidate]) -> None:
    """Writes the changed columns of these candidates to the database."""
    write_back(session, changed, _NEWS)


def bounds(limits: Limits) -> list[tuple[Figure, float]]:
    """Returns the database columns that have a limit, each with the limit."""
    limited = (
        (Candidate.latency_ms, limits.latency_ms),
        (Candidate.memory_bytes, None if limits.memory_mb is None else min(limits.memory_mb * MB, _LARGEST)),
        (Candidate.first_token_ms, limits.first_token_ms),
        (Candidate.token_ms, limits.token_ms),
    )
    return [(column, limit) for column, limit in limited if limit is not None]


def best_within(session: Session, target_id: str, limits: Limits, most: int) -> list[Candidate]:
    """Returns the `most` best measured search candidates by proxy within `limits`, which may differ from the job's."""
    order = (Candidate.proxy.desc(), Candidate.latency_ms, Candidate.id)
    return list(session.scalars(select(Candidate).where(_within(target_id, limits)).order_by(*order).limit(most)))


def some_within(session: Session, target_id: str, limits: Limits, ids: Collection[str]) -> list[Candidate]:
    """Returns measured search candidates within the limits, among the candidates with these ids."""
    query = select(Candidate).where(any_of(Candidate.id, ids), _within(target_id, limits))
    return list(session.scalars(query.order_by(Candidate.number)))


def genomes_within(session: Session, target_id: str, limits: Limits) -> dict[str, Genome]:
    """Candidate id → genome (empty if the search has none) of every measured search candidate within the limits."""
    query = select(Candidate.id, Candidate.genome).where(_within(target_id, limits)).order_by(Candidate.number)
    return dict(session.execute(query).all())


def _within(target_id: str, limits: Limits) -> ColumnElement[bool]:
    """Condition that a candidate is a measured search candidate within `limits` (not always the job's limits)."""
    within = [column <= limit for column, limit in bounds(limits)]
    return and_(_measured(target_id), *within)


def measured(session: Session, target_id: str) -> list[Candidate]:
    """Returns the measured search candidates of a target, within the limits or not."""
    return list(session.scalars(select(Candidate).where(_measured(target_id)).order_by(Candidate.number)))


def nearest_to(session: Session, target_id: str, limits: Limits, most: int) -> list[Candidate]:
    """Returns the `most` best measured search candidates by excess over limits, by latency, by memory and by times."""
    limited = bounds(limits)
    times = [column for column, _ in limited if FIGURES[column.key].of_generations]
    by_id: dict[str, Candidate] = {}
    for order in (_excess(limited), Candidate.latency_ms, Candidate.memory_bytes, *times):
        query = select(Candidate).where(_measured(target_id)).order_by(order, Candidate.id).limit(most)
        by_id |= {candidate.id: candidate for candidate in session.scalars(query)}
    return list(by_id.values())


NEAR, NEAR_ONCE = 0.1, 0.5
"""Maximum excess of a model near a limit, as a share of the limit, in general and for the times of a model that was
launched once: a disturbed launch takes as much longer.
"""


def just_beyond(
    session: Session, target_id: str, limits: Limits, most: int, *, score: float | None = None, ties: bool = False
) -> list[Candidate]:
    """Returns up to `most` search candidates beyond a limit, the nearest first. Candidates exceed a limit by at most
    the share `NEAR` or `NEAR_ONCE`, or the interval of their time contains the limit.

    Only candidates with a score above `score` are returned; with `ties` also candidates with an equal score. Without
    `score`, a candidate is skipped if a member of the frontier is at least as good in score and memory.
    """
    limited = bounds(limits)
    if not limited:
        return []
    if score is None:
        member = aliased(Candidate)
        better = ~(
            select(member.id)
            .where(
                member.target_id == target_id,
                member.on_frontier == true(),
                member.proxy >= Candidate.proxy,
                member.memory_bytes <= Candidate.memory_bytes,
            )
            .exists()
        )
    else:
        better = Candidate.proxy >= score if ties else Candidate.proxy > score
    query = select(Candidate).where(
        _measured(target_id),
        or_(*(column > limit for column, limit in limited)),
        better,
        *(_is_near(column, limit) for column, limit in limited),
    )
    return list(session.scalars(query.order_by(_excess(limited), Candidate.id).limit(most)))


def _is_near(column: Figure, limit: float) -> ColumnElement[bool]:
    if column is Candidate.memory_bytes:
        return column <= limit * (1 + NEAR)
    half: Figure = getattr(Candidate, column.key.replace("_ms", "_half_width_ms"))
    share = case((Candidate.launches < DECISIVE, NEAR_ONCE), else_=NEAR)
    # `standing` is not beyond the limit: the lower end, value · exp(-asinh(half / value)), is at most the limit.
    return or_(column <= limit * (1 + share), column * column - 2 * func.coalesce(half, 0.0) * limit <= limit * limit)


def _excess(limited: Sequence[tuple[Figure, float]]) -> ColumnElement[float]:
    """SQL expression for the product of the ratios of value to limit, over the limits that a candidate exceeds."""
    beyond: ColumnElement[float] = literal(1.0)
    for column, limit in limited:
        beyond = beyond * case((column > limit, column / limit), else_=1.0)
    return beyond


def _measured(target_id: str) -> ColumnElement[bool]:
    """Condition that a candidate is a measured search candidate of the target, within the limits or not."""
    return and_(
        Candidate.target_id == target_id,
        Candidate.role == CandidateRole.SEARCH,
        Candidate.state.in_(MEASURED_CANDIDATES),
        Candidate.latency_ms.is_not(None),
        Candidate.memory_bytes.is_not(None),
    )


class SearchCandidate(NamedTuple):
    """Columns of a candidate that a search algorithm reads."""

    id: str
    number: int
    genome: Genome
    digest: str
    state: CandidateState
    proxy: float
    latency_ms: float | None
    memory_bytes: int | None
    generation: int
    parents: list[str]
    operator: str
    launches: int
    predicted: Document | None
    first_token_ms: float | None
    token_ms: float | None
    total_ms: float | None


def search_rows(session: Session, target_id: str) -> list[SearchCandidate]:
    """Returns a target's candidates except the baselines, in order of proposal."""
    own = (Candidate.target_id == target_id, Candidate.role == CandidateRole.SEARCH)
    query = select(*columns(Candidate, SearchCandidate)).where(*own).order_by(Candidate.number)
    return typed(SearchCandidate, session.execute(query))


def best_within_limits(session: Session, target_id: str) -> Candidate | None:
    """Returns the best candidate by proxy among the search candidates measured within the target's limits."""
    return session.scalar(
        select(Candidate)
        .where(
            Candidate.target_id == target_id,
            Candidate.role == CandidateRole.SEARCH,
            Candidate.state == CandidateState.MEASURED,
        )
        .order_by(Candidate.proxy.desc(), Candidate.latency_ms, Candidate.number)
        .limit(1)
    )


def scored(session: Session, target_ids: Collection[str]) -> list[tuple[Genome, Document, float]]:
    """Returns genome, architecture and proxy of these targets' search candidates with a proxy score."""
    query = select(Candidate.genome, Candidate.architecture, Candidate.proxy).where(_scored(target_ids))
    rows = session.execute(query.order_by(Candidate.target_id, Candidate.number))
    return [(genome, architecture, proxy) for genome, architecture, proxy in rows]


def architectures_scored(session: Session, target_ids: Collection[str]) -> int:
    """Returns the number of different architectures among the search candidates with a proxy score."""
    return session.scalar(select(func.count(Candidate.digest.distinct())).where(_scored(target_ids))) or 0


def _scored(target_ids: Collection[str]) -> ColumnElement[bool]:
    return and_(
        any_of(Candidate.target_id, target_ids),
        Candidate.role == CandidateRole.SEARCH,
        or_(Candidate.state != CandidateState.INFEASIBLE, Candidate.proxy != 0.0),
    )


def measured_by_operator(session: Session, target_id: str) -> dict[str, int]:
    """Search operator → number of measured candidates that this operator proposed, within the limits or not."""
    query = select(Candidate.operator, func.count()).where(_measured(target_id)).group_by(Candidate.operator)
    return dict(session.execute(query).all())


def measured_since(session: Session, target_id: str, generation: int) -> bool:
    """Whether a search candidate of generation number `generation` or higher was measured."""
    since = select(Candidate.id).where(
        Candidate.target_id == target_id,
        Candidate.role == CandidateRole.SEARCH,
        Candidate.generation >= generation,
        Candidate.state.in_(MEASURED_CANDIDATES),
    )
    return bool(session.scalar(select(since.exists())))
