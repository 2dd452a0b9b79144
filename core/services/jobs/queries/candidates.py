"""Queries on candidates."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from sqlalchemy import (
    ColumnElement,
    Select,
    and_,
    case,
    false,
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
from edgefront.core.schemas.jobs import Limits
from edgefront.core.store.sql import Document, any_of, columns, typed, write_back
from edgefront.core.store.tables import Candidate, Launch, Measurement

MAX_BASELINES = 256
"""Maximum number of baselines. They have the first numbers of a target, so they are found without reading others."""

COPIED = (*MEASURED, "launches", "measured_at")
"""Columns that a candidate copies from its measurement."""
_NEWS = ("state", "reason", "latency_half_width_ms", "marked", "on_frontier", *COPIED)

_LARGEST = 1e18
"""Bytes: what a column holds, with room."""


Figure = InstrumentedAttribute[float | None] | InstrumentedAttribute[int | None]
"""A column of what was measured."""


IS_BASELINE = and_(Candidate.number < MAX_BASELINES, Candidate.role == CandidateRole.BASELINE)


def add(session: Session, rows: Sequence[Document]) -> None:
    if rows:
        session.execute(insert(Candidate), list(rows))


def by_ids(session: Session, ids: Collection[str]) -> list[Candidate]:
    return list(session.scalars(select(Candidate).where(any_of(Candidate.id, ids)).order_by(Candidate.number)))


def architectures(session: Session, ids: Collection[str]) -> dict[str, Document]:
    """Id → architecture."""
    query = select(Candidate.id, Candidate.architecture).where(any_of(Candidate.id, ids))
    return dict(session.execute(query).all())


def numbers(session: Session, ids: Collection[str]) -> dict[str, int]:
    """Id → number."""
    query = select(Candidate.id, Candidate.number).where(any_of(Candidate.id, ids))
    return dict(session.execute(query).all())


def without_launches(session: Session, target_id: str, most: int) -> list[Candidate]:
    """The first that wait for a result, and of whose measurement no launch is live."""
    live = select(Launch.id).where(Launch.measurement_id == Candidate.measurement_id, Launch.state.in_(LIVE_LAUNCHES))
    query = _of_measurements(target_id).where(
        Candidate.state == CandidateState.WAITING, Measurement.state == MeasurementState.WANTED, ~live.exists()
    )
    return list(session.scalars(query.limit(most)))


def with_results(session: Session, target_id: str, most: int) -> list[Candidate]:
    """The first that wait though their measurement has ended."""
    query = _of_measurements(target_id).where(
        Candidate.state == CandidateState.WAITING, Measurement.state != MeasurementState.WANTED
    )
    return list(session.scalars(query.limit(most)))


def _of_measurements(target_id: str) -> Select[Candidate]:
    joined = select(Candidate).join(Measurement, Measurement.id == Candidate.measurement_id)
    return joined.where(Candidate.target_id == target_id).order_by(Candidate.number)


def waiting(session: Session, target_id: str) -> list[Candidate]:
    """The waiting candidates, without genome and architecture."""
    query = select(Candidate).where(Candidate.target_id == target_id, Candidate.state == CandidateState.WAITING)
    light = query.options(defer(Candidate.genome), defer(Candidate.architecture))
    return list(session.scalars(light.order_by(Candidate.number)))


def marked_counts(session: Session, target_ids: Collection[str]) -> dict[str, int]:
    """Target id → number of marked candidates on the frontier, where there are any."""
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
    """The candidates on the frontiers of these targets, and their baselines, in the order of their numbers."""
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
    """The measured baselines within the limits by rising decoder parameters."""
    measured = (row for row in baselines(session, target_id) if row.state == CandidateState.MEASURED)
    return sorted(measured, key=lambda row: row.decoder_parameters)


def write(session: Session, changed: Sequence[Candidate]) -> None:
    """Writes the changed columns of these candidates."""
    write_back(session, changed, _NEWS)


def bounds(limits: Limits) -> list[tuple[Figure, float]]:
    """Columns, and what each is at most."""
    limited = (
        (Candidate.latency_ms, limits.latency_ms),
        (Candidate.memory_bytes, None if limits.memory_mb is None else min(limits.memory_mb * MB, _LARGEST)),
        (Candidate.first_token_ms, limits.first_token_ms),
        (Candidate.token_ms, limits.token_ms),
    )
    return [(column, limit) for column, limit in limited if limit is not None]


def best_within(session: Session, target_id: str, limits: Limits, most: int) -> list[Candidate]:
    """Measured search candidates within these limits, whatever the job's are: the `most` best by the proxy."""
    order = (Candidate.proxy.desc(), Candidate.latency_ms, Candidate.id)
    return list(session.scalars(select(Candidate).where(_within(target_id, limits)).order_by(*order).limit(most)))


def some_within(session: Session, target_id: str, limits: Limits, ids: Collection[str]) -> list[Candidate]:
    """Those of these candidates that are measured search candidates within the limits."""
    query = select(Candidate).where(any_of(Candidate.id, ids), _within(target_id, limits))
    return list(session.scalars(query.order_by(Candidate.number)))


