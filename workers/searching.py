"""Advances targets: short transactions in the task, and the computations between them in a separate thread.

Calling an algorithm may take many seconds. It is done in a thread, one step after the other, owners in turn, so that
meanwhile reports are settled and other targets advanced. No transaction or connection is held during the computation.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy.orm import Session

from edgefront.core.errors import EdgefrontError, Unavailable
from edgefront.core.services.heartbeat import interval_s
from edgefront.core.services.search import advance as advancing
from edgefront.core.services.search.computing import BASELINES, Computed, ComputeStep
from edgefront.core.services.search.supernets import WantedSupernet
from edgefront.core.services.settings import Settings
from edgefront.core.store.database import Database
from edgefront.workers.turns import Turns

ATTEMPTS = 3
"""Attempts for one step: two transactions of Postgres may deadlock, and one is rolled back."""

_STOP_S = 10.0

Result = TypeVar("Result")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Work:
    """A step to compute, or to continue storing."""

    step: ComputeStep
    computed: Computed | WantedSupernet | None = None


def advance_target(database: Database, target_id: str, settings: Settings | None = None) -> None:
    """Advances a target as far as possible now, and computes its steps in this thread; `settings` as in
    `ComputeStep.compute`.
    """
    work = _work(next_compute_step(database, target_id))
    while work is not None:
        work = continue_work(database, work, settings)


def next_compute_step(database: Database, target_id: str) -> ComputeStep | None:
    """Advances a target as far as possible without computing, one committed step at a time.

    Returns the next step to compute; None if the target waits for something else or has ended.
    """
    while True:
        try:
            step = _committed(database, lambda session: advancing.advance(session, target_id, database.now(session)))
        except Unavailable as error:
            _log.warning("target %s: %s", target_id, error)
            return None  # the sweep sends it again
        except Exception as error:
            _fail(database, target_id, error)
            return None
        if isinstance(step, ComputeStep):
            return step
        if not step:
            return None


def continue_work(database: Database, work: Work, settings: Settings | None = None) -> Work | None:
    """Computes a step unless that is done, and stores a part of the result in a separate transaction.

    Returns what comes next: the rest of it, or the next step; None if the target waits for something else.
    """
    step = work.step
    try:
        computed = step.compute(settings) if work.computed is None else work.computed
        more = _committed(
            database, lambda session: advancing.store(session, step, computed, database.now(session), settings)
        )
    except Unavailable as error:
        _log.warning("target %s: %s", step.target_id, error)
        return None  # its claim expires, and the sweep sends the task again
    except Exception as error:
        _fail(database, step.target_id, error)
        return None
    if isinstance(more, ComputeStep):
        return Work(step, computed)
    return _work(next_compute_step(database, step.target_id)) if more else None


def _work(step: ComputeStep | None) -> Work | None:
    return None if step is None else Work(step)


class Searching:
    """Computes steps in a thread of this process, one after the other. One instance per worker process."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._lock = threading.Lock()
        self._held: list[Work] = []
        """One is being computed, or a part of it stored; what is left of it then goes to the end."""
        self._turns = Turns()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def advance(self, target_id: str) -> None:
        """Advances a target as far as possible without calling its algorithm, which the thread does."""
        step = next_compute_step(self._database, target_id)
        work = _work(step)
        if work is not None and work.step.number == BASELINES:  # takes milliseconds: a new job need not wait
            work = continue_work(self._database, work, self._settings)
        if work is None:
            return
        with self._lock:
            self._held.append(work)
            if self._thread is None and not self._stopping:
                self._thread = threading.Thread(target=self._run, name="edgefront-searching", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Stops after the current step, or abandons it; other workers get the waiting steps."""
        with self._lock:
            self._stopping = True
            thread = self._thread
        if thread is not None:
            thread.join(_STOP_S)
        with self._lock:
            held = list(self._held)
        if held:
            with suppress(Unavailable), self._database.write() as session:  # else they run out
                advancing.release(session, [work.step for work in held])

    def _run(self) -> None:
        idle = threading.Event()
        beat = threading.Thread(target=self._beat, args=(idle,), name="edgefront-searching-beat", daemon=True)
        beat.start()
        try:
            while (work := self._next()) is not None:
                following = continue_work(self._database, work, self._settings)
                with self._lock:
                    self._held = [one for one in self._held if one is not work]
                    if following is not None:
                        self._held.append(following)
        finally:
            idle.set()
            beat.join()

    def _next(self) -> Work | None:
        """What to do next: of the owner whose turn it is, what has waited longest. None if there is nothing, and the
        thread ends.
        """
        with self._lock:
            if not self._held or self._stopping:
                self._thread = None
                return None
            owner = self._turns.order(work.step.owner for work in self._held)[0]
            self._turns.take(owner)
            return next(work for work in self._held if work.step.owner == owner)

    def _beat(self, idle: threading.Event) -> None:
        while not idle.wait(interval_s(advancing.CLAIM.total_seconds())):
            with self._lock:
                held = list(self._held)
            try:
                with self._database.write() as session:
                    advancing.extend(session, [work.step for work in held], self._database.now(session))
            except Unavailable as error:
                _log.warning("claims of searches were not extended: %s", error)


def _committed(database: Database, step: Callable[[Session], Result]) -> Result:
    """Runs the step in a separate transaction."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with database.write() as session:
                return step(session)
        except Unavailable:
            if attempt == ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def _fail(database: Database, target_id: str, error: Exception) -> None:
    # Otherwise every sweep would try the target again, and nobody would see the error.
    _log.error("target %s cannot continue", target_id, exc_info=error)
    note = f"The search cannot continue: {in_words(error)}"
    try:
        _committed(
            database,
            lambda session: advancing.fail(session, target_id, note, database.now(session)),
        )
    except Unavailable as away:
        _log.warning("target %s: %s", target_id, away)


def in_words(error: Exception) -> str:
    """A note for the user: the message of an error that they can fix, otherwise only its type (the log has the
    rest).
    """
    if isinstance(error, EdgefrontError):
        return error.detail
    return f"internal error ({type(error).__name__}); see the worker's log."
