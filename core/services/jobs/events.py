"""The event log of a job: numbered from 1 without gaps, in commit order.

Numbers are drawn under the job's row lock. Lock order everywhere: targets by id, then measurements by id, then jobs
by id; so a transaction that appends to the logs of several jobs locks those jobs first, in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import job_of
from edgefront.core.services.cursor import MAX_NUMBER
from edgefront.core.services.jobs.queries import events as repository
from edgefront.core.store.sql import Document
from edgefront.core.wire.jobs import EventView


@dataclass(frozen=True)
class Entry:
    """An event without its number. `kind` and `data` as in `core.wire.events`."""

    kind: str
    data: Document
    target_id: str | None = None


def append(session: Session, job_id: str, kind: str, data: Document, target_id: str | None, now: datetime) -> int:
    """Writes one event and returns its number."""
    return append_all(session, job_id, [Entry(kind, data, target_id)], now)


def append_all(session: Session, job_id: str, entries: Sequence[Entry], now: datetime) -> int:
    """Writes events in order; returns the number of the last one (0 if there are none, or the job is gone)."""
    if not entries:
        return 0
    last = repository.take_numbers(session, job_id, len(entries), now)
    if last is None:
        return 0
    rows = [
        {
            "job_id": job_id,
            "number": last - len(entries) + 1 + index,
            "kind": entry.kind,
            "target_id": entry.target_id,
            "data": entry.data,
            "created_at": now,
        }
        for index, entry in enumerate(entries)
    ]
    repository.add(session, rows)
    return last


def read_events(session: Session, job_id: str, after: int, limit: int = 500) -> list[EventView]:
    """The events of a job with numbers above `after`, in order. No access check: see `check_access`."""
    return [
        EventView.model_validate(
            {
                "number": row.number,
                "kind": row.kind,
                "target_id": row.target_id,
                "data": row.data,
                "created_at": row.created_at,
            }
        )
        for row in repository.after(session, job_id, min(max(after, 0), MAX_NUMBER), limit)
    ]


def check_access(session: Session, principal: Principal, job_id: str) -> None:
    """NotFound unless the job exists and is the principal's (admins see all)."""
    job_of(session, principal, job_id)