def genomes_within(session: Session, target_id: str, limits: Limits) -> dict[str, Genome]:
    """Id → genome (empty where its search has none) of every measured search candidate within these limits."""
    query = select(Candidate.id, Candidate.genome).where(_within(target_id, limits)).order_by(Candidate.number)
    return dict(session.execute(query).all())


def _within(target_id: str, limits: Limits) -> ColumnElement[bool]:
    """Measured search candidates within these limits, whatever the job's are."""
    within = [column <= limit for column, limit in bounds(limits)]
    return and_(_measured(target_id), *within)


def measured(session: Session, target_id: str) -> list[Candidate]:
    """The measured search candidates of a target, within its limits or not."""
    return list(session.scalars(select(Candidate).where(_measured(target_id)).order_by(Candidate.number)))


def nearest_to(session: Session, target_id: str, limits: Limits, most: int) -> list[Candidate]:
    """The `most` measured search candidates that exceed the limits least, the `most` quickest, and the smallest."""
    limited = bounds(limits)
    times = [column for column, _ in limited if FIGURES[column.key].of_generations]
    by_id: dict[str, Candidate] = {}
    for order in (_excess(limited), Candidate.latency_ms, Candidate.memory_bytes, *times):
        query = select(Candidate).where(_measured(target_id)).order_by(order, Candidate.id).limit(most)
        by_id |= {candidate.id: candidate for candidate in session.scalars(query)}
    return list(by_id.values())


NEAR = 0.1
"""Beyond a limit by at most this share of it is near: a launch in disturbed conditions takes longer by as much."""


def just_beyond(
    session: Session, target_id: str, limits: Limits, most: int, *, score: float | None = None, ties: bool = False
) -> list[Candidate]:
    """The `most` search candidates nearest to these limits, of those beyond them by `NEAR` or less, or by less than
    half the interval of their latency.

    Of a higher score than `score`, or with `ties` as high a one; if absent, those that no member of the frontier is as
    good as in score and memory.
    """
    limited = bounds(limits)
    if not limited:
        return []
    half = func.coalesce(Candidate.latency_half_width_ms / Candidate.latency_ms, 0.0)
    near = [
        or_(
            column <= limit * (1 + NEAR),
            false() if column is Candidate.memory_bytes else column * (1 - half) <= limit,
        )
        for column, limit in limited
    ]
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
        *near,
    )
    return list(session.scalars(query.order_by(_excess(limited), Candidate.id).limit(most)))


def _excess(limited: Sequence[tuple[Figure, float]]) -> ColumnElement[float]:
    """The product of a candidate's shares of the limits that it exceeds."""
    beyond: ColumnElement[float] = literal(1.0)
    for column, limit in limited:
        beyond = beyond * case((column > limit, column / limit), else_=1.0)
    return beyond


def _measured(target_id: str) -> ColumnElement[bool]:
    """Measured search candidates, within the target's limits or not."""
    return and_(
        Candidate.target_id == target_id,
        Candidate.role == CandidateRole.SEARCH,
        Candidate.state.in_(MEASURED_CANDIDATES),
        Candidate.latency_ms.is_not(None),
        Candidate.memory_bytes.is_not(None),
    )


class SearchCandidate(NamedTuple):
    """What a search needs of a candidate."""

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
    """A target's candidates without baselines, in order of proposal."""
    own = (Candidate.target_id == target_id, Candidate.role == CandidateRole.SEARCH)
    query = select(*columns(Candidate, SearchCandidate)).where(*own).order_by(Candidate.number)
    return typed(SearchCandidate, session.execute(query))


def best_within_limits(session: Session, target_id: str) -> Candidate | None:
    """The search candidate with the best quality of those measured within the target's limits."""
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
    """Genome, architecture and proxy of the search candidates of these targets, but for those that have no score."""
    query = select(Candidate.genome, Candidate.architecture, Candidate.proxy).where(_scored(target_ids))
    rows = session.execute(query.order_by(Candidate.target_id, Candidate.number))
    return [(genome, architecture, proxy) for genome, architecture, proxy in rows]


def architectures_scored(session: Session, target_ids: Collection[str]) -> int:
    """Number of different architectures among those."""
    return session.scalar(select(func.count(Candidate.digest.distinct())).where(_scored(target_ids))) or 0


def _scored(target_ids: Collection[str]) -> ColumnElement[bool]:
    return and_(
        any_of(Candidate.target_id, target_ids),
        Candidate.role == CandidateRole.SEARCH,
        or_(Candidate.state != CandidateState.INFEASIBLE, Candidate.proxy != 0.0),
    )


def measured_by_operator(session: Session, target_id: str) -> dict[str, int]:
    """Operator → number of measured search candidates, in bounds or out."""
    query = select(Candidate.operator, func.count()).where(_measured(target_id)).group_by(Candidate.operator)
    return dict(session.execute(query).all())


def measured_since(session: Session, target_id: str, generation: int) -> bool:
    """Whether any search candidate from this generation on was measured."""
    since = select(Candidate.id).where(
        Candidate.target_id == target_id,
        Candidate.role == CandidateRole.SEARCH,
        Candidate.generation >= generation,
        Candidate.state.in_(MEASURED_CANDIDATES),
    )
    return bool(session.scalar(select(since.exists())))
