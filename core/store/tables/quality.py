"""Scaling laws of owners: what their trainings taught, and what the cuts of their imported models cost."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import String, Text
from sqlalchemy.orm import Mapped, mapped_column

from edgefront.core.store.tables.base import Base, Json, UtcDateTime


class OwnerLaw(Base):
    """A scaling law of one owner. The posterior of a kind of training is replaced whenever such a training ends; the
    law of a model's cuts is named after what it says and never changes.
    """

    __tablename__ = "owner_law"

    owner: Mapped[str] = mapped_column(String(100), primary_key=True)
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    base: Mapped[str] = mapped_column(String(64))  # the shipped law that is its prior; empty for a law of cuts
    document: Mapped[str] = mapped_column(Text)  # JSON of core.quality.stored
    digest: Mapped[str] = mapped_column(String(64))  # SHA-256 of the document
    summary: Mapped[dict[str, Any]] = mapped_column(Json)  # core.wire.service.QualityLawView, read without the document
    left_out: Mapped[list[dict[str, Any]]] = mapped_column(Json)  # of services.quality.learning: LeftOut
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
