"""How trainings change their state."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.services import event_log
from edgefront.core.services.event_log import Entry
from edgefront.core.states import TrainingEventKind, TrainingState
from edgefront.core.store.tables import Training


def change_state(session: Session, training: Training, state: TrainingState, now: datetime, *, note: str = "") -> None:
    """A training's new state, in its row and in the log."""
    training.state, training.note, training.updated_at = state, note, now
    log_state(session, training, now)


def log_state(session: Session, training: Training, now: datetime) -> None:
    """Appends the training's state, and what its owner wants of it, to its log."""
    data = {
        "state": training.state,
        "wanted": training.wanted,
        "reason": training.reason,
        "note": training.note,
    }
    event_log.append(session, training.id, [Entry(TrainingEventKind.STATE, data)], now)
