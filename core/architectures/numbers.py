"""Real numbers in a description, each an integer or a text, because canonical JSON has no floats."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from edgefront.core.common.validation import form

MAX_FLOAT32 = 3.4028234663852886e38
"""Largest float32, the maximum because model files store these numbers as float32."""
_MAX_WHOLE = 1 << 53
"""Largest integer up to which a float represents every integer."""
_WORDS = "a positive number of at most 3.4e38"
_TEXT = form(r"^[0-9]{1,40}(\.[0-9]{1,40})?(e[+-]?[0-9]{1,3})?$", f"{_WORDS}, as text")


def is_positive(value: Any) -> bool:
    """Whether the value is a positive number that float32 can represent."""
    return type(value) in (int, float) and 0 < value <= MAX_FLOAT32


def as_text(value: float) -> str:
    """Shortest decimal text that is parsed as exactly this number; negative powers of ten are written like 1e-5."""
    value = float(value)
    power = f"1e{round(math.log10(value))}"
    return power if value < 1 and float(power) == value else repr(value)


def as_number(value: float) -> int | str:
    """Canonical form of a number: an integer stays an integer, any other number becomes text."""
    return int(value) if value == int(value) and value <= _MAX_WHOLE else as_text(value)


def _read_text(text: str) -> str:
    if not is_positive(float(text)):
        raise ValueError(f"must be {_WORDS}, as text")
    return as_text(float(text))


def _read(value: Any) -> Any:
    if isinstance(value, str):
        try:
            number: float = float(value)
        except ValueError:
            number = math.nan
    else:
        number = value if type(value) is int else math.nan
    if not is_positive(number):
        raise ValueError(f"must be {_WORDS}, whole or as text")
    return as_number(number)


NumberText = Annotated[str, Field(pattern=_TEXT), AfterValidator(_read_text)]
"""A positive number as text: "1e-5"."""
Number = Annotated[int | str, BeforeValidator(_read)]
"""A positive number as an integer or text: 10000, or "10000.5"."""
