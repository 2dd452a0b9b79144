"""The database: sessions to read and to write in, its clock, its migrations.

Only the edge (an endpoint, a task, a command) opens sessions; services take one and never commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, event, func, select, text
from sqlalchemy.orm import ORMExecuteState, Session
from sqlalchemy.pool import ConnectionPoolEntry

from edgefront.core.errors import Conflict, Unavailable
from edgefront.core.store import outbox
from edgefront.core.store.clock import Clock
from edgefront.core.store.connection import (
    WRITE,
    make_engine,
    parse_url,
    unavailable_when_away,
    writer_lock,
)
from edgefront.core.store.tables.base import UtcDateTime

MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"
_MIGRATION_LOCK = 0x65646765  # any constant number: Postgres advisory locks have no names

_CLOCKS = {
    "sqlite": select(func.strftime("%Y-%m-%d %H:%M:%f000", "now", type_=UtcDateTime)),
    "postgresql": select(func.clock_timestamp(type_=UtcDateTime)),
}


def _alembic() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config


def _check_revision(connection: Connection) -> None:
    known = {script.revision for script in ScriptDirectory.from_config(_alembic()).walk_revisions()}
    for revision in MigrationContext.configure(connection).get_current_heads():
        if revision not in known:
            raise Conflict(
                f"another release made this database: its schema {revision} is none of this release's "
                f"({', '.join(sorted(known))}); run that release, or name another database"
            )


class _WriteSession(Session):
    """A session of which every statement sees what was changed before it: nobody has to flush for that."""


@event.listens_for(_WriteSession, "do_orm_execute")
def _flush_before(state: ORMExecuteState) -> None:
    # SQLAlchemy does so for statements on mapped classes, and runs those on tables, and plain text, past the changes.
    if state.session.autoflush and not state.is_orm_statement:
        state.session.flush()


class Database:
    """One database, by its URL.

    Args:
        url: `sqlite:////path/file.db` or `postgresql+psycopg://user@host/database`. send: delivers a task by its name
        and arguments after a commit; None drops them (the sweep sends them again). pool_size: maximum number of
        connections to Postgres.

    Both kinds of session raise `core.errors.Unavailable` when the database is unavailable or busy for too long; the
    next session connects again, so it recovers by itself.
    """

    def __init__(self, url: str, *, send: outbox.Send | None = None, pool_size: int = 8) -> None:
        self.url = parse_url(url)
        self.send = send
        self.sqlite = self.url.get_backend_name() == "sqlite"
        self.engine = make_engine(self.url, pool_size=pool_size)
        snapshot: dict[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        self._reading = self.engine.execution_options(**({} if self.sqlite else snapshot))
        self._writing = self.engine.execution_options(**{WRITE: True})
        self._lock = writer_lock(self.url) if self.sqlite else None
        self._clock = Clock()
        self._disposed = False
        event.listen(self.engine, "checkin", self._close_when_disposed)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session for reading, which sees one snapshot of the database from its first query on."""
        with unavailable_when_away(), Session(self._reading, autoflush=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A session that is committed on exit; then its outbox is sent. An exception rolls back and drops the
        outbox.
        """
        with unavailable_when_away(), self._lock() if self._lock else nullcontext():
            with _WriteSession(self._writing, expire_on_commit=False) as session, session.begin():
                yield session
            messages = outbox.take(session)
        outbox.deliver(messages, self.send)

    def now(self, session: Session) -> datetime:
        """The database's time, aware; the same for every process, and monotonic.

        Postgres is queried once a second and its answer extrapolated by this machine's clock, so it may be late by the
        duration of the query.
        """
        now = self._clock.now()
        if now is None:
            now = session.execute(_CLOCKS[session.get_bind().dialect.name]).scalar_one()
            if not self.sqlite:
                self._clock.set(now)
        return now

    def migrate(self) -> None:
        """Brings the schema to this release's. Several processes may call it at once: one migrates, the others wait.

        Raises `Conflict`, and changes nothing, for a database of another release.
        """
        config = _alembic()
        engine = make_engine(self.url, pool_size=1, migrating=True).execution_options(**{WRITE: True})
        try:
            with (
                unavailable_when_away(),
                self._lock() if self._lock else nullcontext(),
                engine.connect() as connection,
                connection.begin(),
            ):
                if not self.sqlite:
                    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})
                _check_revision(connection)
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
        finally:
            engine.dispose()

    def is_current(self) -> bool:
        """Whether the schema is this release's: no migration is missing, and none is from a later release."""
        heads = set(ScriptDirectory.from_config(_alembic()).get_heads())
        with unavailable_when_away(), self._reading.connect() as connection:
            return set(MigrationContext.configure(connection).get_current_heads()) == heads

    def refuse_other_release(self) -> None:
        """Raises `Conflict` if another release made the database. One that is away passes: it is awaited."""
        with suppress(Unavailable), unavailable_when_away(), self._reading.connect() as connection:
            _check_revision(connection)
        self.engine.dispose()  # a process that forks next shares no connection

    def dispose(self) -> None:
        """Closes the pooled connections, and from now on each that comes back: a thread may outlast its service."""
        self._disposed = True
        self.engine.dispose()

    def _close_when_disposed(self, _connection: Any, record: ConnectionPoolEntry) -> None:
        if self._disposed:
            record.invalidate()
