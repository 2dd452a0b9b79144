"""The points of a target's chart: so many that a page can draw them, the important ones always among them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import job_of, target_of
from edgefront.core.services.jobs.queries import points as rows
from edgefront.core.services.jobs.queries.lists import group_of
from edgefront.core.services.jobs.queries.points import Window
from edgefront.core.services.jobs.views import predicted_of
from edgefront.core.services.quality.expected import label_of
from edgefront.core.services.quality.trust import trained_of
from edgefront.core.store.tables import Candidate
from edgefront.core.wire.candidates import GROUPS
from edgefront.core.wire.points import Axis, encode

MAX_POINTS = 20_000
"""Points of one answer."""


@dataclass(frozen=True)
class Zoom:
    """What the chart shows of each axis; None: all of it."""

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
    """Points in the window of `zoom`, as `core.wire.points` lays them out.

    The frontier, the baselines, the trained candidates and those of `keep` are always there, also outside the window;
    the others are `most` at most. With the axis `predicted`, candidates without a prediction are left out of these,
    unless all are.
    NotFound if there is no such job or target.
    """
    job = job_of(session, principal, job_id)
    row = target_of(session, job, target)
    measured, (latency, memory, proxy, perplexity) = rows.extent(session, row.id)
    predicted = axis == "predicted" and perplexity is not None
    ends = perplexity if predicted else proxy
    quality: rows.Quality = Candidate.predicted_perplexity if predicted else Candidate.proxy
    by_id: dict[str, rows.MeasuredPoint] = {}
    total = 0
    if latency is not None and ends is not None:
        window = _window(zoom or Zoom(), latency, ends)
        total = rows.count(session, row.id, quality, window) if zoom else sum(measured.values())
        by_id = {point.id: point for point in rows.spread(session, row.id, quality, window, min(most, MAX_POINTS))}
    trained = {score.candidate_id for score in trained_of(session, row.id)}
    kept = rows.kept(session, row.id, trained | set(keep))
    by_id |= {point.id: point for point in kept}
    points = sorted(by_id.values(), key=lambda point: point.number)
    documents = [predicted_of(point.predicted) for point in points]
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


def _window(zoom: Zoom, latency: tuple[float, float], quality: tuple[float, float]) -> Window:
    def cut(ends: tuple[float, float], least: float | None, most: float | None) -> tuple[float, float]:
        return ends[0] if least is None else least, ends[1] if most is None else most

    return (
        cut(latency, zoom.min_latency_ms, zoom.max_latency_ms),
        cut(quality, zoom.min_quality, zoom.max_quality),
    )


def _columns(points: Sequence[rows.MeasuredPoint]) -> dict[str, NDArray[np.generic]]:
    predicted = [predicted_of(point.predicted) for point in points]
    columns = {
        name: _floats([getattr(point, name) for point in points])
        for name in (
            "latency_ms",
            "latency_half_width_ms",
            "memory_bytes",
            "decoder_parameters",
            "proxy",
            "first_token_ms",
            "token_ms",
        )
    }
    columns |= {
        name: _floats([expected.get(name) for expected in predicted])
        for name in ("perplexity", "perplexity_low", "perplexity_high")
    }
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
