"""`column IN (a list of any length)` as one statement with one parameter.

An expanding `IN` makes a statement of its own for each length: SQLAlchemy renders it anew, the database plans it anew,
and neither can keep it prepared. Here Postgres gets an array and SQLite a JSON document.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import orjson
from sqlalchemy import BindParameter, ColumnElement, String, bindparam, func, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import Boolean, TypeDecorator, TypeEngine


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
