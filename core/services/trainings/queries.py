"""Queries on trainings, their metrics and their scores."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, false, func, literal, or_, select, true, tuple_
from sqlalchemy.orm import Session

from edgefront.core.common.states import LIVE_TRAININGS, MEASURED_CANDIDATES, TrainingKind, TrainingState
from edgefront.core.services.turns import TurnQueue, next_turns
from edgefront.core.store import sql
from edgefront.core.store.clock import MAX_TTL, over
from edgefront.core.store.sql import Document, any_of
from edgefront.core.store.tables import Candidate, Evaluation, Job, Target, Training, TrainingMetric, new_id

_MEASURED = 16
"""Maximum number of measurements on a model card."""
_BATCH = 500
"""Maximum number of rows per statement."""


def find(session: Session, training_id: str) -> Training | None:
    return session.get(Training, training_id)


def find_by_key(session: Session, owner: str, idempotency_key: str) -> list[Training]:
    """Returns the trainings of the request with this key, in the order of the request's architectures."""
    query = select(Training).where(Training.owner == owner, Training.idempotency_key == idempotency_key)
    return list(session.scalars(query.order_by(Training.position)))


def find_import(session: Session, owner: str, import_digest: str) -> Training | None:
    """Returns the owner's import of the same weights and tokenizer; None if there is none."""
    query = select(Training).where(Training.owner == owner, Training.import_digest == import_digest)
    return session.scalar(query)


def lock(session: Session, training_id: str) -> Training | None:
    query = select(Training).where(Training.id == training_id).with_for_update(key_share=True)
    return session.scalar(query.execution_options(populate_existing=True))


def supernet_of(session: Session, target_id: str) -> Training | None:
    """Returns the latest supernet of a target's search; None if there is none."""
    query = select(Training).where(Training.target_id == target_id, Training.kind == TrainingKind.SUPERNET)
    return session.scalar(query.order_by(Training.id.desc()).limit(1))


def open_supernets(session: Session, target_ids: Collection[str]) -> list[Training]:
    """Returns and locks the supernets of these targets that have not ended."""
    query = (
        select(Training)
        .where(
            any_of(Training.target_id, target_ids),
            Training.kind == TrainingKind.SUPERNET,
            Training.state.in_((*LIVE_TRAININGS, "queued", "paused")),
        )
        .order_by(Training.id)
        .with_for_update(key_share=True)
    )
    return list(session.scalars(query.execution_options(populate_existing=True)))


def remove(session: Session, training_id: str) -> None:
    """Deletes the training with its log. The model's scores stay, under the architecture's digest."""
    session.execute(
        delete(Training).where(Training.id == training_id), execution_options={"synchronize_session": False}
    )
    session.expire_all()


def claimed_by(session: Session, worker: str) -> list[Row[Any]]:
    """Returns `device`, `gpu_numbers` and `memory_bytes` (None: not stated) of each training that the worker has
    claimed.
    """
    query = select(Training.device, Training.gpu_numbers, Training.memory_bytes)
    query = query.where(Training.worker == worker, Training.state.in_(LIVE_TRAININGS))
    return [*session.execute(query)]


def claimable(session: Session, queue: str, memory: Mapping[int, int]) -> Training | None:
    """Returns and locks the queue's next training that needs no more than `memory`; skips locked rows. `memory`: number
    of GPUs (0 for the CPU) → bytes per GPU (or of the host) that a training with so many GPUs may use.
    """
    needed = func.coalesce(Training.memory_bytes, 0)
    query = (
        select(Training)
        .where(
            Training.state == TrainingState.QUEUED,
            Training.queue == queue,
            or_(false(), *((Training.gpus == gpus) & (needed <= max(0, size)) for gpus, size in memory.items())),
        )
        .order_by(Training.turn, Training.id)
        .limit(1)
        .with_for_update(skip_locked=True, key_share=True)
    )
    return session.scalar(query.execution_options(populate_existing=True))


def take_turn(session: Session, training: Training) -> None:
    """Assigns the training its turn in its queue (`services.turns`)."""
    in_queue = Training.queue == training.queue
    queue = TurnQueue(
        Training,
        waiting=(Training.state == TrainingState.QUEUED, in_queue),
        served=(Training.state.in_(LIVE_TRAININGS), in_queue),
    )
    with session.no_autoflush:
        (training.turn,) = next_turns(session, queue, Training.owner == training.owner, 1)
    session.flush()


def expired(session: Session, now: datetime) -> list[Training]:
    """Returns and locks the trainings whose lease has expired."""
    query = (
        select(Training)
        .where(Training.state.in_(LIVE_TRAININGS), over(Training.lease_expires_at, now, MAX_TTL))
        .order_by(Training.id)
        .with_for_update(skip_locked=True, key_share=True)
    )
    return list(session.scalars(query.execution_options(populate_existing=True)))


