"""Leases: how devices take launches, keep them, and give them back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from core.wire.agent import HeartbeatResponse, LeaseResponse


def claim(session: Session, device_id: str, max_items: int, now: datetime, ttl_s: float) -> LeaseResponse:
    """Takes up to `max_items` wanted launches that the device can run; `items` is empty if there are none."""
    raise NotImplementedError


def start(session: Session, device_id: str, launch_id: str, fence: int, now: datetime) -> None:
    """The agent starts an item. Conflict if the launch is not (or no longer) leased to it; NotFound if unknown."""
    raise NotImplementedError


def heartbeat(session: Session, device_id: str, lease_id: str, now: datetime, ttl_s: float) -> HeartbeatResponse:
    """Extends a lease. NotFound if it is not the device's; Gone if it has expired (go on, and report all the same)."""
    raise NotImplementedError


def release(session: Session, device_id: str, lease_id: str, launch_ids: Sequence[str], now: datetime) -> None:
    """Gives launches back, all of the lease's unfinished ones if none are named. No attempt is counted."""
    raise NotImplementedError


def wanted_keys(session: Session) -> set[str]:
    """Device keys (`device:<id>`, `class:<name>`) that have wanted launches: what a long poll waits for."""
    raise NotImplementedError
