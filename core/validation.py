"""Turns pydantic's list of errors into the one error of this project that names the field."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from core.errors import InvalidInput


def invalid_input(error: ValidationError, kind: type[InvalidInput], prefix: str = "") -> InvalidInput:
    """The first of pydantic's errors as `kind`, with the dotted path of the field, its value and what is allowed."""
    first = error.errors(include_url=False)[0]
    path = ".".join(str(part) for part in first["loc"] if not _is_union_tag(part, first["loc"]))
    field = ".".join(part for part in (prefix, path) if part)
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InvalidInput):
        nested = ".".join(part for part in (field, cause.field) if part)
        return kind(str(cause.detail), field=nested, value=cause.value, allowed=cause.allowed)
    value: Any = first.get("input")
    message = first["msg"].removeprefix("Value error, ")
    shown = "" if first["type"] == "missing" else f", not {_short(value)}"
    detail = f"{field or 'the input'}: {message[:1].lower() + message[1:]}{shown}"
    return kind(detail, field=field, value=None if first["type"] == "missing" else value, allowed=message)


def _is_union_tag(part: Any, location: tuple[Any, ...]) -> bool:
    # A discriminated union puts its tag into the path after the index: blocks.3.attention.n_head.
    position = location.index(part)
    return isinstance(part, str) and position > 0 and isinstance(location[position - 1], int)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
