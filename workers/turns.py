"""Owners in turn, where a worker does one thing after the other: searches and scores."""

from __future__ import annotations

from collections.abc import Iterable


class Turns:
    """Whose turn it is: that of whoever has had none for longest."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._taken = 0

    def order(self, owners: Iterable[str]) -> list[str]:
        """Each of the owners once, the next first; of those that have had no turn in the given order."""
        return sorted(dict.fromkeys(owners), key=lambda owner: self._last.get(owner, 0))

    def take(self, owner: str) -> None:
        """Notes that it has had its turn."""
        self._taken += 1
        self._last[owner] = self._taken
