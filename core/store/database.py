"""The database: sessions for reading and writing, its clock, and its migrations.

Only the edge (an endpoint, a task, a command) opens sessions. Services receive a session and never commit.
"""

from __future__ import annotations

import logging
import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, cast
from weakref import WeakValueDictionary

import orjson
import psycopg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, NullPool, create_engine, event, func, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DisconnectionError, OperationalError, ProgrammingError
from sqlalchemy.orm import ORMExecuteState, Session
from sqlalchemy.pool import ConnectionPoolEntry

from edgefront.core.common.errors import Conflict, InvalidInput, Unavailable
from edgefront.core.store.availability import unavailable_when_away
from edgefront.core.store.clock import Clock
from edgefront.core.store.tables.base import UtcDateTime

WRITE = "edgefront_write"
"""Execution option: begin the transaction with the write lock (SQLite)."""

IDLE_S = 1.0
"""Idle seconds after which a pooled connection is tested before its use."""

PREPARED_STATEMENTS = 500
"""Maximum number of prepared statements per connection; the service has some hundred statements."""

_USED_AT = "edgefront_used_at"

SCHEMA_CHECK_S = 1.0
"""Seconds for which a process relies on its latest check of the schema."""

BUSY_TIMEOUT_S = 15
"""Seconds that a writer waits for another writer before `Unavailable` is raised."""


def parse_url(text: str) -> URL:
    """Parses a database URL and adds the driver. `InvalidInput` for databases other than SQLite files and Postgres."""
    allowed = "sqlite:////path/file.db or postgresql+psycopg://user@host/database"
    try:
        url = make_url(text)
        backend = url.get_backend_name()
    except (ArgumentError, ValueError):
        raise InvalidInput(  # the message leaves out the URL, which may contain a password
            "database.url: this is not the URL of a database; in a user name or password /, @ and : are written as "
            f"%2F, %40 and %3A. Give {allowed}",
            field="database.url",
            allowed=allowed,
        ) from None
    if backend in ("postgresql", "postgres"):
        options: dict[str, Any] = dict(url.query)
        try:
            psycopg.conninfo.make_conninfo("", **options)
        except psycopg.ProgrammingError as error:
            raise InvalidInput(f"database.url: {error}".strip(), field="database.url") from None
        return url.set(drivername="postgresql+psycopg")
    if backend == "sqlite" and url.database and url.database != ":memory:":
        return url
    raise InvalidInput(
        f"database URL {url.render_as_string()!r}: give a SQLite file or a Postgres database",
        field="database.url",
        value=url.render_as_string(),
        allowed=allowed,
    )


def make_engine(url: URL, *, pool_size: int, migrating: bool = False) -> Engine:
    """Creates an engine for `url`.

    SQLite runs in WAL mode with `synchronous=FULL`, so acknowledged reports survive a power failure, like on Postgres.
    Foreign keys of SQLite are off in migrations, because rebuilding a table drops the table, and the drop would
    cascade.
    """
    common: dict[str, Any] = {
        "json_serializer": lambda value: orjson.dumps(value).decode(),
        "json_deserializer": orjson.loads,
    }
    if migrating:
        common["poolclass"] = NullPool
    elif url.get_backend_name() == "postgresql":
        common |= {"pool_size": pool_size, "max_overflow": 0, "pool_timeout": BUSY_TIMEOUT_S}
    else:
        common |= {"pool_size": pool_size, "max_overflow": 16, "pool_timeout": BUSY_TIMEOUT_S}
    if url.get_backend_name() == "postgresql":
        arguments = {
            "connect_timeout": 5,
            "keepalives_idle": 30,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "client_encoding": "utf8",  # also where the database has another encoding, which `migrate` refuses
        }
        engine = create_engine(url, connect_args=arguments, **common)
        _watch_connections(engine)
        return engine
    if url.database:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False}, **common)
    _control_transactions(engine, foreign_keys=not migrating)
    return engine