def count_ahead(session: Session, training: Training) -> int:
    """Number of waiting trainings ahead of this training in its queue."""
    own = tuple_(literal(training.turn), literal(training.id))
    query = select(func.count()).where(
        Training.state == TrainingState.QUEUED,
        Training.queue == training.queue,
        tuple_(Training.turn, Training.id) < own,
    )
    return session.scalar(query) or 0


def measured(session: Session, candidate_ids: Collection[str]) -> dict[str, tuple[Candidate, Target]]:
    """Returns candidate id → (candidate, target of the candidate)."""
    if not candidate_ids:
        return {}
    query = select(Candidate, Target).join(Target, Target.id == Candidate.target_id)
    rows = session.execute(query.where(any_of(Candidate.id, candidate_ids)))
    return {row[0].id: (row[0], row[1]) for row in rows}


def measured_as(session: Session, owner: str, digest: str) -> list[tuple[Candidate, Target]]:
    """Returns the owner's measured candidates with this architecture, one per target of a job, newest first."""
    query = (
        select(Candidate, Target)
        .join(Target, Target.id == Candidate.target_id)
        .join(Job, Job.id == Target.job_id)
        .where(Job.owner == owner, Candidate.digest == digest, Candidate.state.in_(MEASURED_CANDIDATES))
        .order_by(Candidate.id.desc())
        .limit(_MEASURED)
    )
    by_candidate = {row[1].id: (row[0], row[1]) for row in session.execute(query)}
    return list(by_candidate.values())


def frontier(session: Session, target_id: str) -> list[Candidate]:
    """Returns the candidates on the frontier of a target, by rising number of decoder parameters."""
    members = session.scalars(
        select(Candidate).where(Candidate.target_id == target_id, Candidate.on_frontier == true())
    )
    # Sorted in Python, because SQLite would read all candidates in the order of an index.
    return sorted(members, key=lambda row: (row.decoder_parameters, row.number))


def metrics(
    session: Session, training_id: str, *, after: int = -1, limit: int | None = None
) -> list[tuple[int, Document]]:
    """Returns the steps above `after` with their metrics, ordered by step."""
    query = select(TrainingMetric.step, TrainingMetric.data).where(
        TrainingMetric.training_id == training_id, TrainingMetric.step > after
    )
    return [(row.step, row.data) for row in session.execute(query.order_by(TrainingMetric.step).limit(limit))]


def metrics_at(session: Session, training_id: str, steps: Collection[int]) -> dict[int, Document]:
    """Returns step → stored metrics. Reads one range, because the steps of one report lie close together."""
    if not steps:
        return {}
    query = select(TrainingMetric.step, TrainingMetric.data).where(TrainingMetric.training_id == training_id)
    rows = session.execute(query.where(TrainingMetric.step.between(min(steps), max(steps))))
    return {row.step: row.data for row in rows if row.step in steps}


def put_metrics(session: Session, training_id: str, metrics: Sequence[Document]) -> None:
    """Inserts or replaces the metrics of these steps."""
    for start in range(0, len(metrics), _BATCH):
        rows = [
            {"training_id": training_id, "step": metric["step"], "data": dict(metric)}
            for metric in metrics[start : start + _BATCH]
        ]
        statement = sql.upsert(session, TrainingMetric).values(rows)
        session.execute(
            statement.on_conflict_do_update(
                index_elements=["training_id", "step"], set_={"data": statement.excluded.data}
            )
        )


def remove_metrics(session: Session, training_id: str, steps: Sequence[int]) -> None:
    for start in range(0, len(steps), _BATCH):
        session.execute(
            delete(TrainingMetric).where(
                TrainingMetric.training_id == training_id, TrainingMetric.step.in_(steps[start : start + _BATCH])
            ),
            execution_options={"synchronize_session": False},
        )


def save_evaluations(session: Session, rows: Sequence[Document]) -> None:
    """Inserts evaluations, or replaces a training's evaluation of the same data set, split and metric."""
    for row in rows:
        statement = sql.upsert(session, Evaluation).values(id=new_id("evl"), **row)
        session.execute(
            statement.on_conflict_do_update(
                index_elements=["training_id", "dataset", "split", "metric"],
                set_={name: row[name] for name in ("value", "details", "created_at", "digest", "recipe_key")},
            )
        )


def evaluations_of(session: Session, training_ids: Collection[str]) -> dict[str, list[Evaluation]]:
    """Returns training id → evaluations, sorted by data set, split and metric."""
    by_training: dict[str, list[Evaluation]] = {training_id: [] for training_id in training_ids}
    query = select(Evaluation).where(any_of(Evaluation.training_id, training_ids))
    for row in session.scalars(query.order_by(Evaluation.dataset, Evaluation.split, Evaluation.metric)):
        by_training[str(row.training_id)].append(row)
    return by_training
