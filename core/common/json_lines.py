"""JSON lines: one JSON object a line.

A line ends at a line feed alone. Text in JSON may hold, as they are, other characters that Unicode ends lines at
(U+2028, U+0085, …), and `str.splitlines` cuts there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, each with its number from 1."""
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def object_in(line: str) -> dict[str, Any]:
    """The object on a line, which may begin with a byte order mark. `ValueError` says what is wrong with the line."""
    try:
        value = json.loads(line.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"is not a JSON object, but a {type(value).__name__}")
    return value
