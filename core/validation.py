"""Turns pydantic's list of errors into the one error of this project that names the field."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pydantic import ValidationError

from core.errors import InvalidInput


def invalid_input(
    error: ValidationError, kind: type[InvalidInput], prefix: str = "", *, tags: Collection[str] = ()
) -> InvalidInput:
    """The first of pydantic's errors as `kind`, with the dotted path of the field, its value and what is allowed.

    `tags` are those of the discriminated unions in the model: they are no part of a field's path.
    """
    first = error.errors(include_url=False)[0]
    # A discriminated union puts its tag into the path after the index: blocks.3.attention.n_head.
    path = ".".join(str(part) for part in first["loc"] if part not in tags)
    field = ".".join(part for part in (prefix, path) if part)
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InvalidInput):
        nested = ".".join(part for part in (field, cause.field) if part)
        return kind(str(cause.detail), field=nested, value=cause.value, allowed=cause.allowed)
    value: Any = first.get("input")
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        return kind(f"{field} is missing", field=field, allowed="a value for it: it has no default")
    detail = f"{field or 'the input'}: {message[:1].lower() + message[1:]}, not {_short(value)}"
    return kind(detail, field=field, value=value, allowed=message.removeprefix("Input should be "))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
