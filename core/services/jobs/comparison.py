"""Compares candidates with the layer-scaled baseline of their target."""

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
    """The target's measured baselines; None before the first one."""
    return as_baseline(baseline_points(session, [target_id])[target_id])


def baselines_of(session: Session, target_ids: Sequence[str]) -> dict[str, Baseline | None]:
    """Target id → baseline of several targets, in one query."""
    points_of = baseline_points(session, target_ids)
    return {target_id: as_baseline(points) for target_id, points in points_of.items()}


def summary_of(points: Sequence[Point], baseline: Baseline | None, target: Target, request: JobRequest | None) -> str:
    """One sentence that compares a target's frontier with the baseline; empty without a baseline."""
    if baseline is None:
        return ""
    own = starts_from_model(request)
    if target.state == TargetState.BASELINES and not points:
        return f"No frontier yet: {'my model is' if own else 'the stock models are'} measured before the search begins."
    return summary(rows_of(points), baseline, target.proxy, _half_widths(points), own=own)


def depth_of(baseline: Candidate | CandidateView) -> Depth:
    """The measured figures of one depth of the stock model."""
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
    """The stock model that is predicted to be the deepest within these limits; None if that was measured."""
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
    """Whether a job's baseline is the user's model. `request` is None if it is unreadable."""
    return request is not None and request.space.model is not None


def _half_widths(points: Sequence[Point]) -> list[float]:
    """Half-widths of latencies in ms; NaN where unknown."""
    return [math.nan if point.latency_half_width_ms is None else point.latency_half_width_ms for point in points]


def versus_baseline(candidate: Candidate, baseline: Baseline | None) -> Versus | None:
    """Speed-up and memory ratio at an equal proxy; None for baselines and while either is unmeasured."""
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
