"""Changes of state of locked trainings, without checks of ownership."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.common.errors import Conflict
from edgefront.core.common.states import LIVE_TRAININGS, TrainingCommand, TrainingEventKind, TrainingKind, TrainingState
from edgefront.core.services import event_log, tasks
from edgefront.core.services.event_log import Entry
from edgefront.core.services.trainings.queries import take_turn
from edgefront.core.store.database import enqueue
from edgefront.core.store.tables import Training


def change_state(session: Session, training: Training, state: TrainingState, now: datetime, *, note: str = "") -> None:
    """Sets a training's state, in its row and in its log."""
    training.state, training.note, training.updated_at = state, note, now
    log_state(session, training, now)


def log_state(session: Session, training: Training, now: datetime) -> None:
    """Appends the training's state and its owner's command to its log."""
    data = {name: getattr(training, name) for name in ("state", "wanted", "reason", "note")}
    event_log.append(session, training.id, [Entry(TrainingEventKind.STATE, data)], now)


def pause(session: Session, training: Training, now: datetime) -> None:
    """Pauses the training after its current step, with a checkpoint. `Conflict` for an ended or cancelled training."""
    check_trains(training, "paused")
    if training.state == TrainingState.QUEUED:
        training.wanted = TrainingCommand.PAUSE
        change_state(session, training, TrainingState.PAUSED, now)
    elif training.state in LIVE_TRAININGS:
        if training.wanted == TrainingCommand.CANCEL:
            raise Conflict(f"training {training.id} is being cancelled and cannot be paused")
        request_command(session, training, TrainingCommand.PAUSE, now)
    elif training.state != TrainingState.PAUSED:
        raise Conflict(f"training {training.id} is {training.state} and cannot be paused")


def resume(session: Session, training: Training, now: datetime) -> None:
    """Resumes a paused or failed training from its latest checkpoint, and resets the count of failed attempts."""
    check_trains(training, "resumed")
    if training.state in (TrainingState.PAUSED, TrainingState.FAILED):
        training.wanted, training.reason, training.finished_at = TrainingCommand.RUN, None, None
        training.attempts, training.failed_at_checkpoint = 0, None
        take_turn(session, training)
        change_state(session, training, TrainingState.QUEUED, now)
        enqueue(session, tasks.TRAIN, queue=training.queue)
    elif training.state in LIVE_TRAININGS:
        if training.wanted == TrainingCommand.CANCEL:
            raise Conflict(f"training {training.id} is being cancelled and cannot be resumed")
        request_command(session, training, TrainingCommand.RUN, now)
    elif training.state != TrainingState.QUEUED:
        raise Conflict(f"training {training.id} is {training.state} and cannot be resumed")


def check_trains(training: Training, verb: str) -> None:
    """Raises `Conflict` for an imported model, which cannot be paused, resumed or cancelled (`verb`)."""
    if training.kind == TrainingKind.IMPORT:
        raise Conflict(f"training {training.id} is an imported model, which is not trained: it cannot be {verb}")


def request_command(session: Session, training: Training, command: TrainingCommand, now: datetime) -> None:
    """Stores the owner's command, which the worker reads."""
    if training.wanted != command:
        training.wanted, training.updated_at = command, now
        log_state(session, training, now)
