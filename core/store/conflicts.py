"""INSERTs that say what happens where the row is there already: each database has its own statement for that."""

from __future__ import annotations

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from edgefront.core.store.tables import Base


def insert(session: Session, table: type[Base]) -> postgresql.Insert | sqlite.Insert:
    """An INSERT of the session's database, with `on_conflict_do_nothing` and `on_conflict_do_update`."""
    return sqlite.insert(table) if session.get_bind().dialect.name == "sqlite" else postgresql.insert(table)
