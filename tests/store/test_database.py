"""Transactions, the outbox, the clock, and a database that goes away."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import psycopg
import pytest
from concurrency import at_once
from databases import ON_BOTH
from sqlalchemy import Float, bindparam, cast, literal_column, select, text, type_coerce, update
from sqlalchemy.exc import DBAPIError, StatementError
from sqlalchemy.orm import Session

from edgefront.core.common.errors import EdgefrontError, InvalidInput, Unavailable
from edgefront.core.common.states import LaunchState
from edgefront.core.store import clock
from edgefront.core.store.database import Database, enqueue
from edgefront.core.store.sql import PreparedStatement, any_of, insert_rows, texts, update_rows, write_back
from edgefront.core.store.tables import Artifact, Job, Target
from edgefront.core.store.tables.base import state_type

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def add(session: Session, digest: str = "a") -> None:
    session.add(Artifact(digest=digest, seed=1, format="onnx", path="p", size=1, sha256="s", created_at=NOW))


def digests(database: Database) -> list[str]:
    with database.read() as session:
        return list(session.scalars(select(Artifact.digest).order_by(Artifact.digest)))


@ON_BOTH
def test_leaving_commits_and_an_exception_undoes(database: Database) -> None:
    with database.write() as session:
        add(session)
    with pytest.raises(ZeroDivisionError):
        _fail_after(database, lambda session: add(session, "b"))
    assert digests(database) == ["a"]


def _fail_after(database: Database, work: Callable[[Session], None]) -> None:
    with database.write() as session:
        work(session)
        session.flush()
        raise ZeroDivisionError


@ON_BOTH
def test_tasks_are_sent_after_the_commit_once_each_and_dropped_with_it(
    database_url: str, open_database: Callable[..., Database]
) -> None:
    seen: list[tuple[str, dict[str, Any], list[str]]] = []
    database = open_database(database_url, send=lambda task, kwargs: seen.append((task, kwargs, digests(database))))
    with database.write() as session:
        add(session)
        enqueue(session, "advance", target_id="t1")
        enqueue(session, "advance", target_id="t2")
        enqueue(session, "advance", target_id="t1")
    assert seen == [("advance", {"target_id": "t1"}, ["a"]), ("advance", {"target_id": "t2"}, ["a"])]
    with pytest.raises(ZeroDivisionError):
        _fail_after(database, lambda session: enqueue(session, "advance", target_id="t3"))
    assert len(seen) == 2


@ON_BOTH
def test_an_unavailable_broker_does_not_undo_the_commit(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(task: str, arguments: dict[str, Any]) -> None:
        raise ConnectionError("no broker")

    database.send = refuse
    with database.write() as session:
        add(session)
        enqueue(session, "advance", target_id="t1")
    assert digests(database) == ["a"]
    assert "the sweep sends it again" in caplog.text


@ON_BOTH
def test_a_reader_sees_one_snapshot(database: Database) -> None:
    with database.write() as session:
        add(session)
    with database.read() as reader:
        before = list(reader.scalars(select(Artifact.digest)))
        with database.write() as session:
            add(session, "b")
        assert list(reader.scalars(select(Artifact.digest))) == before == ["a"]
    assert digests(database) == ["a", "b"]


@ON_BOTH
def test_writers_wait_for_each_other_and_lose_nothing(database: Database) -> None:
    with database.write() as session:
        add(session, "0")

    def count() -> None:
        for _ in range(10):
            with database.write() as session:
                row = session.scalars(select(Artifact).with_for_update()).one()
                row.size += 1

    at_once(*[count] * 4)
    with database.read() as session:
        assert session.scalars(select(Artifact.size)).one() == 41


def test_two_databases_on_one_file_share_the_writer(sqlite_url: str, open_database: Callable[..., Database]) -> None:
    first, second = open_database(sqlite_url), open_database(sqlite_url)
    with first.write() as session:
        add(session)
        with pytest.raises(RuntimeError, match="writing already"), second.write():
            pass
    with second.write() as session:
        add(session, "b")
    assert digests(first) == ["a", "b"]


def test_sqlite_is_set_up_to_survive(sqlite_url: str, open_database: Callable[..., Database]) -> None:
    with open_database(sqlite_url).read() as session:
        pragmas = {name: session.execute(text(f"PRAGMA {name}")).scalar() for name in _PRAGMAS}
    assert pragmas == _PRAGMAS


_PRAGMAS = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 15000}


@ON_BOTH
def test_the_clock_is_the_databases_and_aware(database: Database) -> None:
    with database.read() as session:
        first = database.now(session)
        session.execute(select(1))
        second = database.now(session)
    assert first.utcoffset() == timedelta(0)
    assert first <= second
    assert abs(second - datetime.now(timezone.utc)) < timedelta(minutes=5)


@ON_BOTH
def test_times_come_back_as_they_went_in_and_naive_ones_are_refused(database: Database) -> None:
    moment = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=timezone(timedelta(hours=2)))
    with database.write() as session:
        row = Artifact(digest="a", seed=1, format="f", path="p", size=1, sha256="s", created_at=moment)
        session.add(row)
    with database.read() as session:
        stored = session.scalars(select(Artifact.created_at)).one()
    assert stored == moment
    assert stored.tzinfo is timezone.utc
    with pytest.raises(StatementError, match="has no time zone"), database.write() as session:
        session.scalars(select(Artifact).where(Artifact.created_at == datetime(2026, 1, 1)))  # noqa: DTZ001


@ON_BOTH
def test_foreign_keys_hold(database: Database) -> None:
    with pytest.raises(DBAPIError), database.write() as session:
        session.execute(text("INSERT INTO web_session VALUES ('w', 'h', 'no such key', '2026-01-01', '2026-01-01')"))


@ON_BOTH
def test_absent_json_is_null_in_the_database(database: Database) -> None:
    with database.write() as session:
        job = Job(
            name="j", owner="o", request={}, request_digest="d", state="running", created_at=NOW, updated_at=NOW
        )  # fmt: skip
        session.add(job)
        session.flush()
        session.add(
            Target(
                job_id=job.id,
                position=0,
                name="t",
                device_key="k",
                protocol={},
                protocol_digest="d",
                limits={},
                seed=(1 << 63) - 1,
                proxy="quality_law",
                state="searching",
                reference=None,
            )
        )
    with database.read() as session:
        assert session.scalars(select(Target.seed).where(Target.reference.is_(None))).one() == (1 << 63) - 1


@pytest.mark.parametrize("url", ["mysql://ada:secret@localhost/x", "sqlite://", "sqlite:///:memory:"])
def test_other_databases_are_refused_without_a_password_in_the_message(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"sqlite|Postgres") as refusal:
        Database(url)
    assert "secret" not in str(refusal.value)


def test_a_database_that_cannot_be_reached_is_unavailable(open_database: Callable[..., Database]) -> None:
    database = open_database("postgresql+psycopg://postgres@127.0.0.1:1/none")
    for session in (database.read, database.write):
        with pytest.raises(Unavailable, match="unavailable"), session() as opened:
            opened.execute(select(1))


def test_a_lost_connection_is_unavailable_and_the_next_session_works(
    postgres_url: str, open_database: Callable[..., Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgefront.core.store.database.IDLE_S", 0.0)
    database = open_database(postgres_url)
    with pytest.raises(Unavailable):
        _lose_the_connection(database)
    assert digests(database) == []
    _cut(database)  # while nobody looks: the pool notices by itself
    with database.write() as session:
        add(session)
    assert digests(database) == ["a"]


def _lose_the_connection(database: Database) -> None:
    with database.write() as session:
        add(session)
        session.flush()
        _cut(database)
        session.execute(select(1))


def _cut(database: Database) -> None:
    conninfo = database.url.set(drivername="postgresql", database="postgres").render_as_string(hide_password=False)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
            [database.url.database],
        )


@ON_BOTH
def test_a_connection_that_comes_back_to_a_disposed_database_is_closed(database: Database) -> None:
    """A thread may outlast the service that it belongs to."""
    with database.read() as session:
        used = session.connection().connection.dbapi_connection
        assert used is not None
        database.dispose()
        assert session.execute(text("SELECT 1")).scalar_one() == 1
    with pytest.raises(Exception, match="closed"):
        used.cursor().execute("SELECT 1")
    with database.read() as session:
        opened = session.connection().connection.dbapi_connection
        assert opened is not None
    with pytest.raises(Exception, match="closed"):
        opened.cursor().execute("SELECT 1")


def test_a_file_that_is_no_database_is_distinguished_from_an_unavailable_one(
    tmp_path: Path, open_database: Callable[..., Database]
) -> None:
    path = tmp_path / "edgefront.db"
    path.write_bytes(b"not a database, whatever its name says" * 100)
    with pytest.raises(EdgefrontError, match="cannot be read: file is not a database") as caught:
        open_database(f"sqlite:///{path}").migrate()
    assert not isinstance(caught.value, Unavailable)
    assert path.read_bytes().startswith(b"not a database")


def test_a_locked_sqlite_file_is_unavailable(
    sqlite_url: str, open_database: Callable[..., Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgefront.core.store.database.BUSY_TIMEOUT_S", 0.05)
    first = open_database(sqlite_url)
    # Another process's writer, as far as SQLite can tell: a connection beside the shared lock.
    with first.engine.connect() as outside:
        outside.exec_driver_sql("DELETE FROM artifact")
        with pytest.raises(Unavailable), first.write() as session:
            add(session)
        outside.rollback()
    with first.write() as session:
        add(session)
    assert digests(first) == ["a"]


@ON_BOTH
def test_every_statement_sees_what_was_changed_before_it(database: Database) -> None:
    """Statements on tables and plain text, which SQLAlchemy runs past a session, and bulk writes."""
    table = Artifact.__table__
    with database.write() as session:
        add(session)
        assert session.execute(select(table.c.digest)).scalars().all() == ["a"]
        row = session.scalars(select(Artifact)).one()
        row.path = "changed"
        assert session.scalar(text("SELECT path FROM artifact")) == "changed"
        update_rows(session, Artifact, [{"id": row.id, "path": "together"}])
        assert session.scalars(select(Artifact.path)).all() == ["together"]
        row.size = 2
        write_back(session, [row], ["size"])
        assert session.execute(select(table.c.size)).scalars().all() == [2]
        add(session, "b")
        insert_rows(session, Artifact, [{"id": "c", **_VALUES, "created_at": NOW}])
    assert digests(database) == ["a", "b", "c"]


@ON_BOTH
def test_a_prepared_statement_has_the_rows_that_sqlalchemy_has(database: Database) -> None:
    """On Postgres the driver executes it: parameters and columns of every kind come through as they do otherwise."""
    half = cast(literal_column("0.5"), Float).label("half")
    state = type_coerce(Artifact.format, state_type(LaunchState, 12)).label("state")
    query = (
        select(Artifact.digest, Artifact.seed, Artifact.created_at, half, state)
        .where(any_of(Artifact.digest, texts("digests")), Artifact.created_at <= bindparam("at"))
        .order_by(Artifact.digest)
    )
    prepared, asked = PreparedStatement(query), {"digests": ["a", "b"], "at": NOW}
    resize = PreparedStatement(update(Artifact).where(Artifact.digest == bindparam("which")).values(size=9))
    with database.write() as session:
        for digest in ("a", "b"):
            session.add(Artifact(**{**_VALUES, "digest": digest, "format": "leased", "created_at": NOW}))
            rows = prepared.run(session, asked)  # sees what is not flushed yet
            assert rows == [tuple(row) for row in session.execute(query, asked)]
            assert rows[-1] == (digest, 1, NOW, 0.5, LaunchState.LEASED)
        assert resize.run(session, {"which": "a"}) == []
        assert session.execute(select(Artifact.digest, Artifact.size).order_by(Artifact.digest)).all() == [
            ("a", 9),
            ("b", 1),
        ]


_VALUES = {"digest": "c", "seed": 1, "format": "onnx", "path": "p", "size": 1, "sha256": "s"}


# The clock between two questions --------------------------------------------------------------------------------------


class Hands:
    """This machine's two clocks, moved by hand."""

    def __init__(self) -> None:
        self.monotonic_s, self.wall_s = 100.0, 1e9

    def monotonic(self) -> float:
        return self.monotonic_s

    def time(self) -> float:
        return self.wall_s

    def pass_(self, seconds: float) -> None:
        self.monotonic_s += seconds
        self.wall_s += seconds


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    hands = Hands()
    monkeypatch.setattr(clock, "time", hands)
    return hands


def test_it_is_asked_first_and_again_after_a_while(hands: Hands) -> None:
    database_clock = clock.Clock()
    assert database_clock.now() is None
    database_clock.set(NOW)
    hands.pass_(0.25)
    assert database_clock.now() == NOW + timedelta(seconds=0.25)
    hands.pass_(clock.KEPT_S)
    assert database_clock.now() is None


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_it_is_asked_again_after_a_sleep_or_when_the_time_was_set(hands: Hands, jump_s: float) -> None:
    database_clock = clock.Clock()
    database_clock.set(NOW)
    hands.wall_s += jump_s
    assert database_clock.now() is None