def _watch_connections(engine: Engine) -> None:
    # SQLAlchemy's pre-ping tests at every use. Testing only idle connections saves a round trip. If a recently used
    # connection is broken, its user gets an error and the pool drops all older connections.
    @event.listens_for(engine, "connect")
    def connect(connection: psycopg.Connection[Any], _record: Any) -> None:
        connection.prepared_max = PREPARED_STATEMENTS

    @event.listens_for(engine, "checkin")
    def checkin(_connection: Any, record: ConnectionPoolEntry) -> None:
        record.info[_USED_AT] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def checkout(connection: psycopg.Connection[Any], record: ConnectionPoolEntry, _proxy: Any) -> None:
        if time.monotonic() - record.info.get(_USED_AT, math.inf) > IDLE_S:
            try:
                engine.dialect.do_ping(cast(DBAPIConnection, connection))
            except psycopg.Error as error:
                raise DisconnectionError from error


def _control_transactions(engine: Engine, *, foreign_keys: bool) -> None:
    # The sqlite3 module begins transactions late and only for some statements, so this is SQLAlchemy's recipe instead.
    @event.listens_for(engine, "connect")
    def connect(connection: sqlite3.Connection, _record: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute(f"PRAGMA foreign_keys={'ON' if foreign_keys else 'OFF'}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        write = connection.get_execution_options().get(WRITE, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


class WriterLock:
    """Lock that serialises the writers to a SQLite file in this process, because SQLite's own lock is not fair."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        if self._owner == threading.get_ident():
            raise RuntimeError("this thread is writing already: a nested write would wait for itself")
        if not self._lock.acquire(timeout=BUSY_TIMEOUT_S):
            raise Unavailable("the database is busy with another write; try again", retry_after_s=2)
        self._owner = threading.get_ident()
        try:
            yield
        finally:
            self._owner = None
            self._lock.release()


_locks: WeakValueDictionary[str, WriterLock] = WeakValueDictionary()
_locks_guard = threading.Lock()


def writer_lock(url: URL) -> WriterLock:
    """Returns the lock of a SQLite file, shared by all `Database` objects of this file in this process."""
    path = str(Path(url.database or "").resolve())
    with _locks_guard:
        lock = _locks.get(path)
        if lock is None:
            lock = _locks[path] = WriterLock()
        return lock


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


@cache
def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_alembic())


def _check_revision(connection: Connection) -> None:
    revisions = {script.revision for script in _scripts().walk_revisions()}
    for revision in MigrationContext.configure(connection).get_current_heads():
        if revision not in revisions:
            raise Conflict(
                f"another release made this database: its schema {revision} is unknown to this release "
                f"({', '.join(sorted(revisions))}); run that release, or use another database"
            )


Send = Callable[[str, dict[str, Any]], None]
"""Function that delivers a task, by its name and arguments."""

_OUTBOX = "edgefront.outbox"
_log = logging.getLogger(__name__)
logging.getLogger("alembic").setLevel(logging.WARNING)  # logs each check of the schema


def enqueue(session: Session, task: str, **arguments: Any) -> None:
    """Sends a task after `session` has committed; a rollback drops the task. A task that is enqueued twice is sent
    once.

    The rows are authoritative and a task is only a notification. A task that is lost between commit and delivery (a
    crash, an unavailable broker) delays work until the next sweep, but loses nothing.
    """
    message = (task, arguments)
    waiting: list[tuple[str, dict[str, Any]]] = session.info.setdefault(_OUTBOX, [])
    if message not in waiting:
        waiting.append(message)


def _deliver(messages: list[tuple[str, dict[str, Any]]], send: Send) -> None:
    """Sends tasks after a commit. An unavailable broker is logged and raises nothing."""
    for task, arguments in messages:
        try:
            send(task, arguments)
        except Exception:
            _log.warning("task %s %s could not be sent; the sweep sends it again", task, arguments, exc_info=True)


class _WriteSession(Session):
    """A session that flushes before every statement, including statements of SQLAlchemy Core."""


@event.listens_for(_WriteSession, "do_orm_execute")
def _flush_before(state: ORMExecuteState) -> None:
    # SQLAlchemy flushes only before statements on mapped classes.
    if state.session.autoflush and not state.is_orm_statement:
        state.session.flush()


class Database:
    """A database, given by its URL.

    Args:
        url: `sqlite:////path/file.db` or `postgresql+psycopg://user@host/database`.
        send: sends a task by name and arguments after a commit; None drops tasks (the sweep sends them again).
        pool_size: maximum number of connections to Postgres.

    Sessions raise `core.common.errors.Unavailable` if the database is unavailable or busy for too long, or if its
    schema is not that of this release: a process that runs beside a migration does nothing. The next session
    reconnects.
    """

    def __init__(self, url: str, *, send: Send | None = None, pool_size: int = 8) -> None:
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
        self._checked_at = -math.inf
        event.listen(self.engine, "checkin", self._close_when_disposed)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Opens a read-only session with one snapshot of the database from its first query on."""
        with self._usable(), Session(self._reading, autoflush=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Opens a session that is committed on exit; then the session's tasks are sent. An exception rolls back and
        drops the tasks.
        """
        with self._usable(), self._lock() if self._lock else nullcontext():
            with _WriteSession(self._writing, expire_on_commit=False) as session, session.begin():
                yield session
            messages: list[tuple[str, dict[str, Any]]] = session.info.pop(_OUTBOX, [])
        if self.send is not None:
            _deliver(messages, self.send)

    def now(self, session: Session) -> datetime:
        """Returns the database's time (with time zone), equal for all processes, and monotonic.

        Postgres is queried once a second. Between queries, the time is extrapolated by this machine's clock.
        """
        now = self._clock.now()
        if now is None:
            now = session.execute(_CLOCKS[session.get_bind().dialect.name]).scalar_one()
            if not self.sqlite:
                self._clock.set(now)
        return now

    def migrate(self) -> None:
        """Upgrades the schema to this release. Of several concurrent callers, one migrates and the others wait.

        Raises, without any change, `Conflict` for a database of another release and `InvalidInput` for one that is not
        in UTF-8.
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
                    encoding = connection.scalar(text("SHOW server_encoding"))
                    if encoding != "UTF8":
                        raise InvalidInput(
                            f"database.url: the database has the encoding {encoding}, and must have UTF8: create it "
                            "with `CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0`",
                            field="database.url",
                            allowed="a database with the encoding UTF8",
                        )
                    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})
                _check_revision(connection)
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
        finally:
            engine.dispose()

    def check_schema(self) -> None:
        """Raises `Unavailable` if the schema is not exactly that of this release."""
        with unavailable_when_away(), self._reading.connect() as connection:
            heads = MigrationContext.configure(connection).get_current_heads()
        needed = _scripts().get_heads()
        self._checked_at = -math.inf
        if set(heads) != set(needed):
            raise Unavailable(
                f"the database has the schema {', '.join(heads) or 'of no release'}, and this release needs "
                f"{', '.join(needed)}: run `python -m edgefront.api.setup FOLDER` of the newer release, then the same "
                "release in every process",
                retry_after_s=10,
            )
        self._checked_at = time.monotonic()

    @contextmanager
    def _usable(self) -> Iterator[None]:
        with unavailable_when_away():
            if time.monotonic() - self._checked_at > SCHEMA_CHECK_S:
                self.check_schema()
            try:
                yield
            except (ProgrammingError, OperationalError):
                self.check_schema()  # a migration since the latest check explains a missing table or column
                raise

    def refuse_other_release(self) -> None:
        """Raises `Conflict` if another release made the database. Logs that an older one made it, or that it does not
        answer: its sessions then wait.
        """
        try:
            with unavailable_when_away(), self._reading.connect() as connection:
                _check_revision(connection)
            self.check_schema()
        except Unavailable as error:
            _log.warning("this process waits: %s", error)
        self.engine.dispose()  # so that forked processes share no connection

    def dispose(self) -> None:
        """Closes the pooled connections, and each connection that a thread returns later."""
        self._disposed = True
        self.engine.dispose()

    def _close_when_disposed(self, _connection: Any, record: ConnectionPoolEntry) -> None:
        if self._disposed:
            record.invalidate()
