"""The sweeper: puts right what a crash, a lost message or a silent device left behind."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session


def sweep(session: Session, now: datetime) -> None:
    """One pass. Any number of sweepers may run at once."""
    raise NotImplementedError
