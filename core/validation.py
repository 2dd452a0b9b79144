"""Turns pydantic's list of errors into the one error of this project that names the field."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from edgefront.core.errors import InvalidInput

_IN_WORDS = {
    "model_type": "an object",
    "model_attributes_type": "an object",
    "dict_type": "an object",
    "tuple_type": "a list",
    "list_type": "a list",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
}
"""What is allowed, for those of pydantic's errors whose own message uses Python's terms."""

_SHOULD = re.compile(r"^\w+ should (be )?")
_FORMS: dict[str, str] = {}


def form(pattern: str, words: str) -> str:
    """The pattern of a text field, which errors describe in these words."""
    _FORMS[pattern] = words
    return pattern


def invalid_input(error: ValidationError, kind: type[InvalidInput], *, tags: Collection[str] = ()) -> InvalidInput:
    """The first of pydantic's errors as `kind`, with the path of the field, its value and what is allowed.

    `tags` are those of the discriminated unions in the model: they are no part of a field's path.
    """
    first = error.errors(include_url=False)[0]
    # A discriminated union puts its tag into the path after the index: blocks.3.attention.n_head.
    return fault(first, kind, [part for part in first["loc"] if part not in tags])


def fault(
    item: Mapping[str, Any], kind: type[InvalidInput], path: Sequence[str | int], whole: str = "the input"
) -> InvalidInput:
    """One of pydantic's errors as `kind`, at this path; `whole` is the name of what has none."""
    cause = item.get("ctx", {}).get("error")
    if isinstance(cause, InvalidInput):
        return kind(cause.detail, field=cause.path, value=cause.value, allowed=cause.allowed).under(*path)
    field = tuple(str(part) for part in path)
    if item["type"] in ("union_tag_invalid", "union_tag_not_found"):
        return _wrong_tag(kind, field, item["ctx"])
    name, value = ".".join(field) or whole, item.get("input")
    if item["type"] == "missing":
        return kind(f"{name} is missing", field=field, allowed="a value for it: it has no default")
    if item["type"] == "extra_forbidden":
        return kind(f"{name}: there is no such field", field=field, value=value, allowed="leave it out")
    if item["type"] == "value_error":  # a rule between fields: a sentence of its own
        rule = str(cause)
        return kind(f"{name}: {rule}", field=field, value=value, allowed=rule)
    allowed, given = _allowed(item), short(value)
    if item["type"] in ("too_short", "too_long"):
        given = item["ctx"]["actual_length"]  # None if pydantic stopped counting
    rule = allowed if allowed.startswith(("have ", "match ")) else f"be {allowed}"
    detail = f"{name}: must {rule}" + ("" if given is None else f", not {given}")
    return kind(detail, field=field, value=value, allowed=allowed.removeprefix("have "))


def _allowed(item: Mapping[str, Any]) -> str:
    """What would be accepted, to follow `must be`, or beginning with `have` or `match`."""
    kind = item["type"]
    if kind in ("too_short", "too_long"):
        bound, count = ("at least", "min_length") if kind == "too_short" else ("at most", "max_length")
        number = item["ctx"][count]
        return f"have {bound} {number} item{'' if number == 1 else 's'}"
    if kind == "string_pattern_mismatch":
        pattern = item["ctx"]["pattern"]
        return _FORMS.get(pattern, f"match {pattern}")
    message = str(item["msg"])
    return _IN_WORDS.get(kind) or _SHOULD.sub("", message[:1].lower() + message[1:])


def _wrong_tag(kind: type[InvalidInput], part: Sequence[str], context: Mapping[str, Any]) -> InvalidInput:
    """A part whose kind is unknown or missing, as an error of that field."""
    field = (*part, context["discriminator"].strip("'"))
    name = ".".join(field)
    if "tag" not in context:
        return kind(f"{name} is missing", field=field, allowed="a value for it: it has no default")
    allowed = context["expected_tags"].replace("'", "")
    return kind(
        f"{name}: there is no {short(context['tag'])}; there are {allowed}",
        field=field,
        value=context["tag"],
        allowed=allowed,
    )


def one_of(field: str, value: Any, allowed: Collection[str]) -> Any:
    """The value; `InvalidInput` that names the field unless it is among the allowed."""
    if value in allowed:
        return value
    words, shown = ", ".join(allowed), value[:80] if isinstance(value, str) else value
    raise InvalidInput(f"{field} must be one of {words}, not {shown!r}", field=field, value=shown, allowed=words)


def short(value: Any) -> str:
    """A value as a message shows it."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
