"""Many rows in one statement.

Postgres gets all rows as one JSON document, which it takes apart itself: one statement to send, plan and answer
instead of one for each row. SQLite is in this process and gains nothing by that: it gets its rows one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import orjson
from sqlalchemy import Table, TextClause, bindparam, insert, text, update
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import set_committed_value

from edgefront.core.store.tables import Base

_POSTGRES = postgresql.dialect()  # type: ignore[no-untyped-call]


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


def _write(session: Session, statement: TextClause, rows: Sequence[Mapping[str, Any]]) -> None:
    session.execute(statement, {"rows": orjson.dumps(list(rows)).decode()})


def write_back(session: Session, objects: Sequence[Base], columns: Sequence[str]) -> None:
    """Writes these columns of loaded objects of one table, and makes the session see them as written.

    Other changes of the objects stay for the next flush.
    """
    if not objects:
        return
    rows = [{name: getattr(item, name) for name in ("id", *columns)} for item in objects]
    with session.no_autoflush:  # which would write the same
        update_rows(session, type(objects[0]), rows)
    for item, row in zip(objects, rows, strict=True):
        for name in columns:
            set_committed_value(item, name, row[name])


def _core(table: type[Base]) -> Table:
    return cast(Table, table.__table__)


@lru_cache
def _insert(table: Table, columns: tuple[str, ...]) -> TextClause:
    names = ", ".join(columns)
    return text(f"INSERT INTO {table.name} ({names}) SELECT {names} FROM {_rows(table, columns)}")  # noqa: S608


@lru_cache
def _update(table: Table, columns: tuple[str, ...]) -> TextClause:
    values = ", ".join(f"{name} = r.{name}" for name in columns if name != "id")
    return text(f"UPDATE {table.name} SET {values} FROM {_rows(table, columns)} WHERE {table.name}.id = r.id")  # noqa: S608


def _rows(table: Table, columns: tuple[str, ...]) -> str:
    types = ", ".join(f"{name} {table.c[name].type.compile(_POSTGRES)}" for name in columns)
    return f"jsonb_to_recordset(CAST(:rows AS jsonb)) AS r({types})"
