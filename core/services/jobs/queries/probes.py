"""Queries on probes, their trainings, and what the pool trained before."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.orm import Session

from edgefront.core.services.quality.law_queries import SPLIT
from edgefront.core.states import TrainingState
from edgefront.core.store.sql import any_of
from edgefront.core.store.tables import Evaluation, LawVersion, Probe, Training, WantedRefit


def find_by_key(session: Session, owner: str, idempotency_key: str) -> Probe | None:
    return session.scalar(select(Probe).where(Probe.owner == owner, Probe.idempotency_key == idempotency_key))


def newest(session: Session, job_id: str) -> Probe | None:
    query = select(Probe).where(Probe.job_id == job_id).order_by(Probe.created_at.desc(), Probe.id.desc()).limit(1)
    return session.scalar(query.execution_options(populate_existing=True))


def open_probes(session: Session) -> list[Probe]:
    """Probes whose job is still to be moved, the oldest first."""
    return list(session.scalars(select(Probe).where(Probe.finished_at.is_(None)).order_by(Probe.id)))


def read_open(session: Session, probe_id: str) -> Probe | None:
    """Reads the probe as it is now, under the job's lock."""
    query = select(Probe).where(Probe.id == probe_id, Probe.finished_at.is_(None))
    return session.scalar(query.execution_options(populate_existing=True))


def trainings(session: Session, ids: Collection[str]) -> dict[str, Training]:
    """Id → training; those that were deleted are missing."""
    query = select(Training).where(any_of(Training.id, ids)).execution_options(populate_existing=True)
    return {training.id: training for training in session.scalars(query)}


def comparability_keys(session: Session, training_ids: Collection[str]) -> list[tuple[str, str]]:
    """Id and comparability key of the trainings that ended with a perplexity from which laws are learnt."""
    query = (
        select(Training.id, Evaluation.details["comparability_key"].as_string())
        .join(Training, Training.id == Evaluation.training_id)
        .where(
            any_of(Training.id, training_ids),
            Training.state == TrainingState.DONE,
            Evaluation.metric == "perplexity",
            Evaluation.split == SPLIT,
        )
        .order_by(Training.id)
    )
    return [(row[0], row[1]) for row in session.execute(query)]


def is_refit_wanted(session: Session, key: str) -> bool:
    return session.scalar(select(WantedRefit.comparability_key).where(WantedRefit.comparability_key == key)) is not None


def newest_law(session: Session, key: str, base: str) -> LawVersion | None:
    """The newest version that trainings of this comparability key have refined from this law."""
    query = select(LawVersion).where(LawVersion.comparability_key == key, LawVersion.base == base)
    return session.scalar(query.order_by(LawVersion.version.desc()).limit(1))
