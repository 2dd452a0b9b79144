"""Queries on artifacts."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from edgefront.core.store import sql
from edgefront.core.store.sql import any_of
from edgefront.core.store.tables import Artifact


def find(session: Session, digest: str, seed: int, format_: str) -> Artifact | None:
    return session.scalar(
        select(Artifact).where(Artifact.digest == digest, Artifact.seed == seed, Artifact.format == format_)
    )


def oldest_beyond(session: Session, most: int, but: str) -> list[Artifact]:
    """The oldest files, without which all have at most so many bytes together; never the one with the path `but`."""
    excess = int(session.scalar(select(func.sum(Artifact.size))) or 0) - most
    oldest: list[Artifact] = []
    if excess > 0:
        others = select(Artifact).where(Artifact.path != but).order_by(Artifact.created_at, Artifact.id)
        for row in session.scalars(others):
            if excess <= 0:
                break
            oldest.append(row)
            excess -= row.size
    return oldest


def forget(session: Session, ids: Collection[str]) -> None:
    session.execute(delete(Artifact).where(any_of(Artifact.id, ids)))


def save(
    session: Session, digest: str, seed: int, format_: str, *, path: str, size: int, sha256: str, now: datetime
) -> None:
    """Records a file, replacing an earlier record."""
    values = {"path": path, "size": size, "sha256": sha256, "created_at": now}
    statement = sql.upsert(session, Artifact).values(digest=digest, seed=seed, format=format_, **values)
    session.execute(statement.on_conflict_do_update(index_elements=["digest", "seed", "format"], set_=values))
