"""Scores of proxies that workers compute, and the targets that wait for them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from edgefront.core.states import ScoreState
from edgefront.core.store.tables.base import Base, BigInt, Json, UtcDateTime, new_id, state_type

_OPEN = text("state = 'wanted'")


class ProxyScore(Base):
    """A proxy's score of an architecture, under these settings and this seed: computed once, for all jobs."""

    __tablename__ = "proxy_score"
    __table_args__ = (
        UniqueConstraint("digest", "proxy", "settings_digest", "seed"),
        Index("ix_proxy_score_open", "id", postgresql_where=_OPEN, sqlite_where=_OPEN),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("scr"))
    digest: Mapped[str] = mapped_column(String(64))
    proxy: Mapped[str] = mapped_column(String(32))  # core.proxies.registry
    settings_digest: Mapped[str] = mapped_column(String(64))
    seed: Mapped[int] = mapped_column(BigInt)
    settings: Mapped[dict[str, Any]] = mapped_column(Json)  # core.proxies.settings.ProxySettings
    architecture: Mapped[dict[str, Any]] = mapped_column(Json)  # canonical description
    state: Mapped[ScoreState] = mapped_column(state_type(ScoreState, 10))
    value: Mapped[float | None]  # raw score: whether higher is better depends on the proxy
    reason: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    settled_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class ProxyWait(Base):
    """A target that waits for this score."""

    __tablename__ = "proxy_wait"

    target_id: Mapped[str] = mapped_column(ForeignKey("target.id", ondelete="CASCADE"), primary_key=True)
    score_id: Mapped[str] = mapped_column(
        ForeignKey("proxy_score.id", ondelete="CASCADE"), primary_key=True, index=True
    )
