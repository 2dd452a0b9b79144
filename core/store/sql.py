"""Typed rows of queries, and SQL statements for both databases.

- `typed`, `fetch`, `Parsed`, `json_text`: rows as named tuples, with JSON columns as models or text.
- `PreparedStatement`: a compiled statement for hot paths.
- `any_of`: `column IN (…)` with one parameter. An expanding `IN` is a different statement for each length, which
  SQLAlchemy renders and the database plans again.
- `insert_rows`, `update_rows`, `write_back`: many rows in one statement. Postgres gets the rows as one JSON document;
  SQLite runs in this process and gets the rows one by one.
- `upsert`: INSERT with ON CONFLICT.
- `lock_name`: advisory locks on a name until the end of the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import orjson
from pydantic import BaseModel
from sqlalchemy import (
    JSON,
    BindParameter,
    ColumnElement,
    Delete,
    Dialect,
    Executable,
    Insert,
    Result,
    Select,
    String,
    Table,
    Text,
    TextClause,
    Update,
    bindparam,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy import cast as cast_to
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import psycopg as psycopg_dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import InstrumentedAttribute, Session
from sqlalchemy.orm.attributes import set_committed_value
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import Boolean, TypeDecorator, TypeEngine

from edgefront.core.store.tables import Base
from edgefront.core.store.tables.base import Json

if TYPE_CHECKING:
    import psycopg
    from typing_extensions import Unpack

Document = dict[str, Any]
"""A stored JSON object."""
Items = list[Any]
"""A stored JSON array."""

Row = TypeVar("Row", bound=NamedTuple)

_POSTGRES = psycopg_dialect.dialect()  # type: ignore[no-untyped-call]


class Parsed(TypeDecorator[BaseModel]):
    """A JSON column that a query reads as a pydantic model: `type_coerce(column, Parsed(Model))`. The query raises
    `ValidationError` for a document that this release cannot read.
    """

    impl = JSON
    cache_ok = True

    def __init__(self, model: type[BaseModel]) -> None:
        super().__init__()
        self.model = model

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(Json)

    def process_result_value(self, value: Any, dialect: Dialect) -> BaseModel | None:
        return None if value is None else self.model.model_validate(value)


def typed(kind: type[Row], result: Result[Unpack[tuple[Any, ...]]]) -> list[Row]:
    """Returns the rows of a query as `kind`. Raises `TypeError` unless the fields of `kind` are the query's columns."""
    _check_names(kind, tuple(result.keys()))
    return [kind._make(row) for row in result]


def columns(table: type[Base], kind: type[NamedTuple]) -> tuple[InstrumentedAttribute[Any], ...]:
    """Returns the columns of a table with the names of the fields of `kind`."""
    return tuple(getattr(table, name) for name in kind._fields)


def _check_names(kind: type[NamedTuple], names: tuple[str, ...]) -> None:
    if names != kind._fields:
        raise TypeError(f"the query must return the fields of {kind.__name__}, {kind._fields}, not {names}")


