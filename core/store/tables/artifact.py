"""Artifacts: files kept for download."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from edgefront.core.store.tables.base import Base, BigInt, UtcDateTime, new_id


class Artifact(Base):
    __tablename__ = "artifact"
    __table_args__ = (UniqueConstraint("digest", "seed", "format"),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("art"))
    digest: Mapped[str] = mapped_column(String(64))  # of the architecture
    seed: Mapped[int] = mapped_column(BigInt)
    format: Mapped[str] = mapped_column(String(20))  # onnx, safetensors, architecture
    path: Mapped[str] = mapped_column(String(300))  # below the artifact folder
    size: Mapped[int] = mapped_column(BigInt)
    sha256: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
