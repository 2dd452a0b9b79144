"""Devices: the physical units whose agents measure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from edgefront.core.store.tables.base import Base, Json, UtcDateTime, new_id


class Device(Base):
    __tablename__ = "device"

    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("dev"))
    name: Mapped[str] = mapped_column(String(100), unique=True)
    device_class: Mapped[str] = mapped_column(String(100), index=True)
    owner: Mapped[str] = mapped_column(String(100), index=True)
    state: Mapped[str] = mapped_column(String(10), default="active")  # active, draining, revoked
    facts: Mapped[dict[str, Any]] = mapped_column(Json)
    protocol_version: Mapped[int]
    enrolled_at: Mapped[datetime] = mapped_column(UtcDateTime)
    last_seen_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    busy_s: Mapped[float] = mapped_column(default=0.0)
    measuring_s: Mapped[float] = mapped_column(default=0.0)
