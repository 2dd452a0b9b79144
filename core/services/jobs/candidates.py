"""Candidates of a job: filtered, sorted, paged and exported."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement
from sqlalchemy.orm import InstrumentedAttribute, Session

from edgefront.core.services import cursor as cursors
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import candidate_of, job_of, target_of
from edgefront.core.services.jobs.comparison import baseline_of, baselines_of, versus_baseline
from edgefront.core.services.jobs.queries import candidates as rows
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.jobs.queries import jobs as job_rows
from edgefront.core.services.jobs.views import candidate_view
from edgefront.core.states import CandidateState
from edgefront.core.store.tables import Candidate, Job
from edgefront.core.units import MIB
from edgefront.core.validation import one_of
from edgefront.core.wire.jobs import CandidatePage, CandidateView, LaunchView

MAX_PAGE = 1000
_LARGEST = (1 << 63) - 1


@dataclass(frozen=True)
class CandidateFilter:
    """All given conditions must hold. `target` is an id or a name."""

    target: str | None = None
    state: str | None = None
    role: str | None = None
    on_frontier: bool | None = None
    generation: int | None = None
    max_latency_ms: float | None = None
    max_memory_mb: float | None = None
    min_decoder_parameters: int | None = None
    max_decoder_parameters: int | None = None


SORTABLE = (
    "number",
    "generation",
    "decoder_parameters",
    "total_parameters",
    "weight_bytes",
    "flops",
    "proxy",
    "latency_ms",
    "latency_half_width_ms",
    "latency_p90_ms",
    "memory_bytes",
    "build_peak_bytes",
    "launches",
    "created_at",
    "measured_at",
)
"""Columns to sort by; a leading `-` sorts in descending order. Unmeasured candidates always come last."""

EXPORT_COLUMNS: tuple[tuple[str, str], ...] = (
    ("job_id", "id of the job"),
    ("target", "name of the target"),
    ("target_id", "id of the target"),
    ("number", "order of proposal within the target, from 0, baselines first"),
    ("id", "id of the candidate"),
    ("role", "baseline or search"),
    ("generation", "number of its generation, from 0; -1 for baselines"),
    ("operator", "how it was proposed"),
    ("parents", "ids of its parents, separated by spaces"),
    ("state", "waiting, measured, out_of_bounds, infeasible, failed or cancelled"),
    ("reason", "why it is not measured or out of bounds"),
    ("digest", "SHA-256 of the canonical architecture"),
    ("decoder_parameters", "parameters of the blocks and the final norm"),
    ("total_parameters", "all parameters"),
    ("weight_bytes", "bytes of all weights"),
    ("flops", "floating-point operations of one forward pass"),
    ("proxy", "score used in place of quality; higher is better"),
    ("latency_ms", "median latency of a forward pass, ms"),
    ("latency_half_width_ms", "half of its 95 % interval, ms"),
    ("latency_p90_ms", "90th percentile, ms; empty below 20 samples"),
    ("memory_bytes", "peak memory of the forward pass with its weights, bytes"),
    ("build_peak_bytes", "peak memory while the model was built, bytes"),
    ("launches", "launches measured"),
    ("on_frontier", "whether no other candidate of the target dominates it"),
    ("baseline_latency_ms", "the baseline's latency at an equal proxy, ms"),
    ("baseline_memory_bytes", "the baseline's peak memory at an equal proxy, bytes"),
    ("speedup", "baseline latency divided by its own"),
    ("speedup_low", "lower end of its 95 % interval; empty while that is not known"),
    ("speedup_high", "upper end of its 95 % interval"),
    ("memory_ratio", "baseline peak memory divided by its own"),
    ("extrapolated", "whether it lies outside the baseline's range of the proxy"),
    ("seed", "seed of its random weights"),
    ("architecture", "canonical description, JSON"),
    ("created_at", "when it was proposed, UTC"),
    ("measured_at", "when it was last measured, UTC"),
)
"""Name and meaning (with the unit) of each column of the CSV and Parquet export, in order."""


def list_candidates(
    session: Session,
    principal: Principal,
    job_id: str,
    filters: CandidateFilter | None = None,
    sort: str = "number",
    cursor: str | None = None,
    limit: int = 100,
) -> CandidatePage:
    """One page. The cursor is opaque, stays valid while candidates are added, and belongs to one sort order.

    Raises:
        NotFound: no such job or target, or not yours.
        InvalidInput: unknown sort column, or a cursor of another order.
    """
    job = job_of(session, principal, job_id)
    conditions = _conditions(session, job, filters or CandidateFilter())
    column, descending = _order(sort)
    after = None if cursor is None else _place(cursor, sort, column)
    limit = max(1, min(limit, MAX_PAGE))
    found = rows.page(session, conditions, column, descending=descending, after=after, limit=limit + 1)
    shown = found[:limit]
    baselines = baselines_of(session, sorted({candidate.target_id for candidate in shown}))
    following = None
    if len(found) > limit:
        value = getattr(shown[-1], column.key)
        following = cursors.encode([sort, value.isoformat() if isinstance(value, datetime) else value, shown[-1].id])
    items = tuple(candidate_view(candidate, baselines[candidate.target_id]) for candidate in shown)
    return CandidatePage(items=items, next_cursor=following)


def get_candidate(session: Session, principal: Principal, candidate_id: str) -> CandidateView:
    """NotFound if there is none or it is another owner's."""
    candidate, _ = candidate_of(session, principal, candidate_id)
    return candidate_view(candidate, baseline_of(session, candidate.target_id))


