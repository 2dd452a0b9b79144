"""Queries on how fast trainings went."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from edgefront.core.states import TrainingKind, TrainingState
from edgefront.core.store.sql import Document, typed
from edgefront.core.store.tables import Training

LATEST = 20
"""Trainings, the latest, from which a pace is learnt."""


class EndedTraining(NamedTuple):
    """What a training took, and of what."""

    architecture: Document
    trained: Document | None
    """The same with the vocabulary of its data; None of trainings that did not say."""
    segment: int
    tokens: int
    seconds: float
    gpus: int
    precision: str
    compile: bool

    @property
    def how(self) -> tuple[int, str, bool]:
        """What changes the pace of a model besides the worker."""
        return self.gpus, self.precision, self.compile


_ENDED = (
    Training.kind == TrainingKind.TRAINING,
    Training.state == TrainingState.DONE,
    Training.tokens > 0,
    Training.seconds > 0,
    Training.recipe["distil"].as_string().is_(None),  # its teacher takes most of the time
)


def ended_by(session: Session, owner: str, worker: str) -> list[EndedTraining]:
    """The owner's latest trainings on a worker, the newest first."""
    return _latest(session, Training.owner == owner, Training.worker == worker)


def trainers(session: Session, owner: str) -> list[str]:
    """The workers that have trained a model of this owner to its end, by name."""
    of = (*_ENDED, Training.owner == owner, Training.worker.is_not(None))
    query = select(Training.worker).where(*of).distinct().order_by(Training.worker)
    return [worker for worker in session.scalars(query) if worker is not None]


def _latest(session: Session, *of: object) -> list[EndedTraining]:
    columns = (
        Training.architecture,
        Training.trained,
        Training.recipe["segment"].as_integer().label("segment"),
        Training.tokens,
        Training.seconds,
        Training.gpus,
        Training.recipe["precision"].as_string().label("precision"),
        Training.recipe["compile"].as_boolean().label("compile"),
    )
    readable = Training.recipe["segment"].as_integer().is_not(None)
    query = select(*columns).where(*_ENDED, readable, *of)  # type: ignore[arg-type]
    return typed(EndedTraining, session.execute(query.order_by(Training.finished_at.desc(), Training.id).limit(LATEST)))
