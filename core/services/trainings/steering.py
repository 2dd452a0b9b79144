"""What becomes of a training that is paused or resumed: of locked rows, whoever asked."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.errors import Conflict
from edgefront.core.services import tasks
from edgefront.core.services.trainings.events import change_state, state_entry
from edgefront.core.services.trainings.queries import log as training_log
from edgefront.core.states import LIVE_TRAININGS
from edgefront.core.store.outbox import enqueue
from edgefront.core.store.tables import Training
from edgefront.core.wire.trainings import Wanted


def pause(session: Session, training: Training, now: datetime) -> None:
    """Stops after the step at hand, with a checkpoint. Conflict where it has ended, or is about to."""
    if training.state == "queued":
        training.wanted = "pause"
        change_state(session, training, "paused", now)
    elif training.state in LIVE_TRAININGS:
        if training.wanted == "cancel":
            raise Conflict(f"training {training.id} is being cancelled and cannot be paused")
        want(session, training, "pause", now)
    elif training.state != "paused":
        raise Conflict(f"training {training.id} is {training.state} and cannot be paused")


def resume(session: Session, training: Training, now: datetime) -> None:
    """Goes on from the last checkpoint: a paused training, or one that failed, which has all its attempts again."""
    if training.state in ("paused", "failed"):
        training.wanted, training.reason, training.finished_at = "run", None, None
        training.attempts, training.failed_at_checkpoint = 0, None
        change_state(session, training, "queued", now)
        enqueue(session, tasks.TRAIN, queue=training.queue)
    elif training.state in LIVE_TRAININGS:
        if training.wanted == "cancel":
            raise Conflict(f"training {training.id} is being cancelled and cannot be resumed")
        want(session, training, "run", now)
    elif training.state != "queued":
        raise Conflict(f"training {training.id} is {training.state} and cannot be resumed")


def want(session: Session, training: Training, wanted: Wanted, now: datetime) -> None:
    """Tells the worker that runs it."""
    if training.wanted != wanted:
        training.wanted, training.updated_at = wanted, now
        training_log.add_events(session, training.id, [state_entry(training)], now)
