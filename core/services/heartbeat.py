"""How often whoever holds something for a time (a lease, a claim) says that it still works on it."""

from __future__ import annotations

PER_HOLD = 4
"""Heartbeats within the time after which it counts as lost: two may get lost, and one may be late."""


def interval_s(hold_s: float) -> float:
    """Seconds between two heartbeats of what is held for so long after each of them."""
    return hold_s / PER_HOLD