def list_launches(session: Session, principal: Principal, candidate_id: str) -> list[LaunchView]:
    """Every launch of a candidate's measurement, oldest first, with its raw result."""
    candidate, _ = candidate_of(session, principal, candidate_id)
    if candidate.measurement_id is None:
        return []
    return [
        LaunchView.model_validate(launch, from_attributes=True)
        for launch in demand.launches_of(session, candidate.measurement_id)
    ]


def export_rows(
    session: Session,
    principal: Principal,
    job_id: str,
    filters: CandidateFilter | None = None,
    sort: str = "number",
) -> Iterator[dict[str, Any]]:
    """Rows of scalars under `EXPORT_COLUMNS`, fetched in batches. Errors as in `list_candidates`, before the first."""
    job = job_of(session, principal, job_id)
    conditions = _conditions(session, job, filters or CandidateFilter())
    column, descending = _order(sort)
    targets = {target.id: target.name for target in job_rows.targets(session, [job.id])}
    baselines = baselines_of(session, list(targets))

    def generate() -> Iterator[dict[str, Any]]:
        for candidate in rows.stream(session, conditions, column, descending=descending):
            versus = versus_baseline(candidate, baselines[candidate.target_id])
            row = {name: getattr(candidate, name, None) for name, _ in EXPORT_COLUMNS}
            row |= {
                "target": targets[candidate.target_id],
                "parents": " ".join(candidate.parents),
                "architecture": json.dumps(candidate.architecture, sort_keys=True, separators=(",", ":")),
                "baseline_latency_ms": versus.latency_ms if versus else None,
                "baseline_memory_bytes": versus.memory_bytes if versus else None,
                "speedup": versus.speedup if versus else None,
                "speedup_low": versus.speedup_low if versus else None,
                "speedup_high": versus.speedup_high if versus else None,
                "memory_ratio": versus.memory_ratio if versus else None,
                "extrapolated": versus.extrapolated if versus else None,
            }
            yield row

    return generate()


def _conditions(session: Session, job: Job, filters: CandidateFilter) -> list[ColumnElement[bool]]:
    conditions = [Candidate.job_id == job.id]
    if filters.target is not None:
        conditions.append(Candidate.target_id == target_of(session, job, filters.target).id)
    if filters.state is not None:
        conditions.append(Candidate.state == one_of("state", filters.state, tuple(CandidateState)))
    if filters.role is not None:
        conditions.append(Candidate.role == one_of("role", filters.role, ("baseline", "search")))
    if filters.on_frontier is not None:
        conditions.append(Candidate.on_frontier == filters.on_frontier)
    if filters.generation is not None:
        # Numbers outside the column's range are replaced by its bound: no row has them.
        conditions.append(Candidate.generation == max(-2, min(filters.generation, (1 << 31) - 1)))
    if filters.max_latency_ms is not None:
        conditions.append(Candidate.latency_ms <= filters.max_latency_ms)
    if filters.max_memory_mb is not None:
        conditions.append(Candidate.memory_bytes <= _bounded(filters.max_memory_mb * MIB))
    if filters.min_decoder_parameters is not None:
        conditions.append(Candidate.decoder_parameters >= _bounded(filters.min_decoder_parameters))
    if filters.max_decoder_parameters is not None:
        conditions.append(Candidate.decoder_parameters <= _bounded(filters.max_decoder_parameters))
    return conditions


def _bounded(value: float) -> int:
    return int(max(-1.0, min(value, _LARGEST - 1024)))


def _order(sort: str) -> tuple[InstrumentedAttribute[Any], bool]:
    name = sort.removeprefix("-")
    one_of("sort", name, SORTABLE)
    return getattr(Candidate, name), sort.startswith("-")


def _place(cursor: str, sort: str, column: InstrumentedAttribute[Any]) -> tuple[Any, str]:
    moment = column.key in ("created_at", "measured_at")
    kinds: tuple[type, ...] = (str, type(None)) if moment else (int, float, type(None))
    made_for, value, id_ = cursors.decode(cursor, (str, kinds, str))
    if made_for != sort:
        raise cursors.wrong(cursor)
    if moment and value is not None:
        value = cursors.moment(value, cursor)
    return value, id_
