"""Alembic's environment: migrates the connection it is given, else the database of the service's settings."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext
from sqlalchemy import JSON, Connection

from edgefront.core.common.errors import EdgefrontError
from edgefront.core.services.settings import Settings
from edgefront.core.store.availability import unavailable_when_away
from edgefront.core.store.database import WRITE, make_engine, parse_url
from edgefront.core.store.tables import Base
from edgefront.core.store.tables.base import UtcDateTime


def render_item(kind: str, item: Any, _context: AutogenContext) -> str | Literal[False]:
    """Renders dialect-specific types by the names in `script.py.mako`, so that migrations import no project code."""
    if kind == "type" and isinstance(item, UtcDateTime):
        return "UTC"
    if kind == "type" and isinstance(item, JSON):
        return "JSON"
    return False


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_item=render_item,
        render_as_batch=True,  # SQLite alters a table by rebuilding it
        transactional_ddl=True,
        compare_type=True,
        compare_server_default=True,
    )
    with context.begin_transaction():
        context.run_migrations()


def run_on_settings() -> None:
    option = context.config.attributes.get("url") or context.get_x_argument(as_dictionary=True).get("url")
    url = option or Settings().database_url
    engine = make_engine(parse_url(url), pool_size=1, migrating=True).execution_options(**{WRITE: True})
    with unavailable_when_away(), engine.begin() as connection:
        run(connection)
    engine.dispose()


_connection = context.config.attributes.get("connection")
if _connection is not None:
    run(_connection)
else:
    try:
        run_on_settings()
    except EdgefrontError as error:
        raise SystemExit(error.detail) from None
