"""The event logs of jobs and trainings: each numbered from 1 without gaps, in commit order.

An event says what changed; figures are read where they are. Numbers are drawn under the row lock of the job or
training. Lock order everywhere: targets by id, then measurements by id, then jobs by id; so a transaction that appends
to the logs of several jobs locks those jobs first, in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import insert, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session
from sqlalchemy.orm.attributes import set_committed_value

from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import job_of, training_of
from edgefront.core.services.cursor import MAX_NUMBER
from edgefront.core.services.stored import RowReader
from edgefront.core.states import JobEventKind, TrainingEventKind
from edgefront.core.store.sql import Document
from edgefront.core.store.tables import Event, Job, Training, TrainingEvent
from edgefront.core.wire import events as wire

_COLUMNS = ("number", "kind", "data", "created_at")


@dataclass(frozen=True)
class Entry:
    """An event without its number. `kind` and `data` as in `core.wire.events`; `target_id` in the log of a job."""

    kind: JobEventKind | TrainingEventKind
    data: Document
    target_id: str | None = None


class _Log(NamedTuple):
    """Tables of the events of one kind of owner."""

    owner: type[Job | Training]
    events: type[Event | TrainingEvent]

    @property
    def owner_id(self) -> str:
        return f"{self.owner.__tablename__}_id"

    @property
    def columns(self) -> tuple[InstrumentedAttribute[Any], ...]:
        return tuple(getattr(self.events, name) for name in (*_COLUMNS, *(["target_id"] if self is _JOBS else [])))


_JOBS = _Log(Job, Event)
_TRAININGS = _Log(Training, TrainingEvent)


def _log_of(owner_id: str) -> _Log:
    return _TRAININGS if owner_id.startswith("trn_") else _JOBS


def append(session: Session, owner_id: str, entries: Sequence[Entry], now: datetime) -> int:
    """Writes events in order; returns the number of the last one (0 if there are none, or the job or training is
    gone).
    """
    if not entries:
        return 0
    log = _log_of(owner_id)
    touched = {"updated_at": now} if log is _JOBS else {}
    last: int | None = session.scalar(
        update(log.owner)
        .where(log.owner.id == owner_id)
        .values(last_event=log.owner.last_event + len(entries), **touched)
        .returning(log.owner.last_event),
        execution_options={"synchronize_session": False},
    )
    if last is None:
        return 0
    loaded = session.identity_map.get(session.identity_key(log.owner, owner_id))
    if loaded is not None:
        for name, value in {"last_event": last, **touched}.items():
            set_committed_value(loaded, name, value)
    rows: list[Document] = [
        {
            log.owner_id: owner_id,
            "number": number,
            "kind": entry.kind,
            "data": entry.data,
            "created_at": now,
            **({"target_id": entry.target_id} if log is _JOBS else {}),
        }
        for number, entry in enumerate(entries, last - len(entries) + 1)
    ]
    session.execute(insert(log.events), rows)
    return last


def read(session: Session, owner_id: str, after: int, limit: int = 500) -> list[wire.Event]:
    """The events of a job or training with numbers above `after`, in order. No access check: see `check_access`."""
    log = _log_of(owner_id)
    query = (
        select(*log.columns)
        .where(getattr(log.events, log.owner_id) == owner_id, log.events.number > min(max(after, 0), MAX_NUMBER))
        .order_by(log.events.number)
        .limit(limit)
    )
    return [_view(dict(row._mapping)) for row in session.execute(query)]


def _view(row: Document) -> wire.Event:
    """An event; with data that cannot be read it says so, and the log goes on."""
    reader = RowReader()
    event = reader.read(lambda: wire.Event.model_validate(row))
    return event or wire.Event.model_validate({**row, "data": {"note": reader.note()}})


def check_access(session: Session, principal: Principal, owner_id: str) -> None:
    """NotFound unless the job or training exists and is the principal's (admins see all)."""
    of_principal = training_of if _log_of(owner_id) is _TRAININGS else job_of
    of_principal(session, principal, owner_id)
