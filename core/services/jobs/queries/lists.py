"""Pages of candidates sorted by a figure, and the sizes of groups of candidates.

Candidates without the figure come last. They are read in a second query, because each of the two queries can then
follow an index by (figure, id), forwards or backwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, Double, and_, case, cast, func, literal, null, or_, select, tuple_
from sqlalchemy.orm import InstrumentedAttribute, Session

from edgefront.core.common.states import CandidateRole, CandidateState
from edgefront.core.schemas.candidates import GROUPS, Group
from edgefront.core.search.pareto.baseline import Baseline
from edgefront.core.store.tables import Candidate

Conditions = Sequence[ColumnElement[bool]]
Figure = ColumnElement[Any]  # of type number, text or time
"""SQL expression by which candidates are sorted."""
Value = int | float | str | datetime | None
"""Value of a candidate's figure; None if the candidate lacks the figure."""
After = tuple[Value, str]
"""Position in a list: figure (None: the candidate has no figure) and id of the final candidate of a page."""

NOTHING: ColumnElement[float] = cast(null(), Double)
"""SQL expression that is NULL for all candidates. Postgres does not sort by a NULL without a type."""

_SEARCHED: Mapping[Group, tuple[tuple[CandidateState, ...], bool | None]] = {
    "waiting": ((CandidateState.WAITING,), None),
    "outside": ((CandidateState.OUT_OF_BOUNDS,), None),
    "unusable": ((CandidateState.INFEASIBLE, CandidateState.FAILED, CandidateState.CANCELLED), None),
    "frontier": ((CandidateState.MEASURED,), True),
    "dominated": ((CandidateState.MEASURED,), False),
}
"""Group of proposed candidates → states of the group's members, and whether they are on the frontier (None: either)."""


def in_group(name: Group) -> ColumnElement[bool]:
    """Condition that a candidate belongs to this group, written such that databases can use an index of states."""
    if name == "baseline":
        return Candidate.role == CandidateRole.BASELINE
    states, on_frontier = _SEARCHED[name]
    condition = and_(Candidate.role == CandidateRole.SEARCH, Candidate.state.in_(states))
    return condition if on_frontier is None else and_(condition, Candidate.on_frontier == literal(on_frontier))


def group_rank() -> ColumnElement[int]:
    """SQL expression for the index of a candidate's group in `GROUPS`."""
    return case(*((in_group(name), rank) for rank, name in enumerate(GROUPS)))


def against(baseline: Baseline | None, values: Literal["latency", "memory"]) -> ColumnElement[float]:
    """SQL expression for the baseline's latency or peak memory at a candidate's proxy, divided by the candidate's
    measured latency or peak memory. NULL for baselines, and for candidates without measured latency and peak memory.
    """
    if baseline is None:
        return NOTHING
    curve = baseline.latency_curve if values == "latency" else baseline.memory_curve
    pieces = [(Candidate.proxy <= piece.last, _maximum(piece.lines)) for piece in curve]
    same = case(*pieces[:-1], else_=pieces[-1][1])
    own = Candidate.latency_ms if values == "latency" else Candidate.memory_bytes
    is_measured = and_(Candidate.latency_ms.is_not(None), Candidate.memory_bytes.is_not(None))
    return case((and_(Candidate.role != CandidateRole.BASELINE, is_measured), same / cast(own, Double)))


def _maximum(lines: Sequence[tuple[float, float, float]]) -> ColumnElement[float]:
    """SQL expression for the maximum of several lines at a candidate's proxy. A line is (proxy, value there, slope)."""
    first, *others = (literal(value) + slope * (Candidate.proxy - at) for at, value, slope in lines)
    for other in others:
        first = case((first > other, first), else_=other)
    return first


