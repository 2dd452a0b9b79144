"""Devices, keys, enrolment tokens and web sessions.

Secrets are long and random, and stored as SHA-256 only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import ForeignKey, String, Text, false
from sqlalchemy.orm import Mapped, mapped_column, validates

from edgefront.core.common.states import DeviceState, KeyRole
from edgefront.core.store.tables.base import Base, BigInt, Json, UtcDateTime, new_id, state_type


class ApiKey(Base):
    __tablename__ = "api_key"

    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("key"))
    name: Mapped[str] = mapped_column(String(100))
    owner: Mapped[str] = mapped_column(String(100), index=True)
    role: Mapped[KeyRole] = mapped_column(state_type(KeyRole, 10, "role"))
    prefix: Mapped[str] = mapped_column(String(16))
    secret_hash: Mapped[str] = mapped_column(String(64), unique=True)
    device_id: Mapped[str | None] = mapped_column(ForeignKey("device.id", ondelete="CASCADE"), index=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    pending: Mapped[bool] = mapped_column(default=False, server_default=false())
    """Whether this is a device's new, unused credential. The first use revokes the device's older credentials."""
    token_id: Mapped[str | None] = mapped_column(ForeignKey("enrolment_token.id", ondelete="SET NULL"))
    """Enrolment token that was exchanged for this key."""
    enrolment_nonce: Mapped[str | None] = mapped_column(String(64))
    """SHA-256 of the nonce of the enrolment request, because the agent may repeat the request."""


class EnrolmentToken(Base):
    __tablename__ = "enrolment_token"

    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("enr"))
    name: Mapped[str] = mapped_column(String(100))
    owner: Mapped[str] = mapped_column(String(100), index=True)
    device_id: Mapped[str | None] = mapped_column(ForeignKey("device.id", ondelete="CASCADE"), index=True)
    """Device that this token enrols again; None: the token enrols new devices."""
    secret_hash: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    max_uses: Mapped[int] = mapped_column(default=1)
    uses: Mapped[int] = mapped_column(default=0)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class WebSession(Base):
    """A browser session (cookie), opened with an API key. The session ends with the key."""

    __tablename__ = "web_session"

    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("web"))
    secret_hash: Mapped[str] = mapped_column(String(64), unique=True)
    api_key_id: Mapped[str] = mapped_column(ForeignKey("api_key.id", ondelete="CASCADE"), index=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)


class AccessVersion(Base):
    """Single row with the number of revoked keys, credentials and browser sessions. When this number changes, every
    process discards the cached secrets.
    """

    __tablename__ = "access_version"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, default=1)
    number: Mapped[int] = mapped_column(BigInt)


def digest_of_facts(facts: Mapping[str, Any]) -> str:
    """Hash of the device facts. A new hash invalidates whatever was derived from the facts."""
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
    enrolled_at: Mapped[datetime] = mapped_column(UtcDateTime)
    last_seen_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    reported_at: Mapped[datetime | None] = mapped_column(UtcDateTime)  # time of the latest accepted result
    busy_s: Mapped[float] = mapped_column(default=0.0)
    measuring_s: Mapped[float] = mapped_column(default=0.0)
    instances: Mapped[dict[str, Any] | None] = mapped_column(Json)  # processes of the device's agent
    conditions: Mapped[str | None] = mapped_column(Text)  # disturbed conditions of its latest launch
    quarantine: Mapped[str | None] = mapped_column(Text)  # reason why the device gets no launches
    failing: Mapped[list[str] | None] = mapped_column(Json)  # ids of measurements that failed here
    trusted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)  # start of the anchor history that counts

    @validates("facts")
    def _set_digest(self, _name: str, facts: dict[str, Any]) -> dict[str, Any]:
        self.facts_digest = digest_of_facts(facts)
        return facts
