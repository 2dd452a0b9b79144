"""Everything that a request would be refused for, instead of the first alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from edgefront.core.errors import EdgefrontError

Result = TypeVar("Result")


class Faults:
    """What a request would be refused for: every error once, in the order in which it was found."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], EdgefrontError] = {}

    def __iter__(self) -> Iterator[EdgefrontError]:
        return iter(self._found.values())

    def attempt(self, do: Callable[[], Result]) -> Result | None:
        """What it returns; None if it raises an error, which is kept."""
        try:
            return do()
        except EdgefrontError as error:
            self._found.setdefault((error.field, error.detail), error)
            return None

    def raise_first(self) -> None:
        """Nothing where there are none."""
        for fault in self:
            raise fault
