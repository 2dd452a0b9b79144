"""Opaque cursors: the position where a page ended, as text that clients send back unchanged."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from edgefront.core.common.errors import InvalidInput

MAX_LENGTH = 500
MAX_NUMBER = (1 << 31) - 1
"""Largest number of an event in its log."""


def encode(value: Sequence[str | float | None]) -> str:
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(text: str, kinds: tuple[type | tuple[type, ...], ...]) -> list[Any]:  # of these types, checked below
    """The list that was passed to `encode`; `InvalidInput` unless its items have these types."""
    try:
        if len(text) > MAX_LENGTH:
            raise ValueError
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        value = json.loads(raw, parse_constant=_refuse)
        if not isinstance(value, list) or len(value) != len(kinds):
            raise ValueError
        if not all(_is_sound(item, kind) for item, kind in zip(value, kinds, strict=True)):
            raise ValueError
    except (binascii.Error, UnicodeError, ValueError, RecursionError):
        raise wrong(text) from None
    return value


def moment(text: str, whole: str) -> datetime:
    """An aware datetime from an item of a cursor; `whole` is the complete cursor, for the error."""
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        raise wrong(whole) from None
    if value.tzinfo is None:
        raise wrong(whole)
    try:
        return value.astimezone(timezone.utc)
    except OverflowError:  # at either end of the calendar
        raise wrong(whole) from None


def wrong(text: str) -> InvalidInput:
    return InvalidInput(
        "cursor: this cursor was not issued for this list; start from the first page",
        field="cursor",
        value=text[:80],
        allowed="next_cursor of the page before, with the same order",
    )


def _is_sound(item: object, kind: type | tuple[type, ...]) -> bool:
    """Whether the value has this type and can be passed to a database."""
    if isinstance(item, bool) or not isinstance(item, kind):
        return False
    if isinstance(item, str):
        return item.isascii() and item.isprintable()
    return not isinstance(item, int) or abs(item) < 1 << 63


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")
