"""Points of a target's chart: all important points, and an even selection of the others that a web page can draw."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Integer, Row, Select, and_, cast, func, not_, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from edgefront.core.common.states import CandidateRole
from edgefront.core.measurement.figures import CHARTED
from edgefront.core.measurement.statistics import ends_ms
from edgefront.core.schemas.candidates import GROUPS, Group
from edgefront.core.schemas.points import Axis, encode
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import job_of, target_of
from edgefront.core.services.jobs.answers.candidates import document_of
from edgefront.core.services.jobs.queries.lists import group_of
from edgefront.core.services.quality.expected import label_of
from edgefront.core.services.quality.trust import trained_of
from edgefront.core.store.sql import any_of
from edgefront.core.store.tables import Candidate

CELLS = (48, 36)
"""Number of cells of the grid over the chart's window, along latency and along quality."""

Window = tuple[tuple[float, float], tuple[float, float]]
"""Range (minimum, maximum) of latency in ms, and range of quality."""


MeasuredPoint = Row[Any]
"""Row of a measured candidate with the columns `_COLUMNS`."""

Figure = InstrumentedAttribute[float] | InstrumentedAttribute[float | None]
"""Column on an axis of the chart: latency, proxy, or predicted perplexity, which may be NULL."""

_PLOTTED = (*CHARTED, "decoder_parameters", "proxy")
_COLUMNS: list[Any] = [
    *(Candidate.id, Candidate.number, Candidate.role, Candidate.state, Candidate.on_frontier, Candidate.marked),
    *(getattr(Candidate, name) for name in ("predicted", *_PLOTTED)),
]


def _measured(target_id: str) -> ColumnElement[bool]:
    return and_(
        Candidate.target_id == target_id, Candidate.latency_ms.is_not(None), Candidate.memory_bytes.is_not(None)
    )


def _extent(session: Session, target_id: str) -> tuple[dict[Group, int], list[tuple[float, float] | None]]:
    """Returns the number of measured candidates by group, and the minimum and maximum of each figure."""
    figures = (Candidate.latency_ms, Candidate.memory_bytes, Candidate.proxy, Candidate.predicted_perplexity)
    kinds = (Candidate.role, Candidate.state, Candidate.on_frontier)
    ends = [end for figure in figures for end in (func.min(figure), func.max(figure))]
    columns: list[Any] = [*kinds, func.count(), *ends]  # Any: the columns have several types
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


def within(target_id: str, quality: Figure, window: Window) -> ColumnElement[bool]:
    """Condition that a candidate lies in the window. `+ 0.0` keeps databases from using the index of a single figure,
    because that index requires reading the wide rows; the index with all columns does not.
    """
    (quick, slow), (low, high) = window
    latency = Candidate.latency_ms + 0.0
    return and_(_measured(target_id), latency.between(quick, slow), (quality + 0.0).between(low, high))


def _spread(session: Session, target_id: str, quality: Figure, window: Window, most: int) -> list[MeasuredPoint]:
    """Returns `most` of the candidates in the window that are neither on the frontier nor baselines, or all if there
    are fewer.

    The candidates are selected in turns over the cells of a grid: first the earliest candidate of each cell, then the
    second of each cell, and so on. So outliers stay visible, and a new candidate seldom displaces another candidate.
    """
    inside = and_(
        within(target_id, quality, window),
        not_(Candidate.on_frontier),
        Candidate.role != CandidateRole.BASELINE,
    )
    cells = []
    for column, (low, high), number in zip((Candidate.latency_ms, quality), window, CELLS, strict=True):
        width = (high - low) / number
        cells.append(cast((column - low) / width if width > 0 else 0 * column, Integer))
    turn = func.row_number().over(partition_by=cells, order_by=Candidate.number).label("turn")
    dealt = select(Candidate.number, turn).where(inside).subquery()
    chosen = select(dealt.c.number).order_by(dealt.c.turn, dealt.c.number).limit(most)
    return _rows(session, target_id, chosen)


def _rows(session: Session, target_id: str, numbers: Select[int]) -> list[MeasuredPoint]:
    """Returns the candidates with these numbers. `numbers` is a query on an index, so no other row is read."""
    query = select(*_COLUMNS).where(Candidate.target_id == target_id, Candidate.number.in_(numbers))
    return list(session.execute(query))


MAX_POINTS = 20_000
"""Maximum number of spread-out points in one answer."""


