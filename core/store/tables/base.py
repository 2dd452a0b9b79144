"""Declarative base, naming of constraints, and the column types that both databases share."""

from __future__ import annotations

import secrets
from datetime import datetime, timezone
from typing import Any, ClassVar, cast

from sqlalchemy import JSON, BigInteger, DateTime, Double, Enum, Integer, MetaData, String
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.types import TypeDecorator, TypeEngine
from ulid import ULID

from edgefront.core.common.states import State


class Base(DeclarativeBase):
    type_annotation_map: ClassVar[dict[Any, Any]] = {float: Double()}
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_N_label)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class UtcDateTime(TypeDecorator[datetime]):
    """Column type of aware datetimes in UTC; naive ones are refused. SQLite stores sortable text with microseconds."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "sqlite":
            return dialect.type_descriptor(String(32))
        return dialect.type_descriptor(DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"datetime {value!r} has no time zone; give a datetime with one")
        value = value.astimezone(timezone.utc)
        return value.strftime("%Y-%m-%d %H:%M:%S.%f") if dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if isinstance(value, str):
            return datetime.fromisoformat(value).replace(tzinfo=timezone.utc)
        return cast(datetime, value).astimezone(timezone.utc)


def state_type(states: type[State], length: int, name: str = "state") -> Enum:
    """Returns the text type of a column of these states. A CHECK constraint called `name` allows only these states."""
    return Enum(
        states,
        name=name,
        length=length,
        values_callable=lambda members: [member.value for member in members],
        native_enum=False,
        create_constraint=True,
        validate_strings=True,
    )


Json = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
BigInt = BigInteger()
AutoId = BigInteger().with_variant(Integer(), "sqlite")


def random_ids(prefix: str, count: int) -> list[str]:
    """Returns `count` ascending identifiers of the form of `new_id`. No identifier can be guessed from the others.

    Each identifier has 80 random bits. Identifiers that `new_id` makes within one millisecond merely count up.
    """
    now = ULID().bytes[:6]
    tails = sorted(secrets.token_bytes(10) for _ in range(count))
    return [f"{prefix}_{str(ULID(now + tail)).lower()}" for tail in tails]


def new_id(prefix: str) -> str:
    """Returns a sortable identifier: prefix, underscore, ULID in lower case."""
    return f"{prefix}_{str(ULID()).lower()}"
