"""Compares candidates with their target's baseline: the stock model at several depths, or the user's model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from sqlalchemy.orm import Session

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.states import CandidateRole, CandidateState, TargetState
from edgefront.core.common.units import MB
from edgefront.core.schemas.candidates import CandidateView, Versus
from edgefront.core.schemas.jobs import JobRequest, Limits
from edgefront.core.search.depths import Depth, predicted_within
from edgefront.core.search.interface import times_of
from edgefront.core.search.pareto.baseline import Baseline, summary, versus
from edgefront.core.search.problem import Problem
from edgefront.core.services.jobs.frontier import Point, baseline_points, rows_of
from edgefront.core.services.spaces import space_of
from edgefront.core.store.tables import Candidate, Target


def as_baseline(points: Sequence[Point]) -> Baseline | None:
    return Baseline(rows_of(points), _half_widths(points)) if points else None


def baseline_of(session: Session, target_id: str) -> Baseline | None:
    """Returns the target's measured baselines as a curve; None before the first baseline is measured."""
    return as_baseline(baseline_points(session, [target_id])[target_id])


def baselines_of(session: Session, target_ids: Sequence[str]) -> dict[str, Baseline | None]:
    """Target id → baseline of the target, for several targets in one query."""
    points_of = baseline_points(session, target_ids)
    return {target_id: as_baseline(points) for target_id, points in points_of.items()}


def summary_of(points: Sequence[Point], baseline: Baseline | None, target: Target, request: JobRequest | None) -> str:
    """Returns a sentence that compares a target's frontier with the baseline; empty without a baseline."""
    if baseline is None:
        return ""
    own = starts_from_model(request)
    if target.state == TargetState.BASELINES and not points:
        return f"No frontier yet: {'my model is' if own else 'the baseline is'} measured before the search begins."
    return summary(rows_of(points), baseline, target.proxy, _half_widths(points), own=own)


def depth_of(baseline: Candidate | CandidateView) -> Depth:
    """Returns the measured figures of a baseline (the stock model at one depth)."""
    return Depth(
        len(baseline.architecture["blocks"]),
        baseline.latency_ms,
        baseline.memory_bytes,
        times_of(baseline),
        baseline.state == CandidateState.INFEASIBLE,
    )


def unmeasured_depth(
    request: JobRequest | None, baselines: Iterable[Candidate | CandidateView], limits: Limits
) -> Architecture | None:
    """Returns the deepest stock model that is predicted to meet the limits; None if this depth was measured."""
    if request is None or not limits.any:
        return None
    problem = Problem(
        latency_ms=limits.latency_ms,
        memory_bytes=None if limits.memory_mb is None else limits.memory_mb * MB,
        times_ms=limits.times,
    )
    try:
        depths = space_of(request.space).baselines(request.baseline_layers)
    except InvalidInput:  # an unknown space
        return None
    return predicted_within([depth_of(baseline) for baseline in baselines], depths, problem)


def starts_from_model(request: JobRequest | None) -> bool:
    """Whether a job's baseline is the user's model. `request` is None if the stored request is unreadable."""
    return request is not None and request.space.model is not None


def _half_widths(points: Sequence[Point]) -> list[float]:
    """Returns the half-width of each point's latency interval in ms; NaN if unknown."""
    return [math.nan if point.latency_half_width_ms is None else point.latency_half_width_ms for point in points]


def versus_baseline(candidate: Candidate, baseline: Baseline | None) -> Versus | None:
    """Returns speed-up and memory ratio over a baseline of equal proxy; None for baselines and unmeasured models."""
    if baseline is None or candidate.role == CandidateRole.BASELINE:
        return None
    if candidate.latency_ms is None or candidate.memory_bytes is None:
        return None
    return Versus(
        **versus(
            baseline,
            candidate.proxy,
            candidate.latency_ms,
            candidate.memory_bytes,
            candidate.latency_half_width_ms,
        )
    )
