"""Migrations: what they build is what the tables say, on both databases, however many start at once."""

from __future__ import annotations

import io
import re
import uuid
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from concurrency import at_once
from databases import ON_BOTH, PostgresServer
from sqlalchemy import URL, Enum, String, inspect, literal, text, update
from sqlalchemy.exc import IntegrityError

from edgefront.core.common.errors import Conflict, InvalidInput, Unavailable
from edgefront.core.store.database import MIGRATIONS, Database
from edgefront.core.store.tables import Base, Device

ROOT = MIGRATIONS.parent


def _alembic(database: Database) -> Config:
    config = Config(str(ROOT / "alembic.ini"), stdout=io.StringIO())
    config.cmd_opts = None
    config.attributes["url"] = database.url.render_as_string(hide_password=False)
    return config


@ON_BOTH
def test_nothing_is_missing_from_the_migrations(database: Database) -> None:
    command.check(_alembic(database))
    database.check_schema()
    database.migrate()  # changes nothing
    assert set(inspect(database.engine).get_table_names()) == {*Base.metadata.tables, "alembic_version"}


@ON_BOTH
def test_no_other_state_can_be_stored(database: Database) -> None:
    """Alembic compares no CHECKs, and on SQLite a migration that rebuilds a table may lose them."""
    columns = [column for table in Base.metadata.sorted_tables for column in table.c if isinstance(column.type, Enum)]
    assert len(columns) >= 9
    for column in columns:
        (check,) = (
            constraint["sqltext"]
            for constraint in inspect(database.engine).get_check_constraints(column.table.name)
            if constraint["name"] == f"ck_{column.table.name}_{column.name}"
        )
        assert re.findall(r"'(\w+)'", check) == column.type.enums  # type: ignore[attr-defined]
    now = datetime.now(timezone.utc)
    device = Device(name="a", device_class="c", owner="o", facts={}, enrolled_at=now)
    with database.write() as session:
        session.add(device)
    retired = update(Device).values(state=literal("retired", String))
    with database.engine.begin() as connection, pytest.raises(IntegrityError, match="ck_device_state"):
        connection.execute(retired)


@ON_BOTH
def test_back_and_forth(database: Database) -> None:
    config = _alembic(database)
    command.downgrade(config, "base")
    assert inspect(database.engine).get_table_names() == ["alembic_version"]
    with pytest.raises(Unavailable, match="the database has the schema of no release"):
        database.check_schema()
    database.migrate()
    database.check_schema()


@ON_BOTH
@pytest.mark.parametrize("revision", ["0036", "9999"])
def test_a_database_of_another_release_is_refused_by_name(database: Database, revision: str) -> None:
    with database.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :it"), {"it": revision})
    before = inspect(database.engine).get_table_names()
    for refuse in (database.migrate, database.refuse_other_release):
        with pytest.raises(Conflict, match=f"another release made this database: its schema {revision} is unknown"):
            refuse()
    with database.engine.connect() as connection:
        assert connection.scalar(text("SELECT version_num FROM alembic_version")) == revision
    assert inspect(database.engine).get_table_names() == before
    with pytest.raises(Unavailable, match=f"the database has the schema {revision}, and this release needs 0"):
        database.check_schema()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_several_may_start_at_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, open_database: Callable[..., Database]
) -> None:
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path / 'new.db'}"
    else:
        url = request.getfixturevalue("postgres_url")
        command.downgrade(_alembic(open_database(url)), "base")
    database = open_database(url)
    at_once(*[database.migrate] * 4)
    database.check_schema()


def test_a_database_that_is_not_in_utf_8_is_refused_by_name(
    postgres_server: URL, open_database: Callable[..., Database]
) -> None:
    server, name = PostgresServer(postgres_server), f"edgefront_test_{uuid.uuid4().hex[:12]}"
    with server.connect() as connection:
        connection.execute(f"CREATE DATABASE \"{name}\" ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0".encode())
    try:
        database = open_database(server.url_of(name).replace("postgresql+psycopg://", "postgres://"))
        with pytest.raises(InvalidInput, match="the encoding SQL_ASCII, and must have UTF8"):
            database.migrate()
        database.dispose()
    finally:
        server.drop(name)
