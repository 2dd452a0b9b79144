"""Turns errors of an unavailable, busy, full or damaged database into errors of this project."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from edgefront.core.common.errors import EdgefrontError, Unavailable

# Postgres errors: shut down, starting up, too many connections.
_AWAY = frozenset({"57P01", "57P02", "57P03", "57P05", "53300", "25P03"})
# Postgres errors: deadlock, serialisation failure, lock timeout.
_BUSY = frozenset({"40001", "40P01", "55P03"})
# Postgres errors: disk full, out of memory, failed input or output.
_FULL = frozenset({"53100", "53200", "58030"})
# SQLite's messages for the same errors; its error codes have names only from Python 3.11 on.
_SQLITE_BUSY = ("database is locked", "database table is locked", "database schema is locked")
_SQLITE_FULL = ("database or disk is full", "disk I/O error", "out of memory")
_SQLITE_AWAY = ("unable to open database file", "attempt to write a readonly database", "locking protocol")


@contextmanager
def unavailable_when_away() -> Iterator[None]:
    """Turns errors of an unreachable, full or busy database into `Unavailable`. Other errors are raised unchanged."""
    try:
        yield
    except PoolTimeout as error:
        raise Unavailable("the database is busy: no connection became free; try again", retry_after_s=2) from error
    except (DBAPIError, sqlite3.Error, psycopg.Error) as error:
        if _damaged(error):
            raise EdgefrontError(
                f"the database file cannot be read: {_first_line(error)}; restore a copy, or remove it to start empty"
            ) from error
        state = _state(error)
        if state is None:
            raise
        raise Unavailable(f"the database is {state}: {_first_line(error)}; try again", retry_after_s=2) from error


def _state(error: DBAPIError | sqlite3.Error | psycopg.Error) -> str | None:
    """State of the database: `unavailable`, `busy` or `out of room`; None for an error of the statement."""
    said: BaseException | None = error
    if isinstance(error, DBAPIError):
        said = error.orig
        # An error without a statement is an error of the connection.
        if error.connection_invalidated or (error.statement is None and isinstance(said, psycopg.OperationalError)):
            return "unavailable"
    code = getattr(said, "sqlstate", None)
    text = str(said) if isinstance(said, sqlite3.Error) else ""
    if code in _BUSY or text.startswith(_SQLITE_BUSY):
        return "busy"
    if code in _FULL or text.startswith(_SQLITE_FULL):
        return "out of room"
    if code in _AWAY or (code or "").startswith("08") or text.startswith(_SQLITE_AWAY):
        return "unavailable"
    # These errors do not pass through SQLAlchemy: the test of an idle connection, or its return to the pool.
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and code is None:
        return "unavailable"
    return None


def _damaged(error: Exception) -> bool:
    """Whether SQLite reports a damaged file, or a file that is not a database."""
    said = error.orig if isinstance(error, DBAPIError) else error
    damage = ("file is not a database", "database disk image is malformed")
    return isinstance(said, sqlite3.DatabaseError) and str(said).startswith(damage)


def _first_line(error: Exception) -> str:
    said = error.orig if isinstance(error, DBAPIError) else error
    return (str(said).strip().splitlines() or ["no answer"])[0]
