"""Event logs of jobs and trainings. The events of a log are numbered from 1 without gaps, in commit order.

An event names what changed, without the new figures. Event numbers are assigned under the row lock of the job or
training. Every transaction locks targets by id, then measurements by id, then jobs by id. A transaction that appends to
the logs of several jobs therefore locks these jobs first, in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import cast

from sqlalchemy import BindParameter, Integer, Table, bindparam, select, update
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import set_committed_value

from edgefront.core.common.states import JobEventKind, TrainingEventKind
from edgefront.core.schemas import messages
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import job_of, training_of
from edgefront.core.services.cursor import MAX_NUMBER
from edgefront.core.services.stored import RowReader
from edgefront.core.store.sql import Document, insert_rows
from edgefront.core.store.tables import Event, Job, Training, TrainingEvent

_COLUMNS = ("number", "kind", "data", "created_at")


@dataclass(frozen=True)
class Entry:
    """Event without a number. `kind` and `data`: see `core.schemas.messages`. Only jobs' events have a target."""

    kind: JobEventKind | TrainingEventKind
    data: Document
    target_id: str | None = None


class _Log:
    """SQL statements on the event logs of jobs or of trainings, built once."""

    def __init__(self, owner: type[Job | Training], events: type[Event | TrainingEvent]) -> None:
        self.owner, self.events = owner, events
        self.owner_id = f"{owner.__tablename__}_id"
        self.has_targets = events is Event
        table = cast(Table, owner.__table__)
        touched: dict[str, BindParameter[datetime]] = {"updated_at": bindparam("now")} if owner is Job else {}
        self.take = (
            update(table)
            .where(table.c.id == bindparam("log"))
            .values(last_event=table.c.last_event + bindparam("count", type_=Integer), **touched)
            .returning(table.c.last_event)
        )
        log = cast(Table, events.__table__)
        self.after = (
            select(*(log.c[name] for name in (*_COLUMNS, *(["target_id"] if self.has_targets else []))))
            .where(log.c[self.owner_id] == bindparam("log"), log.c.number > bindparam("number"))
            .order_by(log.c.number)
            .limit(bindparam("most", type_=Integer))
        )


_JOBS = _Log(Job, Event)
_TRAININGS = _Log(Training, TrainingEvent)


def _log_of(owner_id: str) -> _Log:
    return _TRAININGS if owner_id.startswith("trn_") else _JOBS


def append(session: Session, owner_id: str, entries: Sequence[Entry], now: datetime) -> int:
    """Appends events in order. Returns the final event's number; 0 for no events, or for a deleted job or training."""
    if not entries:
        return 0
    log = _log_of(owner_id)
    last: int | None = session.scalar(log.take, {"log": owner_id, "count": len(entries), "now": now})
    if last is None:
        return 0
    loaded = session.identity_map.get(session.identity_key(log.owner, owner_id))
    if loaded is not None:
        set_committed_value(loaded, "last_event", last)
        if log is _JOBS:
            set_committed_value(loaded, "updated_at", now)
    rows: list[Document] = [
        {
            log.owner_id: owner_id,
            "number": number,
            "kind": entry.kind,
            "data": entry.data,
            "created_at": now,
            **({"target_id": entry.target_id} if log.has_targets else {}),
        }
        for number, entry in enumerate(entries, last - len(entries) + 1)
    ]
    insert_rows(session, log.events, rows)
    return last


def read(session: Session, owner_id: str, after: int, limit: int = 500) -> list[messages.Event]:
    """Returns events of a job or training with numbers above `after`, in order. Call `check_access` before."""
    log = _log_of(owner_id)
    parameters = {"log": owner_id, "number": min(max(after, 0), MAX_NUMBER), "most": limit}
    events: list[messages.Event] = []
    for row in session.execute(log.after, parameters):
        reader, stored = RowReader(), dict(row._mapping)
        event = reader.read(partial(messages.Event.model_validate, stored))
        # An unreadable event says so, and the log continues.
        events.append(event or messages.Event.model_validate({**stored, "data": {"note": reader.note()}}))
    return events


def check_access(session: Session, principal: Principal, owner_id: str) -> None:
    """Raises `NotFound` unless the job or training exists and the principal may read it."""
    (training_of if _log_of(owner_id) is _TRAININGS else job_of)(session, principal, owner_id)
