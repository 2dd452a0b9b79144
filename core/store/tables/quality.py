"""Versions of quality laws that the service's own trainings have refined, and the trainings that wait for the next."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from edgefront.core.store.tables.base import Base, Json, UtcDateTime, new_id

_OPEN = text("finished_at IS NULL")


class LawVersion(Base):
    """A law with another as its prior, fitted to trainings that were alike. Never changed: jobs name it."""

    __tablename__ = "quality_law"
    __table_args__ = (UniqueConstraint("name", "version"), UniqueConstraint("rows_digest", "name"))

    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("law"))
    name: Mapped[str] = mapped_column(String(64))  # one for each base law and comparability key
    version: Mapped[int]  # from 1
    base: Mapped[str] = mapped_column(String(64))  # the law that is its prior
    comparability_key: Mapped[str] = mapped_column(String(16), index=True)  # as in `details` of its evaluations
    dataset: Mapped[str] = mapped_column(String(200))
    dataset_digest: Mapped[str | None] = mapped_column(String(64))
    recipe: Mapped[str] = mapped_column(String(64))
    models: Mapped[int]  # different architectures
    rows_digest: Mapped[str] = mapped_column(String(64))  # of the architectures and perplexities it was fitted to
    law: Mapped[str] = mapped_column(Text)  # JSON of core.quality.stored
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Probe(Base):
    """Trainings after whose refit a job is moved to the refined law (`core.services.jobs.probes`)."""

    __tablename__ = "quality_probe"
    __table_args__ = (
        UniqueConstraint("owner", "idempotency_key"),
        Index("ix_quality_probe_open", "id", postgresql_where=_OPEN, sqlite_where=_OPEN),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("prb"))
    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), index=True)
    owner: Mapped[str] = mapped_column(String(100))
    request_digest: Mapped[str] = mapped_column(String(64))
    idempotency_key: Mapped[str | None] = mapped_column(String(200))
    plan: Mapped[dict[str, Any]] = mapped_column(Json)  # core.wire.probes.ProbePlan, read by core.services.stored
    law: Mapped[str | None] = mapped_column(String(80))  # NAME@VERSION to which the job was moved
    reason: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class WantedRefit(Base):
    """Comparable trainings with results that no law has been fitted to; deleted when that is done."""

    __tablename__ = "quality_refit"

    comparability_key: Mapped[str] = mapped_column(String(16), primary_key=True)
    wanted_at: Mapped[datetime] = mapped_column(UtcDateTime)
