"""Queries on the frontier of a target: its points, those that compete for it, and the baseline beside it."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, cast

from sqlalchemy import ColumnElement, Executable, Table, and_, bindparam, select, true, update
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import set_committed_value

from edgefront.core.common.states import MEASURED_CANDIDATES, CandidateRole, CandidateState
from edgefront.core.services.jobs.queries.candidates import IS_BASELINE
from edgefront.core.store.sql import any_of, columns, texts
from edgefront.core.store.tables import Candidate


class Point(NamedTuple):
    """A measured candidate's point: its parameters and its three objectives."""

    id: str
    decoder_parameters: int
    proxy: float
    latency_ms: float
    memory_bytes: int
    latency_half_width_ms: float | None
    digest: str


def frontier_points(session: Session, target_ids: Collection[str]) -> dict[str, list[Point]]:
    return _points(session, target_ids, _FRONTIER_POINTS)


def baseline_points(session: Session, target_ids: Collection[str]) -> dict[str, list[Point]]:
    """The measured baselines of each target, in bounds or out."""
    return _points(session, target_ids, _BASELINE_POINTS)


def competing_points(session: Session, target_id: str) -> list[Point]:
    """The measured search candidates within the limits, on the frontier or not."""
    condition = and_(Candidate.state == CandidateState.MEASURED, Candidate.role == CandidateRole.SEARCH)
    return _points(session, [target_id], _points_where(condition))[target_id]


def _points_where(condition: ColumnElement[bool]) -> Executable:
    return select(Candidate.target_id, Candidate.number, *columns(Candidate, Point)).where(
        any_of(Candidate.target_id, texts("targets")), condition
    )


# Used with every report, so the statement is built once.
_FRONTIER_POINTS = _points_where(Candidate.on_frontier == true())
_BASELINE_POINTS = _points_where(and_(IS_BASELINE, Candidate.state.in_(MEASURED_CANDIDATES)))


def _points(session: Session, target_ids: Collection[str], query: Executable) -> dict[str, list[Point]]:
    """Target id → points by rising decoder parameters, sorted here as in `frontier`."""
    rows = session.execute(query, {"targets": list(target_ids)}).all()
    points: dict[str, list[Point]] = {target_id: [] for target_id in target_ids}
    for target_id, _, *figures in sorted(rows, key=lambda row: (row.decoder_parameters, row.number)):
        point = Point(*figures)
        if point.latency_ms is not None and point.memory_bytes is not None:
            points[target_id].append(point)
    return points


_TABLE = cast(Table, Candidate.__table__)
_MOVE = update(_TABLE).where(any_of(_TABLE.c.id, texts("ids"))).values(on_frontier=bindparam("value"))


def move_frontier(session: Session, joined: Collection[str], left: Collection[str]) -> None:
    """Sets `on_frontier` in the rows, and in candidates that the session has loaded."""
    for ids, value in ((joined, True), (left, False)):
        if ids:
            session.execute(_MOVE, {"ids": list(ids), "value": value})
            for id_ in ids:
                loaded = session.identity_map.get(session.identity_key(Candidate, id_))
                if loaded is not None:
                    set_committed_value(loaded, "on_frontier", value)
