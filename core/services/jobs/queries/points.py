"""The measured candidates of a target as points, thinned by the database to a fixed number."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Integer, Select, and_, cast, func, not_, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from edgefront.core.services.jobs.queries.lists import group_of
from edgefront.core.states import CandidateRole, CandidateState
from edgefront.core.store.sql import Document, any_of, columns, typed
from edgefront.core.store.tables import Candidate
from edgefront.core.wire.candidates import Group

CELLS = (48, 36)
"""Cells of the grid over the window, along latency and along quality."""

Window = tuple[tuple[float, float], tuple[float, float]]
"""Least and most of the latency, and of the quality."""


class MeasuredPoint(NamedTuple):
    """A measured candidate as a chart needs it."""

    id: str
    number: int
    role: CandidateRole
    state: CandidateState
    on_frontier: bool
    latency_ms: float
    latency_half_width_ms: float | None
    memory_bytes: int
    decoder_parameters: int
    proxy: float
    predicted: Document | None
    first_token_ms: float | None
    token_ms: float | None
    marked: bool


Figure = InstrumentedAttribute[float] | InstrumentedAttribute[float | None]
"""A column of the chart's axes."""
Quality = Figure
"""The proxy, or predicted perplexity, which may be absent."""

_COLUMNS = columns(Candidate, MeasuredPoint)


def _measured(target_id: str) -> ColumnElement[bool]:
    return and_(
        Candidate.target_id == target_id, Candidate.latency_ms.is_not(None), Candidate.memory_bytes.is_not(None)
    )


def extent(session: Session, target_id: str) -> tuple[dict[Group, int], list[tuple[float, float] | None]]:
    """Measured candidates by group; least and most of latency, peak memory, proxy and predicted perplexity."""
    figures = (Candidate.latency_ms, Candidate.memory_bytes, Candidate.proxy, Candidate.predicted_perplexity)
    kinds = (Candidate.role, Candidate.state, Candidate.on_frontier)
    ends = [end for figure in figures for end in (func.min(figure), func.max(figure))]
    columns: list[Any] = [*kinds, func.count(), *ends]  # of several types, and as many as there are figures
    rows = session.execute(select(*columns).where(_measured(target_id)).group_by(*kinds)).all()
    counts: dict[Group, int] = {}
    for role, state, on_frontier, number, *_ in rows:
        group = group_of(role, state, on_frontier)
        counts[group] = counts.get(group, 0) + number
    ranges: list[tuple[float, float] | None] = []
    for index in range(len(figures)):
        least = [row[4 + 2 * index] for row in rows if row[4 + 2 * index] is not None]
        most = [row[5 + 2 * index] for row in rows if row[5 + 2 * index] is not None]
        ranges.append((float(min(least)), float(max(most))) if least else None)
    return counts, ranges


def within(target_id: str, quality: Quality, window: Window) -> ColumnElement[bool]:
    """Read from the index that has all of it: that of either figure would lead to the rows, which are wide."""
    (quick, slow), (low, high) = window
    latency = Candidate.latency_ms + 0.0
    return and_(_measured(target_id), latency.between(quick, slow), (quality + 0.0).between(low, high))


def count(session: Session, target_id: str, quality: Quality, window: Window) -> int:
    query = select(func.count()).select_from(Candidate).where(within(target_id, quality, window))
    return session.scalar(query) or 0


def kept(session: Session, target_id: str, ids: Collection[str]) -> list[MeasuredPoint]:
    """The frontier, the baselines and those of `ids`: measured, wherever they lie."""
    important = or_(Candidate.on_frontier, Candidate.role == CandidateRole.BASELINE)
    chosen = select(Candidate.number).where(_measured(target_id), important)
    named = select(*_COLUMNS).where(_measured(target_id), any_of(Candidate.id, ids))
    return [*_rows(session, target_id, chosen), *(typed(MeasuredPoint, session.execute(named)) if ids else ())]


def spread(session: Session, target_id: str, quality: Quality, window: Window, most: int) -> list[MeasuredPoint]:
    """`most` of the other candidates in the window, or all where there are no more.

    They are dealt out over a grid: the first of each cell, then the second of each, and so on, in the order of their
    numbers. So outliers stay, and new candidates seldom move others.
    """
    inside = and_(
        within(target_id, quality, window),
        not_(Candidate.on_frontier),
        Candidate.role != CandidateRole.BASELINE,
    )
    cells = [
        _cell(column, *ends, n) for column, ends, n in zip((Candidate.latency_ms, quality), window, CELLS, strict=True)
    ]
    turn = func.row_number().over(partition_by=cells, order_by=Candidate.number).label("turn")
    dealt = select(Candidate.number, turn).where(inside).subquery()
    chosen = select(dealt.c.number).order_by(dealt.c.turn, dealt.c.number).limit(most)
    return _rows(session, target_id, chosen)


def _rows(session: Session, target_id: str, numbers: Select[int]) -> list[MeasuredPoint]:
    """The candidates of these numbers: which ones is read from an index, and no other row."""
    query = select(*_COLUMNS).where(Candidate.target_id == target_id, Candidate.number.in_(numbers))
    return typed(MeasuredPoint, session.execute(query))


def _cell(column: Figure, low: float, high: float, cells: int) -> ColumnElement[int]:
    width = (high - low) / cells
    return cast((column - low) / width if width > 0 else 0 * column, Integer)
