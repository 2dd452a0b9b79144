"""The event log of a job: numbered without gaps, in commit order."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from edgefront.core.states import JobEventKind
from edgefront.core.store.tables.base import AutoId, Base, Json, UtcDateTime, state_type


class Event(Base):
    __tablename__ = "event"
    __table_args__ = (UniqueConstraint("job_id", "number"),)

    id: Mapped[int] = mapped_column(AutoId, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"))
    number: Mapped[int]
    kind: Mapped[JobEventKind] = mapped_column(state_type(JobEventKind, 20, "kind"))
    target_id: Mapped[str | None] = mapped_column(String(40))
    data: Mapped[dict[str, Any]] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
