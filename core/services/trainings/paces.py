"""Training speed of each worker machine, fitted to the trainings that have ended on this worker."""

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
from edgefront.core.schemas.jobs import PredictionBudget, TrainerPace
from edgefront.core.schemas.trainings import TrainerView
from edgefront.core.services.stored import RowReader
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Training

LATEST = 20
"""Number of latest trainings to which a training speed is fitted."""

Budget = TypeVar("Budget", bound=PredictionBudget)

_ENDED = (
    Training.kind == TrainingKind.TRAINING,
    Training.state == TrainingState.DONE,
    Training.tokens > 0,
    Training.seconds > 0,
    Training.recipe["distil"].as_string().is_(None),  # with a teacher, the teacher takes most of the time
)


def ended_by(session: Session, owner: str, worker: str) -> list[Row[Any]]:
    """Returns architecture, recipe, tokens and seconds of an owner's latest trainings on a worker, newest first."""
    columns = (
        Training.architecture,
        Training.trained,  # the architecture with the vocabulary of its data; may be None
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
    """Names of the workers on which a training of this owner has ended, in alphabetical order."""
    own = (*_ENDED, Training.owner == owner, Training.worker.is_not(None))
    query = select(Training.worker).where(*own).distinct().order_by(Training.worker)
    return [worker for worker in session.scalars(query) if worker is not None]


def with_pace(session: Session, owner: str, budget: Budget) -> Budget:
    """Returns the training budget, and adds the speed of its trainer (a worker) if only a training time is given.

    Raises `InvalidInput` if no training has ended on the trainer; the error lists trainers with a known speed.
    """
    time = budget.train_time
    if time is None or time.pace is not None:
        return budget
    ended = ended_by(session, owner, time.trainer)
    if not ended:
        others = ", ".join(trainers(session, owner))
        raise InvalidInput(
            f"train_time.trainer: no training has ended on a worker {time.trainer!r}, so its pace is unknown",
            field="train_time.trainer",
            value=time.trainer,
            allowed=others or "none yet: train a model in the pool first, or give train_tokens",
        )
    return budget.model_copy(update={"train_time": time.model_copy(update={"pace": _view(ended)})})


def list_trainers(database: Database, owner: str) -> list[TrainerView]:
    """Returns the workers on which a training of this owner has ended, with their training speeds, ordered by name."""
    with database.read() as session:
        ended = {name: ended_by(session, owner, name) for name in trainers(session, owner)}

    def is_readable(row: Row[Any]) -> bool:
        return RowReader().read(lambda: Architecture.model_validate(row.trained or row.architecture)) is not None

    readable = {name: [row for row in rows if is_readable(row)] for name, rows in ended.items()}
    return [TrainerView(name=name, gpus=rows[0].gpus, pace=_view(rows)) for name, rows in readable.items() if rows]


def _view(ended: Sequence[Row[Any]]) -> TrainerPace:
    """Speed of the trainings with the same number of GPUs, precision and compilation as the newest training."""
    setup = attrgetter("gpus", "precision", "compile")
    rows = [row for row in ended if setup(row) == setup(ended[0])]
    architectures = [Architecture.model_validate(row.trained or row.architecture) for row in rows]
    flops = [
        float(flops_per_token(Shapes.of([architecture]), row.segment)[0])
        for architecture, row in zip(architectures, rows, strict=True)
    ]
    seconds = [row.seconds / row.tokens for row in rows]
    pace = Pace.fitted(flops, seconds, int(np.median([row.segment for row in rows])))
    return TrainerPace(
        seconds_per_token=pace.seconds_per_token,
        seconds_per_flop=pace.seconds_per_flop,
        segment=pace.segment,
        trainings=len(rows),
    )
