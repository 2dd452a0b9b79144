"""Escapes text in files that are opened in spreadsheets."""

from __future__ import annotations

from typing import Any

_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def cell(value: Any) -> Any:
    """The value of a cell of a CSV file: text that a spreadsheet would compute as a formula gets an apostrophe first.

    A target may be called `-1` or `@SUM(A1)` by another person than the one who opens the file.
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULAS) else value