class PreparedStatement:
    """A statement for hot paths, compiled once. On Postgres the driver executes it directly, in a third of the time.

    With ORM statements in place of `PreparedStatement` and `update_rows`, a launch takes 5.5 ms of processor time from
    lease to result instead of 2.7 (`benchmarks/bench_leases.py`).

    Args:
        statement: a query of columns, or a statement that returns no rows.
    """

    def __init__(self, statement: Select[Unpack[tuple[Any, ...]]] | Insert | Update | Delete | TextClause) -> None:
        self.statement = statement
        self.columns = tuple(statement.selected_columns) if isinstance(statement, Select) else ()
        self.names = tuple(str(column.key) for column in self.columns)
        self._readers: list[Callable[[Any], Any] | None] | None = None

    def run(self, session: Session, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Executes the statement in the session's transaction. Returns the rows of the result."""
        if session.autoflush:
            session.flush()
        connection = session.connection()
        if connection.dialect.name == "sqlite":
            result = connection.execute(self.statement, parameters)
            return [tuple(row) for row in result] if result.returns_rows else []
        sql, compiled, binds = self._compiled
        values = compiled.construct_params(dict(parameters))
        for name, bind in binds:
            values[name] = bind(values[name])
        driver = cast("psycopg.Connection[Any]", connection.connection.driver_connection)
        with driver.cursor() as cursor:
            cursor.execute(sql, values)
            if not self.columns:
                return []
            if self._readers is None:
                self._readers = [
                    _impl(column.type).result_processor(_POSTGRES, described.type_code)
                    for column, described in zip(self.columns, cursor.description or (), strict=True)
                ]
            readers = self._readers
            return [
                tuple([value if read is None else read(value) for value, read in zip(row, readers, strict=True)])
                for row in cursor.fetchall()
            ]

    @cached_property
    def _compiled(self) -> tuple[bytes, SQLCompiler, list[tuple[str, Callable[[Any], Any]]]]:
        """The statement's text, the compiled statement, and the converters of the statement's parameters."""
        compiled = self.statement.compile(dialect=_POSTGRES)
        binds = [(name, _impl(given.type).bind_processor(_POSTGRES)) for given, name in compiled.bind_names.items()]
        return compiled.string.encode(), compiled, [(name, bind) for name, bind in binds if bind is not None]


def _impl(kind: TypeEngine[Any]) -> TypeEngine[Any]:
    return kind.dialect_impl(_POSTGRES)


def fetch(
    session: Session, kind: type[Row], statement: Executable | PreparedStatement, parameters: Mapping[str, Any]
) -> list[Row]:
    """Returns the rows of a query as named tuples of the type `kind`, without the ORM's work on each row.

    A query sees unflushed changes only if the statement is `PreparedStatement`.
    """
    if isinstance(statement, PreparedStatement):
        _check_names(kind, statement.names)
        return [kind._make(row) for row in statement.run(session, parameters)]
    return typed(kind, session.connection().execute(statement, parameters))


def json_text(column: Any) -> ColumnElement[str]:
    """Returns a JSON column as unparsed text."""
    return cast_to(column, Text)


class _Texts(TypeDecorator[list[str]]):
    """Column type of a list of texts: an array in Postgres, a JSON document in SQLite."""

    impl = String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return postgresql.ARRAY(String) if dialect.name == "postgresql" else String()

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return list(value) if dialect.name == "postgresql" else orjson.dumps(list(value)).decode()


class _AnyOf(FunctionElement[bool]):
    type = Boolean()
    inherit_cache = True

    def self_group(self, against: Any = None) -> Any:
        return self  # without parentheses, because SQLite does not use an index for `(...) = 1`


@compiles(_AnyOf, "postgresql")
def _as_array(element: _AnyOf, compiler: SQLCompiler, **options: Any) -> str:
    column, texts = element.clauses
    return f"{compiler.process(column, **options)} = ANY ({compiler.process(texts, **options)})"


@compiles(_AnyOf, "sqlite")
def _as_json(element: _AnyOf, compiler: SQLCompiler, **options: Any) -> str:
    column, texts = element.clauses
    values = select(func.json_each(texts).table_valued("value").c.value)
    return f"{compiler.process(column, **options)} IN ({compiler.process(values, **options)})"


def texts(name: str) -> BindParameter[list[str]]:
    """Returns a parameter for `any_of` in a prepared statement: a collection of texts."""
    return bindparam(name, type_=_Texts())


def any_of(column: Any, values: Collection[str] | BindParameter[list[str]]) -> ColumnElement[bool]:
    """Returns the condition that the text `column` is among `values`."""
    given = values if isinstance(values, BindParameter) else bindparam(None, list(values), type_=_Texts(), unique=True)
    return _AnyOf(column, given)


def insert_rows(session: Session, table: type[Base], rows: Sequence[Mapping[str, Any]]) -> None:
    """Inserts rows with equal columns."""
    if not rows:
        return
    if session.get_bind().dialect.name == "sqlite":
        session.execute(insert(_core(table)), list(rows))
    else:
        _insert(_core(table), tuple(rows[0])).run(session, {"rows": _as_document(rows)})


def update_rows(session: Session, table: type[Base], rows: Sequence[Mapping[str, Any]]) -> None:
    """Updates rows with equal columns by their `id`. Loaded objects of the session are not refreshed."""
    if not rows:
        return
    if session.get_bind().dialect.name == "sqlite":
        core = _core(table)
        statement = update(core).where(core.c.id == bindparam("row_id"))
        session.execute(statement, [{"row_id" if name == "id" else name: row[name] for name in row} for row in rows])
    else:
        ids = [row["id"] for row in rows]
        _update(_core(table), tuple(rows[0])).run(session, {"rows": _as_document(rows), "ids": ids})


def _as_document(rows: Sequence[Mapping[str, Any]]) -> str:
    return orjson.dumps(list(rows)).decode()


def write_back(session: Session, objects: Sequence[Base], columns: Sequence[str]) -> None:
    """Writes these columns of loaded objects of one table, and marks the columns as unchanged in the session. Other
    changes wait for the next flush. With a flush instead, a launch takes a fifth more processor time from lease to
    result (`benchmarks/bench_leases.py`).
    """
    if not objects:
        return
    rows = [{name: getattr(item, name) for name in ("id", *columns)} for item in objects]
    with session.no_autoflush:  # a flush would write the same columns
        update_rows(session, type(objects[0]), rows)
    for item, row in zip(objects, rows, strict=True):
        for name in columns if item in session else ():
            set_committed_value(item, name, row[name])


def _core(table: type[Base]) -> Table:
    return cast(Table, table.__table__)


@lru_cache
def _insert(table: Table, columns: tuple[str, ...]) -> PreparedStatement:
    names = ", ".join(columns)
    return PreparedStatement(text(f"INSERT INTO {table.name} ({names}) SELECT {names} FROM {_rows(table, columns)}"))  # noqa: S608


@lru_cache
def _update(table: Table, columns: tuple[str, ...]) -> PreparedStatement:
    values = ", ".join(f"{name} = r.{name}" for name in columns if name != "id")
    # With the ids as an array Postgres uses the index. Postgres cannot estimate the number of rows of the document, and
    # would scan a table of less than some ten thousand rows.
    found = f"{table.name}.id = ANY (CAST(:ids AS varchar[])) AND {table.name}.id = r.id"
    return PreparedStatement(text(f"UPDATE {table.name} SET {values} FROM {_rows(table, columns)} WHERE {found}"))  # noqa: S608


def _rows(table: Table, columns: tuple[str, ...]) -> str:
    types = ", ".join(f"{name} {table.c[name].type.compile(_POSTGRES)}" for name in columns)
    return f"jsonb_to_recordset(CAST(:rows AS jsonb)) AS r({types})"


def upsert(session: Session, table: type[Base]) -> postgresql.Insert | sqlite.Insert:
    """Returns an INSERT for the session's dialect, with `on_conflict_do_nothing` and `on_conflict_do_update`."""
    return sqlite.insert(table) if session.get_bind().dialect.name == "sqlite" else postgresql.insert(table)


_NAME = (func.hashtext(bindparam("kind", type_=String)), func.hashtext(bindparam("name", type_=String)))
_LOCK = PreparedStatement(select(func.pg_advisory_xact_lock(*_NAME)))
_TRY = PreparedStatement(select(func.pg_try_advisory_xact_lock(*_NAME)))


def lock_name(session: Session, kind: str, name: str) -> None:
    """Locks the name until the end of the transaction. Waits for other transactions with a lock on this name."""
    if session.get_bind().dialect.name != "sqlite":
        _LOCK.run(session, {"kind": f"edgefront/{kind}", "name": name})


def try_lock_name(session: Session, kind: str, name: str) -> bool:
    """Locks the name without waiting. Returns False if another transaction has locked it."""
    if session.get_bind().dialect.name == "sqlite":
        return True
    ((locked,),) = _TRY.run(session, {"kind": f"edgefront/{kind}", "name": name})
    return bool(locked)
