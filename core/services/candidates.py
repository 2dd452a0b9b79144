"""Candidates of a job: filtered, sorted, paged and exported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from core.services.keys import Principal
from core.wire.jobs import CandidatePage, CandidateView


@dataclass(frozen=True)
class CandidateFilter:
    """All that is given must hold. `target` is an id or a name."""

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
"""Columns to sort by; a leading `-` sorts downwards. Unmeasured candidates come last either way."""

EXPORT_COLUMNS: tuple[tuple[str, str], ...] = ()
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
    """One page. The cursor is opaque and holds its place while candidates are added; it belongs to its sort order.

    Raises:
        NotFound: no such job or target, or not yours.
        InvalidInput: unknown sort column, or a cursor that was not made for this order.
    """
    raise NotImplementedError


def get_candidate(session: Session, principal: Principal, candidate_id: str) -> CandidateView:
    """NotFound if there is none or it is another owner's."""
    raise NotImplementedError


def list_launches(session: Session, principal: Principal, candidate_id: str) -> list[dict[str, Any]]:
    """The raw launches of a candidate's measurement: id, state, purpose, device, times, samples, environment."""
    raise NotImplementedError


def export_rows(
    session: Session,
    principal: Principal,
    job_id: str,
    filters: CandidateFilter | None = None,
    sort: str = "number",
) -> Iterator[dict[str, Any]]:
    """Rows of scalars under `EXPORT_COLUMNS`, fetched in batches. Errors as in `list_candidates`, before the first."""
    raise NotImplementedError
