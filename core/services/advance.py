"""Moves a target on: baselines → reference point → generations → refining → finished.

Idempotent under the target's row lock: run twice, late, or killed at any instant and run again, it comes to the same
candidates, because a generation is proposed from its stored snapshot and the target's seed alone.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from core.store.tables import Target


def advance(session: Session, target_id: str, now: datetime) -> bool:
    """One step of a target, in the caller's transaction.

    Settles waiting candidates whose measurement is known by now, makes the launches that are missing, and if the
    phase or generation is complete proposes the next. Returns True if another step can be taken at once (the worker
    then commits and calls again); False if the target waits for devices or has ended. An unknown target is no error:
    its job may have been deleted.
    """
    raise NotImplementedError


def due(session: Session, target: Target, now: datetime) -> bool:
    """Whether `advance` has something to do for this target: cheap; asked after each report in its transaction."""
    raise NotImplementedError


def stalled(session: Session, now: datetime) -> list[str]:
    """Ids of the targets of running jobs for which `advance` should be sent again: for the sweep."""
    raise NotImplementedError
