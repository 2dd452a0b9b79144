"""Advances targets: short transactions in one thread (`targets`), and the computations between them in another.

Calling an algorithm may take many seconds. It is done in threads, owners in turn and of each owner one step after the
other, so that meanwhile reports are settled, other targets advanced, and a second owner's steps computed. No
transaction or connection is held during the computation.
"""

from __future__ import annotations

import logging
import threading
import time
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

AT_ONCE = 2
"""Owners whose steps are computed at once: they share a core, and more would slow down the tasks beside them."""

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
        step = take_step(database, target_id)
        if isinstance(step, ComputeStep):
            return step
        if not step:
            return None


def take_step(database: Database, target_id: str) -> bool | ComputeStep:
    """One committed step of a target: whether another can be taken at once, or the one to compute next."""
    try:
        return _committed(database, lambda session: advancing.advance(session, target_id, database.now(session)))
    except Unavailable as error:
        _log.warning("target %s: %s", target_id, error)
    except Exception as error:
        _fail(database, target_id, error)
    return False  # if the database is away, the sweep sends it again


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
    """Computes steps in threads of this process, of one owner one after the other. One instance per worker process."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._lock = threading.Lock()
        self._held: list[Work] = []
        """Of each busy owner one is being computed, or a part of it stored; what is left of it then goes to the end."""
        self._busy: set[str] = set()
        self._turns = Turns()
        self._threads: set[threading.Thread] = set()
        self._idle = threading.Event()
        """Set when the last thread ends: the beat, which extends the claims for all of them, then ends too."""
        self._beating: threading.Thread | None = None
        self._stopping = False

    def advance(self, target_id: str) -> None:
        """Advances a target as far as possible without calling its algorithm, which a thread does."""
        while self.step(target_id):
            pass

    def step(self, target_id: str) -> bool:
        """Takes one step of a target, or has a thread compute it; whether another can be taken at once."""
        step = take_step(self._database, target_id)
        if not isinstance(step, ComputeStep):
            return step
        work: Work | None = Work(step)
        if step.number == BASELINES:  # takes milliseconds: a new job need not wait
            work = continue_work(self._database, Work(step), self._settings)
        if work is not None:
            self._hold(work)
        return False

    def _hold(self, work: Work) -> None:
        with self._lock:
            self._held.append(work)
            free = work.step.owner not in self._busy and len(self._threads) < AT_ONCE
            if free and not self._stopping:
                thread = threading.Thread(target=self._run, name="edgefront-searching", daemon=True)
                if not self._threads:
                    self._idle = threading.Event()
                    self._beating = threading.Thread(
                        target=self._beat, args=(self._idle,), name="edgefront-searching-beat", daemon=True
                    )
                    self._beating.start()
                self._threads.add(thread)
                thread.start()

    def stop(self) -> None:
        """Stops after the current step, or abandons it; other workers get the waiting steps."""
        with self._lock:
            self._stopping = True
            threads = [*self._threads, *([] if self._beating is None else [self._beating])]
        end = time.monotonic() + _STOP_S
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        with self._lock:
            held = list(self._held)
        if held:
            with suppress(Unavailable), self._database.write() as session:  # else they run out
                advancing.release(session, [work.step for work in held])

    def _run(self) -> None:
        try:
            while (work := self._next()) is not None:
                following = continue_work(self._database, work, self._settings)
                with self._lock:
                    self._busy.discard(work.step.owner)
                    self._held = [one for one in self._held if one is not work]
                    if following is not None:
                        self._held.append(following)
        finally:
            with self._lock:
                self._leave()

    def _next(self) -> Work | None:
        """What to do next: of the owner whose turn it is, what has waited longest. None if there is nothing but what
        other threads do, and this one ends.
        """
        with self._lock:
            owners = self._turns.order(one.step.owner for one in self._held if one.step.owner not in self._busy)
            if not owners or self._stopping:
                self._leave()
                return None
            self._turns.take(owners[0])
            self._busy.add(owners[0])
            return next(work for work in self._held if work.step.owner == owners[0])

    def _leave(self) -> None:
        """This thread computes no more. Under the lock, with the look for work: what is added later starts another."""
        self._threads.discard(threading.current_thread())
        if not self._threads:
            self._idle.set()

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
        while _committed(database, lambda session: advancing.fail(session, target_id, note, database.now(session))):
            pass
    except Unavailable as away:
        _log.warning("target %s: %s", target_id, away)


def in_words(error: Exception) -> str:
    """A note for the user: the message of an error that they can fix, otherwise only its type (the log has the
    rest).
    """
    if isinstance(error, EdgefrontError):
        return error.detail
    return f"internal error ({type(error).__name__}); see the worker's log."
