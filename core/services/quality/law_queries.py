"""Queries on versions of quality laws, and on the trainings that they are fitted to."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.orm import Session

from edgefront.core.states import TrainingKind, TrainingState
from edgefront.core.store.sql import Document, any_of, typed
from edgefront.core.store.tables import Evaluation, LawVersion, Training, TrainingMetric, WantedRefit

SPLIT = "valid"
"""The split whose perplexity laws predict: the one that the tables of the included laws have."""


class TrainedModel(NamedTuple):
    """A training that ended with a perplexity."""

    evaluation_id: str
    training_id: str
    digest: str
    architecture: Document
    perplexity: float
    dataset: str
    dataset_digest: str | None
    recipe: Document
    budget: Document
    tokens: int
    """Tokens that it was trained on."""


class CurvePoint(NamedTuple):
    """An evaluation on the validation split during a training."""

    tokens: int
    loss: float


def trained_alike(session: Session, key: str) -> list[TrainedModel]:
    """The trainings of one comparability key (data, recipe and budget), by digest."""
    columns = (
        Evaluation.id.label("evaluation_id"),
        Training.id.label("training_id"),
        Training.digest,
        Training.architecture,
        Evaluation.value.label("perplexity"),
        Training.dataset,
        Training.dataset_digest,
        Training.recipe,
        Training.budget,
        Training.tokens,
    )
    query = select(*columns).join(Training, _OF_TRAINING).where(*_alike(key)).order_by(*_ORDER)
    return typed(TrainedModel, session.execute(query))


def curves(session: Session, trainings: Collection[str]) -> dict[str, list[CurvePoint]]:
    """The learning curves of these trainings, by training, each by rising step."""
    query = (
        select(TrainingMetric.training_id, TrainingMetric.data)
        .where(any_of(TrainingMetric.training_id, trainings))
        .order_by(TrainingMetric.training_id, TrainingMetric.step)
    )
    by_training: dict[str, list[CurvePoint]] = {}
    for training_id, data in session.execute(query):
        if data.get("valid_loss") is not None:
            by_training.setdefault(training_id, []).append(CurvePoint(data["tokens"], data["valid_loss"]))
    return by_training


def scores_alike(session: Session, key: str) -> list[tuple[str, float]]:
    """Evaluation id and perplexity of the same trainings: all of them that could have changed."""
    query = select(Evaluation.id, Evaluation.value).join(Training, _OF_TRAINING).where(*_alike(key))
    return [(id_, value) for id_, value in session.execute(query.order_by(*_ORDER))]


_OF_TRAINING = Training.id == Evaluation.training_id
_ORDER = (Training.digest, Evaluation.id)


def _alike(key: str) -> tuple[ColumnElement[bool], ...]:
    """What holds of the trainings of this comparability key that have ended, and of their perplexity."""
    return (
        Evaluation.metric == "perplexity",
        Evaluation.split == SPLIT,
        Evaluation.details["comparability_key"].as_string() == key,
        Training.kind == TrainingKind.TRAINING,
        Training.state == TrainingState.DONE,
        Training.digest.is_not(None),
    )


def lock_wanted(session: Session, key: str) -> WantedRefit | None:
    query = select(WantedRefit).where(WantedRefit.comparability_key == key).with_for_update()
    return session.scalar(query.execution_options(populate_existing=True))


def no_longer_wanted(session: Session, key: str) -> None:
    session.execute(
        delete(WantedRefit).where(WantedRefit.comparability_key == key),
        execution_options={"synchronize_session": False},
    )


def wanted_before(session: Session, before: datetime) -> list[str]:
    query = (
        select(WantedRefit.comparability_key)
        .where(WantedRefit.wanted_at < before)
        .order_by(WantedRefit.comparability_key)
    )
    return list(session.scalars(query))


def rows_digests(session: Session, key: str) -> set[tuple[str, str]]:
    """Name and digest of the rows of every version of this comparability key."""
    query = select(LawVersion.name, LawVersion.rows_digest).where(LawVersion.comparability_key == key)
    return {(row.name, row.rows_digest) for row in session.execute(query)}


def newest_version(session: Session, name: str) -> int:
    """0 if there is none."""
    return session.scalar(select(func.max(LawVersion.version)).where(LawVersion.name == name)) or 0


def find(session: Session, name: str, version: int | None) -> LawVersion | None:
    """This version of a law, or its newest."""
    query = select(LawVersion).where(LawVersion.name == name)
    if version is not None:
        query = query.where(LawVersion.version == version)
    return session.scalar(query.order_by(LawVersion.version.desc()).limit(1))


def refined(session: Session) -> list[tuple[str, int]]:
    """Name and newest version of each law that trainings have refined, by name: without those of models' cuts."""
    query = select(LawVersion.name, func.max(LawVersion.version)).where(LawVersion.base != "")
    return [
        (name, version) for name, version in session.execute(query.group_by(LawVersion.name).order_by(LawVersion.name))
    ]


def newest(session: Session, base: str | None = None) -> list[LawVersion]:
    """The newest version of each law by name; of those with this base alone, if given."""
    last = select(LawVersion.name, func.max(LawVersion.version).label("version")).group_by(LawVersion.name).subquery()
    query = select(LawVersion).join(last, (LawVersion.name == last.c.name) & (LawVersion.version == last.c.version))
    if base is not None:
        query = query.where(LawVersion.base == base)
    return list(session.scalars(query.order_by(LawVersion.name)))
