"""Advances targets by short transactions, with the computations between them.

Calling an algorithm may take many seconds: `take_short_steps` leaves it to `compute_step`, for which there is a queue
of its own. No transaction or connection is held during the computation.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.orm import Session

from edgefront.core.errors import EdgefrontError, Unavailable
from edgefront.core.services import work
from edgefront.core.services.search import advance as advancing
from edgefront.core.services.search.computing import ComputeStep
from edgefront.core.services.search.proposing import BEFORE_SEARCH
from edgefront.core.services.settings import Settings
from edgefront.core.states import WorkKind
from edgefront.core.store.database import Database

ATTEMPTS = 3
"""Attempts for one step: two transactions of Postgres may deadlock, and one is rolled back."""

Result = TypeVar("Result")

_log = logging.getLogger(__name__)


def take_short_steps(database: Database, target_id: str, settings: Settings) -> bool:
    """Takes one short step of a target and returns whether another can be taken at once. A step that has to be computed
    is requested from the workers that do so.
    """
    step = take_step(database, target_id)
    if not isinstance(step, ComputeStep):
        return step
    if step.number == BEFORE_SEARCH:  # takes milliseconds
        return compute_and_store(database, step, settings)
    with database.write() as session:
        work.request(session, WorkKind.SEARCH, {target_id: step.owner}, database.now(session))
        work.wake(session, work.SEARCH)
    return False


def compute_step(database: Database, target_id: str, settings: Settings) -> None:
    """Computes a target's next step and stores it; what follows is requested from `take_short_steps`."""
    step = next_compute_step(database, target_id)
    if step is not None and compute_and_store(database, step, settings):
        with database.write() as session:
            work.request(session, WorkKind.ADVANCE, {target_id: step.owner}, database.now(session))
            work.wake(session, work.SHORT)


def next_compute_step(database: Database, target_id: str) -> ComputeStep | None:
    """Advances a target as far as possible without computing, one committed step at a time.

    Returns the next step to compute; None if the target waits for something else or has ended.
    """
    while True:
        step = take_step(database, target_id)
        if isinstance(step, ComputeStep):
            return step
        if not step:
            return None


def take_step(database: Database, target_id: str) -> bool | ComputeStep:
    """Takes and commits one step of a target; returns whether another can be taken at once, or the step to compute."""
    return committed(database, lambda session: advancing.advance(session, target_id, database.now(session)))


def compute_and_store(database: Database, step: ComputeStep, settings: Settings | None = None) -> bool:
    """Computes a step, and stores the result in parts, one transaction each; returns whether another step can be taken
    at once. `settings` as in `ComputeStep.compute`.
    """
    more: bool | ComputeStep = step
    computed = step.compute(settings)
    while isinstance(more, ComputeStep):
        more = committed(
            database, lambda session: advancing.store(session, step, computed, database.now(session), settings)
        )
    return more


def committed(database: Database, step: Callable[[Session], Result]) -> Result:
    """Runs the step in a separate transaction; again, up to `ATTEMPTS` times, where another has locked its rows."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with database.write() as session:
                return step(session)
        except Unavailable:
            if attempt == ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def fail(database: Database, target_id: str, reason: str) -> None:
    """Ends a target that cannot continue, and says why."""
    note = f"The search cannot continue: {reason}"
    committed(database, lambda session: advancing.fail(session, target_id, note, database.now(session)))


def in_words(error: Exception) -> str:
    """A note for the user: the message of an error that they can fix, otherwise only its type (the log has the
    rest).
    """
    if isinstance(error, EdgefrontError):
        return error.detail
    return f"internal error ({type(error).__name__}); see the worker's log."
