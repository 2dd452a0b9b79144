"""Queries on trainings: by owner, by queue, by worker."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, false, func, literal, or_, select, true, tuple_
from sqlalchemy.orm import Session

from edgefront.core.common.states import LIVE_TRAININGS, MEASURED_CANDIDATES, TrainingKind, TrainingState
from edgefront.core.services.turns import TurnQueue, next_turns
from edgefront.core.store.clock import MAX_TTL, over
from edgefront.core.store.sql import any_of
from edgefront.core.store.tables import Candidate, Job, Target, Training

_MEASURED = 16
"""Measurements that a model card lists at most."""


def find(session: Session, training_id: str) -> Training | None:
    return session.get(Training, training_id)


def find_by_key(session: Session, owner: str, idempotency_key: str) -> list[Training]:
    """The trainings of one request, in order."""
    query = select(Training).where(Training.owner == owner, Training.idempotency_key == idempotency_key)
    return list(session.scalars(query.order_by(Training.position)))


def find_import(session: Session, owner: str, import_digest: str) -> Training | None:
    """The owner's import of these weights and this tokenizer."""
    query = select(Training).where(Training.owner == owner, Training.import_digest == import_digest)
    return session.scalar(query)


def lock(session: Session, training_id: str) -> Training | None:
    query = select(Training).where(Training.id == training_id).with_for_update(key_share=True)
    return session.scalar(query.execution_options(populate_existing=True))


def supernet_of(session: Session, target_id: str) -> Training | None:
    """The supernet of a target's search; the last one if there were several."""
    query = select(Training).where(Training.target_id == target_id, Training.kind == TrainingKind.SUPERNET)
    return session.scalar(query.order_by(Training.id.desc()).limit(1))


def open_supernets(session: Session, target_ids: Collection[str]) -> list[Training]:
    """The supernets of these targets that have not ended, locked."""
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
    """Deletes the training with its log; its scores are kept with the digest."""
    session.execute(
        delete(Training).where(Training.id == training_id), execution_options={"synchronize_session": False}
    )
    session.expire_all()


def held_by(session: Session, worker: str) -> list[Row[Any]]:
    """Device, numbers of GPUs, and bytes of memory (None: it does not say) of each training that the worker holds."""
    query = select(Training.device, Training.gpu_numbers, Training.memory_bytes)
    query = query.where(Training.worker == worker, Training.state.in_(LIVE_TRAININGS))
    return [*session.execute(query)]


def claimable(session: Session, queue: str, memory: Mapping[int, int]) -> Training | None:
    """The next waiting training of the queue that fits, locked; rows that others have locked are skipped. `memory`:
    number of GPUs (0 without any) → bytes that a training with so many may need, on each.
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
    """Gives the training its turn in its queue (`services.turns`)."""
    there = Training.queue == training.queue
    queue = TurnQueue(
        Training,
        waiting=(Training.state == TrainingState.QUEUED, there),
        served=(Training.state.in_(LIVE_TRAININGS), there),
    )
    with session.no_autoflush:
        (training.turn,) = next_turns(session, queue, Training.owner == training.owner, 1)
    session.flush()


def expired(session: Session, now: datetime) -> list[Training]:
    """Trainings whose lease has expired, locked."""
    query = (
        select(Training)
        .where(Training.state.in_(LIVE_TRAININGS), over(Training.lease_expires_at, now, MAX_TTL))
        .order_by(Training.id)
        .with_for_update(skip_locked=True, key_share=True)
    )
    return list(session.scalars(query.execution_options(populate_existing=True)))


def ahead_of(session: Session, training: Training) -> int:
    """How many trainings of the queue come before this one, of those that wait now."""
    place = tuple_(literal(training.turn), literal(training.id))
    query = select(func.count()).where(
        Training.state == TrainingState.QUEUED,
        Training.queue == training.queue,
        tuple_(Training.turn, Training.id) < place,
    )
    return session.scalar(query) or 0


def measured(session: Session, candidate_ids: Collection[str]) -> dict[str, tuple[Candidate, Target]]:
    """Candidate id → the candidate, with its target."""
    if not candidate_ids:
        return {}
    query = select(Candidate, Target).join(Target, Target.id == Candidate.target_id)
    rows = session.execute(query.where(any_of(Candidate.id, candidate_ids)))
    return {row[0].id: (row[0], row[1]) for row in rows}


def measured_as(session: Session, owner: str, digest: str) -> list[tuple[Candidate, Target]]:
    """An owner's measured candidates of exactly this architecture, one for each target, the newest first."""
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


def candidates_there(session: Session, candidate_ids: Collection[str]) -> set[str]:
    return set(session.scalars(select(Candidate.id).where(any_of(Candidate.id, candidate_ids))))


def frontier(session: Session, target_id: str) -> list[Candidate]:
    """The frontier of a target by rising decoder parameters, from which trainings can be chosen."""
    members = session.scalars(
        select(Candidate).where(Candidate.target_id == target_id, Candidate.on_frontier == true())
    )
    # SQLite would read all candidates in the order of an index, instead of sorting the few.
    return sorted(members, key=lambda row: (row.decoder_parameters, row.number))
