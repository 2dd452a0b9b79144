"""Candidates: architectures proposed for a target, with their lineage and results."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String, Text, UniqueConstraint, false, text
from sqlalchemy.orm import Mapped, mapped_column

from edgefront.core.common.states import CandidateRole, CandidateState
from edgefront.core.store.tables.base import Base, BigInt, Json, UtcDateTime, new_id, state_type
from edgefront.core.store.tables.measurement import FigureColumns

_POINTS = (
    *("target_id", "state", "role", "on_frontier", "latency_ms", "memory_bytes", "proxy", "predicted_perplexity"),
    "number",
)


def _by(figure: str, *, optional: bool = True) -> Index:
    """Creates an index for lists ordered by a figure (`services.jobs.queries.lists`), only of rows with this figure."""
    measured = text(f"{figure} IS NOT NULL") if optional else None
    return Index(
        f"ix_candidate_by_{figure}", "target_id", figure, "id", postgresql_where=measured, sqlite_where=measured
    )


class Candidate(FigureColumns, Base):
    __tablename__ = "candidate"
    __table_args__ = (
        UniqueConstraint("target_id", "number"),
        UniqueConstraint("target_id", "digest", "role"),
        Index(
            "ix_candidate_frontier",
            "target_id",
            postgresql_where=text("on_frontier"),
            sqlite_where=text("on_frontier = 1"),  # SQLite requires the identical condition
        ),
        # Covers the columns by which the chart's points are counted and thinned, so that the wide rows are not read.
        Index("ix_candidate_target_state", *_POINTS),
        *(_by(name) for name in ("latency_ms", "memory_bytes", "predicted_perplexity")),
        *(_by(name, optional=False) for name in ("proxy", "decoder_parameters")),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("cnd"))
    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), index=True)
    target_id: Mapped[str] = mapped_column(ForeignKey("target.id", ondelete="CASCADE"))
    measurement_id: Mapped[str | None] = mapped_column(ForeignKey("measurement.id"), index=True)
    number: Mapped[int]  # order of proposal within the target, from 0, baselines first
    role: Mapped[CandidateRole] = mapped_column(state_type(CandidateRole, 10, "role"))
    generation: Mapped[int]  # -1 for baselines
    operator: Mapped[str] = mapped_column(String(20))  # baseline, or the algorithm's name of the operator
    parents: Mapped[list[str]] = mapped_column(Json)  # candidate ids
    genome: Mapped[Any] = mapped_column(Json)
    digest: Mapped[str] = mapped_column(String(64))
    architecture: Mapped[dict[str, Any]] = mapped_column(Json)  # canonical description
    decoder_parameters: Mapped[int] = mapped_column(BigInt)
    total_parameters: Mapped[int] = mapped_column(BigInt)
    weight_bytes: Mapped[int] = mapped_column(BigInt)
    flops: Mapped[int] = mapped_column(BigInt)
    proxy: Mapped[float]
    predicted: Mapped[dict[str, Any] | None] = mapped_column(
        Json
    )  # core.schemas.predictions.PredictedView at the time of the proposal
    predicted_perplexity: Mapped[float | None]  # copied from `predicted`
    seed: Mapped[int] = mapped_column(BigInt)  # seed of its random weights
    state: Mapped[CandidateState] = mapped_column(state_type(CandidateState, 15))
    reason: Mapped[str | None] = mapped_column(Text)
    # These columns and the figures are copied from the measurement when reports are processed; lists need no join.
    latency_half_width_ms: Mapped[float | None]
    first_token_half_width_ms: Mapped[float | None]
    token_half_width_ms: Mapped[float | None]
    launches: Mapped[int] = mapped_column(default=0)
    marked: Mapped[bool] = mapped_column(default=False, server_default=false())  # whether a launch has a mark
    on_frontier: Mapped[bool] = mapped_column(default=False)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    measured_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class Artifact(Base):
    __tablename__ = "artifact"
    __table_args__ = (UniqueConstraint("digest", "seed", "format"),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("art"))
    digest: Mapped[str] = mapped_column(String(64))  # digest of the architecture
    seed: Mapped[int] = mapped_column(BigInt)
    format: Mapped[str] = mapped_column(String(40))  # onnx-u4-last, safetensors, architecture
    path: Mapped[str] = mapped_column(String(300))  # below the artifact folder
    size: Mapped[int] = mapped_column(BigInt)
    sha256: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
