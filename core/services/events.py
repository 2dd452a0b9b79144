"""The event log of a job: numbered from 1 without gaps, in commit order.

Numbers are drawn under the job's row lock. Lock order everywhere: targets by id, then measurements by id, then jobs
by id; so whoever appends to the logs of several jobs locks those jobs first, in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from core.services.keys import Principal
from core.wire.jobs import EventView


@dataclass(frozen=True)
class Entry:
    """An event without its number. `kind` and `data` as in `core.wire.jobs.EventView`."""

    kind: str
    data: dict[str, Any]
    target_id: str | None = None


def append(
    session: Session, job_id: str, kind: str, data: dict[str, Any], target_id: str | None, now: datetime
) -> int:
    """Writes one event and returns its number."""
    raise NotImplementedError


def append_all(session: Session, job_id: str, entries: Sequence[Entry], now: datetime) -> int:
    """Writes events in order, in one statement; returns the number of the last one (0 if there are none)."""
    raise NotImplementedError


def read_events(session: Session, job_id: str, after: int, limit: int = 500) -> list[EventView]:
    """The events of a job with numbers above `after`, in order. No access check: see `check_access`."""
    raise NotImplementedError


def check_access(session: Session, principal: Principal, job_id: str) -> None:
    """NotFound unless the job exists and is the principal's (admins see all)."""
    raise NotImplementedError
