"""Reads rows in pages. A cursor is an opaque text that states where a page ended; clients send it back unchanged."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, TypeVar

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from edgefront.core.common.errors import InvalidInput
from edgefront.core.store.tables import Job, Training

MAX_LENGTH = 500
MAX_NUMBER = (1 << 31) - 1
"""Largest number that an event can have within its event log."""

Row = TypeVar("Row", Job, Training)


def newest_page(
    session: Session, table: type[Row], cursor: str | None, limit: int, **filters: str | None
) -> tuple[list[Row], str | None]:
    """Returns rows after the cursor, newest first, and the next cursor. `filters`: column → value (None: any value)."""
    query = select(table).order_by(table.created_at.desc(), table.id.desc()).limit(limit + 1)
    query = query.where(*(getattr(table, name) == value for name, value in filters.items() if value is not None))
    if cursor is not None:
        created, id_ = decode(cursor, (str, str))
        before = moment(created, cursor)
        query = query.where(or_(table.created_at < before, (table.created_at == before) & (table.id < id_)))
    rows = list(session.scalars(query))
    shown = rows[:limit]
    return shown, encode([shown[-1].created_at.isoformat(), shown[-1].id]) if len(rows) > limit else None


def encode(value: Sequence[str | float | None]) -> str:
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(text: str, kinds: tuple[type | tuple[type, ...], ...]) -> list[Any]:  # Any: the types are checked below
    """Returns the list that `encode` turned into this text. `InvalidInput` if an item is not of its type in `kinds`."""
    try:
        if len(text) > MAX_LENGTH:
            raise ValueError
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        value = json.loads(raw, parse_constant=_refuse)
        if not isinstance(value, list) or len(value) != len(kinds):
            raise ValueError
        if not all(_is_valid(item, kind) for item, kind in zip(value, kinds, strict=True)):
            raise ValueError
    except (binascii.Error, UnicodeError, ValueError, RecursionError):
        raise invalid_cursor(text) from None
    return value


def moment(text: str, cursor: str) -> datetime:
    """Parses an item of the cursor as a UTC time. Raises `InvalidInput` if the item is not a time with a time zone."""
    try:
        value = datetime.fromisoformat(text)
        if value.tzinfo is None:
            raise ValueError
        return value.astimezone(timezone.utc)
    except (ValueError, OverflowError):  # OverflowError: dates at either end of the calendar
        raise invalid_cursor(cursor) from None


def invalid_cursor(text: str) -> InvalidInput:
    return InvalidInput(
        "cursor: this cursor was not issued for this list; start from the first page",
        field="cursor",
        value=text[:80],
        allowed="next_cursor of the page before, with the same order",
    )


def _is_valid(item: object, kind: type | tuple[type, ...]) -> bool:
    """Whether the item has this type and a database can store it."""
    if isinstance(item, bool) or not isinstance(item, kind):
        return False
    if isinstance(item, str):
        return item.isascii() and item.isprintable()
    return not isinstance(item, int) or abs(item) < 1 << 63


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")
