"""The devices that are online."""

from __future__ import annotations

from datetime import timedelta

ONLINE = timedelta(minutes=1)
"""A device is online if it was seen within this time."""
