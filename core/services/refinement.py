"""Further launches, where they can change the frontier."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from core.store.tables import Device, Target


def propose(session: Session, device: Device, max_items: int, now: datetime) -> int:
    """Makes wanted launches for uncertain frontier points of this device's targets; returns how many."""
    raise NotImplementedError


def uncertain(session: Session, target: Target) -> list[str]:
    """Measurement ids that deserve a further launch, the widest interval first, within the target's budget.

    Empty when every place on the frontier is certain, or the budget or `max_launches` is spent: a refining target is
    then finished as soon as it has no open launches. Measurements that have an open launch are not named.
    """
    raise NotImplementedError
