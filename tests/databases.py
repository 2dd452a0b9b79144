"""Databases for hundreds of tests: nothing of one test is left to the next, and nobody waits for the disk.

To make and drop a Postgres database takes most of a second, and a commit that must survive a power cut takes
milliseconds. No test cuts the power, so commits do not wait, SQLite's files lie in memory where there is room, and one
Postgres database is emptied after each test.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import URL, event

from edgefront.core.store.database import Database
from edgefront.core.store.tables import Base

ON_BOTH = pytest.mark.parametrize("database_url", ["sqlite", "postgres"], indirect=True)
"""Of a test that is about locks or what happens at once, or sends Postgres a statement that no other sends there."""

_MEMORY = Path("/dev/shm")
_ROOM = 256 << 20
_USES = 25  # rows that were deleted stay in the way of scans; nothing cleans up behind a test's back, for steadiness

_SCHEMA = """
SELECT string_agg(line, E'\\n' ORDER BY line) || (SELECT string_agg(version_num, ',') FROM alembic_version) FROM (
    SELECT format('%s %s %s %s', relname, attname, format_type(atttypid, atttypmod), attnotnull) AS line
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
    WHERE relnamespace = 'public'::regnamespace AND attnum > 0
    UNION ALL
    SELECT format('%s %s', conname, pg_get_constraintdef(oid))
    FROM pg_constraint WHERE connamespace = 'public'::regnamespace
) AS lines
"""
_OTHERS = "datname = current_database() AND pid <> pg_backend_pid() AND usename = current_user"
_RESTART = (
    "SELECT setval(oid::regclass, 1, false) FROM pg_class WHERE relkind = 'S' AND relnamespace = 'public'::regnamespace"
)


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    """The statements that are executed within the block."""
    seen: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "alembic_version" not in statement:  # the check of the schema, once a second
            seen.append(statement)

    event.listen(database.engine, "before_cursor_execute", note)
    yield seen
    event.remove(database.engine, "before_cursor_execute", note)


def migrate(url: str) -> None:
    database = Database(url)
    database.migrate()
    database.dispose()


@contextmanager
def folder_in_memory(otherwise: Path) -> Iterator[Path]:
    """A folder that no disk holds up, removed at the end; `otherwise` where the system has no room for one."""
    if not (_MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _ROOM):
        yield otherwise
        return
    with tempfile.TemporaryDirectory(prefix="edgefront-tests-", dir=_MEMORY, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


class PostgresServer:
    """A server on which databases are made, by name."""

    def __init__(self, url: URL) -> None:
        self._url = url

    def url_of(self, name: str) -> str:
        return self._url.set(database=name).render_as_string(hide_password=False)

    def connect(self, name: str | None = None) -> psycopg.Connection[Any]:
        url = self._url.set(drivername="postgresql", database=name or self._url.database)
        return psycopg.connect(url.render_as_string(hide_password=False), autocommit=True)

    def create(self, name: str, template: str | None = None) -> str:
        with self.connect() as connection:
            source = f' TEMPLATE "{template}"' if template else ""
            connection.execute(f'CREATE DATABASE "{name}"{source}'.encode())
            connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off'.encode())
        return name

    def create_template(self) -> str:
        """A migrated, empty database to clone."""
        name = self.create(f"edgefront_test_{uuid.uuid4().hex[:12]}")
        migrate(self.url_of(name))
        with self.connect(name) as connection:
            for table in Base.metadata.tables:
                connection.execute(f'ALTER TABLE "{table}" SET (autovacuum_enabled = false)'.encode())
        return name

    def drop(self, name: str) -> None:
        with self.connect() as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())


class EmptyDatabase:
    """One Postgres database that is empty whenever `name` is read: cloned when needed, emptied by `clear`."""

    def __init__(self, server: PostgresServer, template: str) -> None:
        self._server = server
        self._template = template
        self._name: str | None = None
        self._uses = 0
        with server.connect(template) as connection:
            self._schema = _value(connection, _SCHEMA)

    @property
    def name(self) -> str:
        if self._name is None:
            self._name = self._server.create(f"{self._template}_{uuid.uuid4().hex[:8]}", self._template)
            self._uses = 0
        return self._name

    def clear(self) -> None:
        """Ends every connection and deletes every row; the next use gets a new clone if the schema was changed."""
        if self._name is None:
            return
        self._uses += 1
        with self._server.connect(self._name) as connection:
            connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {_OTHERS}".encode())
            while _value(connection, f"SELECT count(*) FROM pg_stat_activity WHERE {_OTHERS}"):
                time.sleep(0.002)
            spent = self._uses >= _USES or self._changed(connection)
            if not spent:
                tables = reversed(Base.metadata.sorted_tables)
                connection.execute("; ".join(f'DELETE FROM "{table.name}"' for table in tables).encode())
                connection.execute(_RESTART.encode())
        if spent:
            self.drop()

    def drop(self) -> None:
        if self._name is not None:
            name, self._name = self._name, None
            self._server.drop(name)

    def _changed(self, connection: psycopg.Connection[Any]) -> bool:
        try:
            return bool(_value(connection, _SCHEMA) != self._schema)
        except psycopg.Error:  # not even the table of the version is there
            return True


def _value(connection: psycopg.Connection[Any], query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]
