"""Queries on the metrics and scores of trainings."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from edgefront.core.store import sql
from edgefront.core.store.sql import Document, any_of
from edgefront.core.store.tables import Evaluation, TrainingMetric, new_id

_AT_ONCE = 500


def metrics(
    session: Session, training_id: str, *, after: int = -1, limit: int | None = None
) -> list[tuple[int, Document]]:
    """Steps above `after` with their reports, in order."""
    query = select(TrainingMetric.step, TrainingMetric.data).where(
        TrainingMetric.training_id == training_id, TrainingMetric.step > after
    )
    return [(row.step, row.data) for row in session.execute(query.order_by(TrainingMetric.step).limit(limit))]


def metrics_at(session: Session, training_id: str, steps: Collection[int]) -> dict[int, Document]:
    """Step → the report that is stored for it. `steps` are of one report, so few others lie between them."""
    if not steps:
        return {}
    query = select(TrainingMetric.step, TrainingMetric.data).where(TrainingMetric.training_id == training_id)
    rows = session.execute(query.where(TrainingMetric.step.between(min(steps), max(steps))))
    return {row.step: row.data for row in rows if row.step in steps}


def put_metrics(session: Session, training_id: str, reports: Sequence[Document]) -> None:
    """Writes reports by their step; an existing one is replaced."""
    for start in range(0, len(reports), _AT_ONCE):
        rows = [
            {"training_id": training_id, "step": report["step"], "data": dict(report)}
            for report in reports[start : start + _AT_ONCE]
        ]
        statement = sql.upsert(session, TrainingMetric).values(rows)
        session.execute(
            statement.on_conflict_do_update(
                index_elements=["training_id", "step"], set_={"data": statement.excluded.data}
            )
        )


def remove_metrics(session: Session, training_id: str, steps: Sequence[int]) -> None:
    for start in range(0, len(steps), _AT_ONCE):
        session.execute(
            delete(TrainingMetric).where(
                TrainingMetric.training_id == training_id, TrainingMetric.step.in_(steps[start : start + _AT_ONCE])
            ),
            execution_options={"synchronize_session": False},
        )


def save_evaluations(session: Session, rows: Sequence[Document]) -> None:
    """Writes scores; the same score of the same training is replaced."""
    for row in rows:
        statement = sql.upsert(session, Evaluation).values(id=new_id("evl"), **row)
        session.execute(
            statement.on_conflict_do_update(
                index_elements=["training_id", "dataset", "split", "metric"],
                set_={name: row[name] for name in ("value", "details", "created_at", "digest", "recipe_key")},
            )
        )


def evaluations_of(session: Session, training_ids: Collection[str]) -> dict[str, list[Evaluation]]:
    """Training id → its scores, in the order of data set, split and metric."""
    by_training: dict[str, list[Evaluation]] = {training_id: [] for training_id in training_ids}
    query = select(Evaluation).where(any_of(Evaluation.training_id, training_ids))
    for row in session.scalars(query.order_by(Evaluation.dataset, Evaluation.split, Evaluation.metric)):
        by_training[str(row.training_id)].append(row)
    return by_training
