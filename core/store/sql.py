"""Typed rows of queries, and SQL that both databases understand.

- `typed`, `Parsed`, `json_text`: rows of queries as named tuples, and documents in them as models or as text.
- `any_of`: `column IN (a list of any length)` as one statement with one parameter. An expanding `IN` makes a statement
  of its own for each length: SQLAlchemy renders it anew, the database plans it anew, and neither can keep it prepared.
- `upsert`: INSERTs that say what happens if the row exists.
- `lock_name`: locks on a name until the transaction ends.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import orjson
from pydantic import BaseModel
from sqlalchemy import JSON, BindParameter, ColumnElement, Dialect, Result, String, Text, bindparam, func, select
from sqlalchemy import cast as cast_to
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import InstrumentedAttribute, Session
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import Boolean, TypeDecorator, TypeEngine

from edgefront.core.store.tables import Base
from edgefront.core.store.tables.base import Json

if TYPE_CHECKING:
    from typing_extensions import Unpack

Document = dict[str, Any]
"""A JSON document as it is stored: its model says what is in it, once it is parsed."""
Items = list[Any]
"""A JSON list as it is stored: what reads it says what its items are."""

Row = TypeVar("Row", bound=NamedTuple)


class Parsed(TypeDecorator[BaseModel]):
    """A JSON column that a query reads as this model: `type_coerce(column, Parsed(Model))`. `ValidationError` of a
    document that this release cannot read.
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
    """The rows of a query as `kind`, whose fields are named as the query's columns, in their order. `TypeError` of
    others.
    """
    names = tuple(result.keys())
    if names != kind._fields:
        raise TypeError(f"{kind.__name__} has the fields {kind._fields}, and the query the columns {names}")
    return [kind._make(row) for row in result]


def columns(table: type[Base], kind: type[NamedTuple]) -> tuple[InstrumentedAttribute[Any], ...]:
    """The columns of a table that the fields of `kind` name."""
    return tuple(getattr(table, name) for name in kind._fields)


def json_text(column: Any) -> ColumnElement[str]:
    """A JSON column as text, not parsed: for what is passed on, or of which few different ones are read again."""
    return cast_to(column, Text)


class _Texts(TypeDecorator[list[str]]):
    """A list of texts: an array in Postgres, a JSON document in SQLite."""

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
        return self  # a condition as it stands: SQLite would not look for `(...) = 1` in an index


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
    """A parameter for `any_of` in a statement that is made once: a collection of texts, given when it is executed."""
    return bindparam(name, type_=_Texts())


def any_of(column: Any, values: Collection[str] | BindParameter[list[str]]) -> ColumnElement[bool]:
    """Whether the text `column` is among `values`."""
    given = values if isinstance(values, BindParameter) else bindparam(None, list(values), type_=_Texts(), unique=True)
    return _AnyOf(column, given)


def upsert(session: Session, table: type[Base]) -> postgresql.Insert | sqlite.Insert:
    """An INSERT of the session's database, with `on_conflict_do_nothing` and `on_conflict_do_update`."""
    return sqlite.insert(table) if session.get_bind().dialect.name == "sqlite" else postgresql.insert(table)


def _name(kind: str, name: str) -> tuple[ColumnElement[int], ColumnElement[int]]:
    return func.hashtext(f"edgefront/{kind}"), func.hashtext(name)


def lock_name(session: Session, kind: str, name: str) -> None:
    """Waits until no other transaction has the name locked, and locks it. What it then counts stays true."""
    if session.get_bind().dialect.name != "sqlite":
        session.execute(select(func.pg_advisory_xact_lock(*_name(kind, name))))


def try_lock_name(session: Session, kind: str, name: str) -> bool:
    """Locks the name, unless another transaction has: False."""
    if session.get_bind().dialect.name == "sqlite":
        return True
    return bool(session.scalar(select(func.pg_try_advisory_xact_lock(*_name(kind, name)))))
