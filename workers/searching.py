"""Moves targets on: short transactions in the task, and what has to be computed between them beside the worker's tasks.

Asking an algorithm may take many seconds. It is done in a thread, one question after the other, so that reports are
settled and other targets moved on meanwhile. Nobody holds a transaction or a connection while it computes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from sqlalchemy.orm import Session

from edgefront.core.errors import EdgefrontError, Unavailable
from edgefront.core.services.search import advance as advancing
from edgefront.core.services.search.asking import BASELINES, Question
from edgefront.core.services.settings import Settings
from edgefront.core.store.database import Database

ATTEMPTS = 3
"""Tries of one step at once: two transactions of Postgres may meet in a deadlock, of which one is undone."""

BEAT_S = 5.0
"""What is being answered stays claimed: so often its claim is extended (`advancing.CLAIM`)."""

_STOP_S = 10.0

Result = TypeVar("Result")

_log = logging.getLogger(__name__)


def advance_target(database: Database, target_id: str, settings: Settings | None = None) -> None:
    """Takes a target as far as it can go now, and computes here what its next steps need; `settings` as
    `Question.answer` takes them.
    """
    question = next_question(database, target_id)
    while question is not None:
        question = answer_and_go_on(database, question, settings)


def next_question(database: Database, target_id: str) -> Question | None:
    """Takes a target as far as it can go without computing, one committed step at a time.

    Returns what is to be computed then; None if the target waits for something else or has ended.
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
        if isinstance(step, Question):
            return step
        if not step:
            return None


def answer_and_go_on(database: Database, question: Question, settings: Settings | None = None) -> Question | None:
    """Computes an answer, stores it in a transaction of its own, and looks what is to be computed next."""
    try:
        answer = question.answer(settings)
        more = _committed(
            database, lambda session: advancing.store(session, question, answer, database.now(session), settings)
        )
    except Unavailable as error:
        _log.warning("target %s: %s", question.target_id, error)
        return None  # its claim runs out, and the sweep sends it again
    except Exception as error:
        _fail(database, question.target_id, error)
        return None
    return next_question(database, question.target_id) if more else None


class Searching:
    """Answers questions in a thread of this process, one after the other. Made once a worker process."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._lock = threading.Lock()
        self._held: list[Question] = []
        """The first is being answered."""
        self._thread: threading.Thread | None = None
        self._stopping = False

    def advance(self, target_id: str) -> None:
        """Takes a target as far as it can go without asking its algorithm, which the thread does."""
        question = next_question(self._database, target_id)
        if question is not None and question.number == BASELINES:  # takes milliseconds: a new job need not queue for it
            question = answer_and_go_on(self._database, question, self._settings)
        if question is None:
            return
        with self._lock:
            self._held.append(question)
            if self._thread is None and not self._stopping:
                self._thread = threading.Thread(target=self._run, name="edgefront-searching", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Ends after the answer at hand, or leaves it behind; other workers get what waits."""
        with self._lock:
            self._stopping = True
            thread = self._thread
        if thread is not None:
            thread.join(_STOP_S)
        with self._lock:
            held = list(self._held)
        if held:
            with suppress(Unavailable), self._database.write() as session:  # else they run out
                advancing.release(session, held)

    def _run(self) -> None:
        idle = threading.Event()
        beat = threading.Thread(target=self._beat, args=(idle,), name="edgefront-searching-beat", daemon=True)
        beat.start()
        try:
            while (question := self._first()) is not None:
                following = answer_and_go_on(self._database, question, self._settings)
                with self._lock:
                    self._held.remove(question)
                    if following is not None:
                        self._held.append(following)
        finally:
            idle.set()
            beat.join()

    def _first(self) -> Question | None:
        """The question to answer; None where there is none, and the thread ends."""
        with self._lock:
            if not self._held or self._stopping:
                self._thread = None
                return None
            return self._held[0]

    def _beat(self, idle: threading.Event) -> None:
        while not idle.wait(BEAT_S):
            with self._lock:
                held = list(self._held)
            try:
                with self._database.write() as session:
                    advancing.extend(session, held, self._database.now(session))
            except Unavailable as error:
                _log.warning("claims of searches were not extended: %s", error)


def _committed(database: Database, step: Callable[[Session], Result]) -> Result:
    """The step, in a transaction of its own."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with database.write() as session:
                return step(session)
        except Unavailable:
            if attempt == ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def _fail(database: Database, target_id: str, error: Exception) -> None:
    # A target that cannot go on would otherwise be tried again by every sweep, and nobody told.
    _log.error("target %s cannot continue", target_id, exc_info=error)
    try:
        _committed(database, lambda session: advancing.fail(session, target_id, _note(error), database.now(session)))
    except Unavailable as away:
        _log.warning("target %s: %s", target_id, away)


def _note(error: Exception) -> str:
    """For the user: what they can mend in words, anything else by name (the log has the rest)."""
    if isinstance(error, EdgefrontError):
        return f"The search cannot continue: {error.detail}"
    return f"The search cannot continue: internal error ({type(error).__name__}); see the worker's log."
