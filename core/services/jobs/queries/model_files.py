"""Queries on artifacts."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from edgefront.core.store.tables import Artifact


def find(session: Session, digest: str, seed: int, format_: str) -> Artifact | None:
    return session.scalar(
        select(Artifact).where(Artifact.digest == digest, Artifact.seed == seed, Artifact.format == format_)
    )


def save(
    session: Session, digest: str, seed: int, format_: str, *, path: str, size: int, sha256: str, now: datetime
) -> None:
    """Records a file, replacing an earlier record."""
    dialect = sqlite if session.get_bind().dialect.name == "sqlite" else postgresql
    values = {"path": path, "size": size, "sha256": sha256, "created_at": now}
    statement = dialect.insert(Artifact).values(digest=digest, seed=seed, format=format_, **values)
    session.execute(statement.on_conflict_do_update(index_elements=["digest", "seed", "format"], set_=values))