@dataclass(frozen=True)
class Zoom:
    """Visible range of each axis of the chart. A bound of None extends to the end of the axis."""

    min_latency_ms: float | None = None
    max_latency_ms: float | None = None
    min_quality: float | None = None
    max_quality: float | None = None


def read(
    session: Session,
    principal: Principal,
    job_id: str,
    target: str | None = None,
    *,
    axis: Axis = "proxy",
    zoom: Zoom | None = None,
    most: int = 1000,
    keep: Collection[str] = (),
) -> bytes:
    """Returns the candidates in the window of `zoom` as points, in the binary form of `core.schemas.points`.

    The frontier, the baselines, trained candidates and the candidates in `keep` are always included, even outside the
    window; at most `most` other candidates are added. With the axis `predicted`, only other candidates with a
    prediction are added, unless no candidate of the target has a prediction. Raises `NotFound` if there is no such job
    or target.
    """
    job = job_of(session, principal, job_id)
    row = target_of(session, job, target)
    measured, (latency, memory, proxy, perplexity) = _extent(session, row.id)
    predicted = axis == "predicted" and perplexity is not None
    ends = perplexity if predicted else proxy
    quality: Figure = Candidate.predicted_perplexity if predicted else Candidate.proxy
    by_id: dict[str, MeasuredPoint] = {}
    total = 0
    if latency is not None and ends is not None:
        shown = zoom or Zoom()
        window = (
            _cut(latency, shown.min_latency_ms, shown.max_latency_ms),
            _cut(ends, shown.min_quality, shown.max_quality),
        )
        inside = select(func.count()).select_from(Candidate).where(within(row.id, quality, window))
        total = session.scalar(inside) or 0 if zoom else sum(measured.values())
        by_id = {point.id: point for point in _spread(session, row.id, quality, window, min(most, MAX_POINTS))}
    trained = {score.candidate_id for score in trained_of(session, row.id)}
    # The frontier, the baselines, trained candidates and those in `keep` are added, inside the window or not.
    important = or_(Candidate.on_frontier, Candidate.role == CandidateRole.BASELINE)
    kept = _rows(session, row.id, select(Candidate.number).where(_measured(row.id), important))
    if ids := trained | set(keep):
        named = select(*_COLUMNS).where(_measured(row.id), any_of(Candidate.id, ids))
        kept += session.execute(named)
    by_id |= {point.id: point for point in kept}
    points = sorted(by_id.values(), key=lambda point: point.number)
    documents = [document_of(point.predicted) for point in points]
    header = {
        "job_id": job.id,
        "target_id": row.id,
        "rows": len(points),
        "total": total,
        "measured": measured,
        "latency_ms": latency,
        "memory_bytes": memory,
        "relative_to": next((name for each in documents if (name := each.get("relative_to"))), None),
        "label": " or ".join(dict.fromkeys(text for each in documents if (text := label_of(each)))),
        "ids": [point.id for point in points],
    }
    return encode(header, _columns(points))


def _cut(ends: tuple[float, float], least: float | None, most: float | None) -> tuple[float, float]:
    return ends[0] if least is None else least, ends[1] if most is None else most


_OF_PREDICTION = ("perplexity", "perplexity_low", "perplexity_high")


def _columns(points: Sequence[MeasuredPoint]) -> dict[str, NDArray[np.generic]]:
    predicted = [document_of(point.predicted) for point in points]
    columns = {name: _floats([getattr(point, name) for point in points]) for name in _PLOTTED}
    ends = [ends_ms(point.latency_ms, point.latency_half_width_ms) for point in points]
    columns |= {f"latency_{name}_ms": _floats([pair[at] for pair in ends]) for at, name in enumerate(("low", "high"))}
    columns |= {name: _floats([expected.get(name) for expected in predicted]) for name in _OF_PREDICTION}
    places = {name: place for place, name in enumerate(GROUPS)}
    groups = [places[group_of(point.role, point.state, point.on_frontier)] for point in points]
    return {
        **columns,
        "number": np.array([point.number for point in points], dtype="<i4"),
        "group": np.array(groups, "u1"),
        "marked": np.array([point.marked for point in points], "u1"),
    }


def _floats(values: Sequence[float | None]) -> NDArray[np.float64]:
    return np.array([math.nan if value is None else value for value in values], dtype="<f8")