@dataclass(frozen=True)
class Order:
    """Sort order of candidates by a figure: a column, or an SQL expression for which there is no index."""

    figure: Figure
    descending: bool = False

    @property
    def _by(self) -> tuple[Figure | InstrumentedAttribute[str], Figure | InstrumentedAttribute[str]]:
        return (self.figure.desc(), Candidate.id.desc()) if self.descending else (self.figure, Candidate.id)

    def beyond(self, value: Value, id_: str) -> ColumnElement[bool]:
        """Condition that a candidate that has the figure comes after the position (`value`, `id_`)."""
        mine, last = tuple_(self.figure, Candidate.id), tuple_(literal(value), literal(id_))
        return mine < last if self.descending else mine > last

    def before(self, value: Value, id_: str) -> ColumnElement[bool]:
        """Condition that a candidate comes before the position (`value`, `id_`)."""
        if value is None:
            return or_(self.figure.is_not(None), Candidate.id < id_)
        mine, own = tuple_(self.figure, Candidate.id), tuple_(literal(value), literal(id_))
        return mine > own if self.descending else mine < own


def page(
    session: Session, conditions: Conditions, order: Order, *, limit: int, after: After | None = None, offset: int = 0
) -> list[tuple[Candidate, Value]]:
    """Returns pairs of candidate and figure, beginning after the position `after` or after `offset` candidates."""
    rows: list[tuple[Candidate, Value]] = []
    if after is None or after[0] is not None:
        query = select(Candidate, order.figure).where(*conditions, order.figure.is_not(None))
        query = query if after is None else query.where(order.beyond(*after))
        rows = [(row[0], row[1]) for row in session.execute(query.order_by(*order._by).offset(offset).limit(limit))]
    if len(rows) == limit:
        return rows
    rest = select(Candidate).where(*conditions, order.figure.is_(None))
    if after is not None and after[0] is None:
        rest = rest.where(Candidate.id > after[1])
    if offset and not rows:
        offset -= count(session, [*conditions, order.figure.is_not(None)])
    else:
        offset = 0
    rest = rest.order_by(Candidate.id).offset(offset).limit(limit - len(rows))
    return rows + [(candidate, None) for candidate in session.scalars(rest)]


def stream(session: Session, conditions: Conditions, order: Order, *, batch: int = 2000) -> Iterator[Candidate]:
    """Yields all candidates in order, with one batch in memory at a time."""
    after: After | None = None
    while True:
        rows = page(session, conditions, order, after=after, limit=batch)
        yield from (candidate for candidate, _ in rows)
        if len(rows) < batch:
            return
        after = (rows[-1][1], rows[-1][0].id)
        session.expunge_all()


def count(session: Session, conditions: Conditions) -> int:
    return session.scalar(select(func.count()).select_from(Candidate).where(*conditions)) or 0


def position_of(session: Session, conditions: Conditions, order: Order, candidate_id: str) -> int | None:
    """Returns the number of candidates before this candidate; None if this candidate does not meet the conditions."""
    own = session.execute(select(order.figure).where(*conditions, Candidate.id == candidate_id)).first()
    return None if own is None else count(session, [*conditions, order.before(own[0], candidate_id)])


def groups(session: Session, conditions: Conditions) -> dict[Group, int]:
    """Group → number of candidates, in the order of `GROUPS`."""
    rows = session.execute(
        select(Candidate.role, Candidate.state, Candidate.on_frontier, func.count())
        .where(*conditions)
        .group_by(Candidate.role, Candidate.state, Candidate.on_frontier)
    )
    counts = dict.fromkeys(GROUPS, 0)
    for role, state, on_frontier, number in rows:
        counts[group_of(role, state, on_frontier)] += number
    return counts


def group_of(role: CandidateRole, state: CandidateState, on_frontier: bool) -> Group:
    """Returns the group of a candidate with this role and state that is or is not on the frontier."""
    if role == CandidateRole.BASELINE:
        return "baseline"
    return next(name for name, (states, on) in _SEARCHED.items() if state in states and on in (None, on_frontier))
