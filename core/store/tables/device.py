"""Devices: the physical units whose agents measure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import String, Text
from sqlalchemy.orm import Mapped, mapped_column, validates

from edgefront.core.states import DeviceState
from edgefront.core.store.tables.base import Base, Json, UtcDateTime, new_id, state_type


def digest_of_facts(facts: Mapping[str, Any]) -> str:
    """Changes with the facts: what was derived from them is derived again."""
    return hashlib.sha256(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


class Device(Base):
    __tablename__ = "device"

    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("dev"))
    name: Mapped[str] = mapped_column(String(100), unique=True)
    device_class: Mapped[str] = mapped_column(String(100), index=True)
    owner: Mapped[str] = mapped_column(String(100), index=True)
    state: Mapped[DeviceState] = mapped_column(state_type(DeviceState, 10), default=DeviceState.ACTIVE)
    facts: Mapped[dict[str, Any]] = mapped_column(Json)
    facts_digest: Mapped[str | None] = mapped_column(String(16))  # set with the facts
    protocol_version: Mapped[int]
    enrolled_at: Mapped[datetime] = mapped_column(UtcDateTime)
    last_seen_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    reported_at: Mapped[datetime | None] = mapped_column(UtcDateTime)  # its last result that counted
    busy_s: Mapped[float] = mapped_column(default=0.0)
    measuring_s: Mapped[float] = mapped_column(default=0.0)
    instances: Mapped[dict[str, Any] | None] = mapped_column(Json)  # the processes of its agent
    quarantine: Mapped[str | None] = mapped_column(Text)  # why it gets no launches
    failing: Mapped[list[str] | None] = mapped_column(Json)  # models that failed here beyond those done
    trusted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)  # its anchor's history counts from here

    @validates("facts")
    def _set_digest(self, _name: str, facts: dict[str, Any]) -> dict[str, Any]:
        self.facts_digest = digest_of_facts(facts)
        return facts
