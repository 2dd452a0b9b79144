"""Work that workers claim: what was requested for whom, whose turn it is, and who holds it."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, String
from sqlalchemy.orm import Mapped, mapped_column

from edgefront.core.states import WorkKind
from edgefront.core.store.tables.base import Base, UtcDateTime, state_type


class WorkItem(Base):
    """A piece of work for a subject, from the request until it is done."""

    __tablename__ = "work_item"
    __table_args__ = (Index("ix_work_item_turn", "kind", "turn"), Index("ix_work_item_owner", "owner", "kind"))

    kind: Mapped[WorkKind] = mapped_column(state_type(WorkKind, 10, "kind"), primary_key=True)
    subject: Mapped[str] = mapped_column(
        String(120), primary_key=True
    )  # id of a target or score, kind of training and owner
    owner: Mapped[str] = mapped_column(String(100))  # empty if it has none
    turn: Mapped[float]  # lowest first
    again: Mapped[bool] = mapped_column(default=False)  # requested once more since it was claimed
    holder: Mapped[str | None] = mapped_column(String(120))  # the worker that does it
    fence: Mapped[int] = mapped_column(default=0)  # claims so far
    attempts: Mapped[int] = mapped_column(
        default=0
    )  # claims that expired without an answer of their holder, plus the present one
    claimed_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    requested_at: Mapped[datetime] = mapped_column(UtcDateTime)
