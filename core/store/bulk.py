"""Many rows in one statement, and many statements in one message.

Postgres gets all rows as one JSON document, which it takes apart itself: one statement to send, plan and answer
instead of one for each row. Within `together` such statements are kept and sent at once, when all that has to be known
is known. SQLite is in this process and gains nothing by that: it gets its rows one by one, at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, cast

import orjson
import psycopg
from sqlalchemy import Table, bindparam, insert, update
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import set_committed_value

from edgefront.core.store.tables import Base

_KEPT = "edgefront.kept"
_POSTGRES = postgresql.dialect()  # type: ignore[no-untyped-call]


@contextmanager
def together(session: Session) -> Iterator[None]:
    """Writes made here are sent in one message at the end, or at `send`.

    Until then queries do not see them: whoever asks for rows that may have been written here calls `send` first.
    """
    if session.get_bind().dialect.name == "sqlite":
        yield
        return
    session.info[_KEPT] = []
    try:
        yield
        send(session)
    finally:
        del session.info[_KEPT]


def send(session: Session) -> None:
    """Sends what `together` has kept so far; nothing to do elsewhere."""
    kept: list[tuple[str, str]] = session.info.get(_KEPT, [])
    if not kept:
        return
    connection = cast(psycopg.Connection[Any], session.connection().connection.driver_connection)
    with connection.pipeline(), connection.cursor() as cursor:
        for statement, rows in kept:
            cursor.execute(statement.encode(), {"rows": rows})
    kept.clear()


def insert_rows(session: Session, table: type[Base], rows: Sequence[Mapping[str, Any]]) -> None:
    """Adds rows that all name the same columns."""
    if not rows:
        return
    if session.get_bind().dialect.name == "sqlite":
        session.execute(insert(_core(table)), list(rows))
    else:
        _write(session, _insert(_core(table), tuple(rows[0])), rows)


def update_rows(session: Session, table: type[Base], rows: Sequence[Mapping[str, Any]]) -> None:
    """Updates rows by their `id`; all name the same columns. Objects that the session has loaded are not told."""
    if not rows:
        return
    if session.get_bind().dialect.name == "sqlite":
        core = _core(table)
        statement = update(core).where(core.c.id == bindparam("row_id"))
        session.execute(statement, [{"row_id" if name == "id" else name: row[name] for name in row} for row in rows])
    else:
        _write(session, _update(_core(table), tuple(rows[0])), rows)


def _write(session: Session, statement: str, rows: Sequence[Mapping[str, Any]]) -> None:
    document = orjson.dumps(list(rows)).decode()
    kept: list[tuple[str, str]] | None = session.info.get(_KEPT)
    if kept is None:
        session.connection().exec_driver_sql(statement, {"rows": document})
    else:
        kept.append((statement, document))


def write_back(session: Session, objects: Sequence[Base], columns: Sequence[str]) -> None:
    """Writes these columns of loaded objects of one table, and makes the session see them as written.

    Other changes of the objects stay for the next flush.
    """
    if not objects:
        return
    rows = [{name: getattr(item, name) for name in ("id", *columns)} for item in objects]
    update_rows(session, type(objects[0]), rows)
    for item, row in zip(objects, rows, strict=True):
        for name in columns:
            set_committed_value(item, name, row[name])


def _core(table: type[Base]) -> Table:
    return cast(Table, table.__table__)


@lru_cache
def _insert(table: Table, columns: tuple[str, ...]) -> str:
    names = ", ".join(columns)
    return f"INSERT INTO {table.name} ({names}) SELECT {names} FROM {_rows(table, columns)}"  # noqa: S608


@lru_cache
def _update(table: Table, columns: tuple[str, ...]) -> str:
    values = ", ".join(f"{name} = r.{name}" for name in columns if name != "id")
    return f"UPDATE {table.name} SET {values} FROM {_rows(table, columns)} WHERE {table.name}.id = r.id"  # noqa: S608


def _rows(table: Table, columns: tuple[str, ...]) -> str:
    types = ", ".join(f"{name} {table.c[name].type.compile(_POSTGRES)}" for name in columns)
    return f"jsonb_to_recordset(CAST(%(rows)s AS jsonb)) AS r({types})"
