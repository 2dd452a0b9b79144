"""Converts pydantic's validation errors into `InvalidInput`, which names the wrong field."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from edgefront.core.common.errors import InvalidInput

Model = TypeVar("Model", bound=BaseModel)

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
"""Description of the permitted values for each type of pydantic error whose own message uses Python's terms."""

_FEW, _NEAREST, _ALIKE = 12, 3, 0.5
"""Maximum number of names that a message lists in full; otherwise, the number of similar names and the minimum
similarity."""
_SHOULD = re.compile(r"^\w+ should (be )?")
# Path elements that pydantic adds for a value that fits no member of a union.
_UNION_MEMBER = re.compile(
    r"^(str|int|bool|float|none|constrained-[a-z]+|(function|list|dict|tuple|nullable|literal)\W.*)$"
)
_FORMS: dict[str, str] = {}


def form(pattern: str, words: str) -> str:
    """Registers `words` as the description of the regular expression `pattern` in error messages; returns `pattern`."""
    _FORMS[pattern] = words
    return pattern


def invalid_input(
    error: ValidationError,
    kind: type[InvalidInput],
    *,
    tags: Collection[str] = (),
    model: type[BaseModel] | None = None,
) -> InvalidInput:
    """Converts the first of pydantic's errors into a `kind` with the field's path, value and permitted values.

    `tags` of discriminated unions are removed from the path. If `model` is given, the error of an unknown field lists
    the existing fields.
    """
    first = error.errors(include_url=False)[0]
    # A discriminated union puts its tag into the path after the index: blocks.3.attention.n_head.
    path = field_path(first, first["loc"], tags)
    return fault(first, kind, path, choices=fields_at(model, path[:-1]))


def field_path(item: Mapping[str, Any], path: Sequence[Any], tags: Collection[str] = ()) -> list[Any]:
    """Path of the field in one of pydantic's errors, without the elements that unions add: a final type name, and
    `tags`. Keeps the name of an unknown field.
    """
    if item["type"] == "extra_forbidden":
        return [*(part for part in path[:-1] if part not in tags), path[-1]]
    parts = list(path)
    while len(parts) > 1 and isinstance(parts[-1], str) and _UNION_MEMBER.match(parts[-1]):
        parts.pop()
    return [part for part in parts if part not in tags]


def checked(model: type[Model], value: Model | Mapping[str, Any]) -> Model:
    """Validates the value as this model. Raises `InvalidInput`, which names the wrong field."""
    try:
        return model.model_validate(dict(value) if isinstance(value, Mapping) else value)
    except ValidationError as error:
        raise invalid_input(error, InvalidInput, model=model) from None


def fields_at(annotation: Any, path: Sequence[str | int]) -> tuple[str, ...]:
    """Field names of the model at this path of an annotation; empty if there is no model."""
    model = _model_of(annotation)
    for part in path:
        if model is None:
            return ()
        if isinstance(part, str):
            field = model.model_fields.get(part)
            model = None if field is None else _model_of(field.annotation)
    return () if model is None else tuple(model.model_fields)


def _model_of(annotation: Any) -> type[BaseModel] | None:
    """The model class in an annotation such as `Model`, `Model | None` or `tuple[Model, ...]`, if any."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := _model_of(part)) is not None), None)


def fault(
    item: Mapping[str, Any],
    kind: type[InvalidInput],
    path: Sequence[str | int],
    whole: str = "the input",
    choices: Sequence[str] = (),
) -> InvalidInput:
    """Converts one of pydantic's errors into a `kind` with this path.

    `whole` is the name of an input without a path; `choices` are the existing fields, if known.
    """
    cause = item.get("ctx", {}).get("error")
    if isinstance(cause, InvalidInput):
        return kind(cause.detail, field=cause.path, value=cause.value, allowed=cause.allowed).under(*path)
    field = tuple(str(part) for part in path)
    if item["type"] in ("union_tag_invalid", "union_tag_not_found"):
        return _wrong_tag(kind, field, item["ctx"])
    name, value = ".".join(field) or whole, item.get("input")
    if item["type"] == "json_invalid":
        return kind(f"{name} is not JSON: {item['ctx']['error']}", field=field, allowed="JSON")
    if item["type"] == "missing":
        return kind(f"{name} is missing", field=field, allowed="a value for it: it has no default")
    if item["type"] == "extra_forbidden":
        alike = get_close_matches(field[-1][:80].lower(), choices, 1)
        hint = f"; do you mean {alike[0]}?" if alike else f"; {existing(field[-1], choices)}" if choices else ""
        allowed = ", ".join(choices) or "leave it out"
        return kind(f"{name}: there is no such field{hint}", field=field, value=value, allowed=allowed)
    if item["type"] == "value_error":  # a rule between fields: a sentence of its own
        rule = str(cause)
        return kind(f"{name}: {rule}", field=field, value=value, allowed=rule)
    allowed, given = _allowed(item), short(value)
    if isinstance(value, bool):
        given = str(value).lower()  # as JSON writes it
    if item["type"] in ("too_short", "too_long"):
        given = item["ctx"]["actual_length"]  # None if pydantic stopped counting
    rule = allowed if allowed.startswith(("have ", "match ")) else f"be {allowed}"
    detail = f"{name}: must {rule}" + ("" if given is None else f", not {given}")
    return kind(detail, field=field, value=value, allowed=allowed.removeprefix("have "))


def _allowed(item: Mapping[str, Any]) -> str:
    """Permitted values as text after `must be`; texts that begin with `have` or `match` follow `must`."""
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
    """Returns the error for an unknown or missing discriminator of a union."""
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
    """Returns the value. Raises `InvalidInput` if the value is not one of `allowed`."""
    if value in allowed:
        return value
    words, shown = ", ".join(allowed), value[:80] if isinstance(value, str) else value
    raise InvalidInput(f"{field} must be one of {words}, not {shown!r}", field=field, value=shown, allowed=words)


def existing(name: str, choices: Iterable[str], command: str = "") -> str:
    """The end of a message such as `no model named 'gtp2'; …`: lists all existing names if at most `_FEW`, else the
    most similar names and the command that lists all names.
    """
    names = list(choices)
    if len(names) <= _FEW:
        return f"there are {', '.join(names)}" if names else "there are none yet"
    lowered = {choice.lower(): choice for choice in names}
    near = [lowered[match] for match in get_close_matches(name[:80].lower(), lowered, _NEAREST, _ALIKE)]
    nearest = f"the nearest {'is' if len(near) == 1 else 'are'} {', '.join(near)}" if near else ""
    listed = f"`{command}` lists all {len(names)}" if command else f"there are {len(names)}"
    return "; ".join(part for part in (nearest, listed) if part)


def printable(text: str, keep: str = "") -> str:
    """Replaces control characters, except the characters in `keep`, by spaces, because terminals interpret control
    characters and Postgres cannot store NUL.
    """
    if text.isprintable():
        return text
    text = text.encode("utf-8", "replace").decode()
    return "".join(character if character.isprintable() or character in keep else " " for character in text)


def short(value: Any) -> str:
    """The value's `repr` for a message, shortened to 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
