"""How fast the pool trains: the paces of its workers, learnt from the trainings that have ended there."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.states import TrainingKind, TrainingState
from edgefront.core.quality.predictor import Pace, flops_per_token
from edgefront.core.schemas.jobs import TrainerPace, TrainingBudget
from edgefront.core.schemas.trainings import TrainerView
from edgefront.core.services.stored import RowReader
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Training

LATEST = 20
"""Trainings, the latest, from which a pace is learnt."""


_ENDED = (
    Training.kind == TrainingKind.TRAINING,
    Training.state == TrainingState.DONE,
    Training.tokens > 0,
    Training.seconds > 0,
    Training.recipe["distil"].as_string().is_(None),  # its teacher takes most of the time
)


def ended_by(session: Session, owner: str, worker: str) -> list[Row[Any]]:
    """What the owner's latest trainings on a worker took, and of what, the newest first."""
    columns = (
        Training.architecture,
        Training.trained,  # with the vocabulary of its data; None of trainings that did not say
        Training.recipe["segment"].as_integer().label("segment"),
        Training.tokens,
        Training.seconds,
        Training.gpus,
        Training.recipe["precision"].as_string().label("precision"),
        Training.recipe["compile"].as_boolean().label("compile"),
    )
    readable = Training.recipe["segment"].as_integer().is_not(None)
    query = select(*columns).where(*_ENDED, readable, Training.owner == owner, Training.worker == worker)
    return [*session.execute(query.order_by(Training.finished_at.desc(), Training.id).limit(LATEST))]


def trainers(session: Session, owner: str) -> list[str]:
    """The workers that have trained a model of this owner to its end, by name."""
    of = (*_ENDED, Training.owner == owner, Training.worker.is_not(None))
    query = select(Training.worker).where(*of).distinct().order_by(Training.worker)
    return [worker for worker in session.scalars(query) if worker is not None]


Asked = TypeVar("Asked", bound=TrainingBudget)


def with_pace(session: Session, owner: str, asked: Asked) -> Asked:
    """The request with the pace of its trainer, if it asks for a time of training and names no pace.

    `InvalidInput` names the trainer where no training has ended there, with those whose pace is known.
    """
    time = asked.train_time
    if time is None or time.pace is not None:
        return asked
    ended = ended_by(session, owner, time.trainer)
    if not ended:
        others = ", ".join(trainers(session, owner))
        raise InvalidInput(
            f"train_time.trainer: no training has ended on a worker {time.trainer!r}, so its pace is unknown",
            field="train_time.trainer",
            value=time.trainer,
            allowed=others or "none yet: train a model in the pool first, or give train_tokens",
        )
    return asked.model_copy(update={"train_time": time.model_copy(update={"pace": _view(ended)})})


def list_trainers(database: Database, owner: str) -> list[TrainerView]:
    """The workers that have trained a model of this owner to its end, with their paces, by name."""
    with database.read() as session:
        ended = {name: ended_by(session, owner, name) for name in trainers(session, owner)}

    def can_be_read(each: Row[Any]) -> bool:
        return RowReader().read(lambda: Architecture.model_validate(each.trained or each.architecture)) is not None

    known = {name: [each for each in trainings if can_be_read(each)] for name, trainings in ended.items()}
    return [TrainerView(name=name, gpus=own[0].gpus, pace=_view(own)) for name, own in known.items() if own]


def _view(ended: Sequence[Row[Any]]) -> TrainerPace:
    """That of the trainings with as many GPUs, the precision and the compilation of the newest one."""
    how = attrgetter("gpus", "precision", "compile")
    alike = [training for training in ended if how(training) == how(ended[0])]
    described = [Architecture.model_validate(training.trained or training.architecture) for training in alike]
    flops = [
        float(flops_per_token(Shapes.of([architecture]), training.segment)[0])
        for architecture, training in zip(described, alike, strict=True)
    ]
    seconds = [training.seconds / training.tokens for training in alike]
    pace = Pace.fitted(flops, seconds, int(np.median([training.segment for training in alike])))
    return TrainerPace(
        seconds_per_token=pace.seconds_per_token,
        seconds_per_flop=pace.seconds_per_flop,
        segment=pace.segment,
        trainings=len(alike),
    )
