"""The log of a training: numbered from 1 without gaps, in commit order.

Numbers are assigned under the training's row lock, which every writer of its state holds anyway.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import training_of
from edgefront.core.services.cursor import MAX_NUMBER
from edgefront.core.services.trainings.queries import log as training_log
from edgefront.core.states import TrainingState
from edgefront.core.store.sql import Document
from edgefront.core.store.tables import Training
from edgefront.core.wire.trainings import TrainingEventView

Entry = tuple[str, Document]
"""Kind and data as in `core.wire.events`."""


def state_entry(training: Training) -> Entry:
    """An event with the training's current state."""
    data = {
        "state": training.state,
        "wanted": training.wanted,
        "reason": training.reason,
        "note": training.note,
    }
    return "state", data


def change_state(session: Session, training: Training, state: TrainingState, now: datetime, *, note: str = "") -> None:
    """A training's new state, in its row and in the log."""
    training.state, training.note, training.updated_at = state, note, now
    training_log.add_events(session, training.id, [state_entry(training)], now)


def read_events(session: Session, training_id: str, after: int, limit: int = 500) -> list[TrainingEventView]:
    """The events of a training with numbers above `after`, in order. No access check: see `check_access`."""
    return [
        TrainingEventView.model_validate(
            {"number": row.number, "kind": row.kind, "data": row.data, "created_at": row.created_at}
        )
        for row in training_log.events_after(session, training_id, min(max(after, 0), MAX_NUMBER), limit)
    ]


def check_access(session: Session, principal: Principal, training_id: str) -> None:
    """NotFound unless the training exists and is the principal's (admins see all)."""
    training_of(session, principal, training_id)
