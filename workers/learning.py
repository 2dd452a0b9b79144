"""Fits quality laws to trainings, and moves jobs to them: in a thread, one after the other.

Both take seconds of computing, during which reports are settled. What is left when the worker stops is in the rows,
and the sweep requests it again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from edgefront.core.errors import Unavailable
from edgefront.core.services.jobs import law
from edgefront.core.services.quality import refits
from edgefront.core.store.database import Database
from edgefront.workers.searching import in_words

_STOP_S = 10.0

_log = logging.getLogger(__name__)


class Learning:
    """One instance per worker process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._waiting: list[tuple[str, Callable[[], None]]] = []
        """The first one is being done."""
        self._thread: threading.Thread | None = None
        self._stopping = False

    def refit(self, manner: str) -> None:
        """Fits the laws of a manner of training that are wanted."""
        self._add(f"refit {manner}", lambda: refit(self._database, manner))

    def move(self, job_id: str) -> None:
        """Moves a job to the law that its owner asked for."""
        self._add(f"move {job_id}", lambda: move(self._database, job_id))

    def stop(self) -> None:
        """Stops after the current one, or abandons it."""
        with self._lock:
            self._stopping = True
            thread = self._thread
        if thread is not None:
            thread.join(_STOP_S)

    def _add(self, name: str, do: Callable[[], None]) -> None:
        with self._lock:
            # One that is being done may have read its rows before, so that it can wait once more.
            if self._stopping or name in [other for other, _ in self._waiting[1:]]:
                return
            self._waiting.append((name, do))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="edgefront-learning", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._stopping or not self._waiting:
                    self._thread = None
                    return
                name, do = self._waiting[0]
            try:
                do()
            except Exception:
                _log.exception("%s has failed; the sweep requests it again", name)
            with self._lock:
                self._waiting.pop(0)


def refit(database: Database, manner: str) -> None:
    """Fits the laws of a manner of training; an unavailable database is left to the sweep."""
    try:
        refits.refit(database, manner)
    except Unavailable as error:
        _log.warning("laws of manner %s: %s", manner, error)
    except Exception:
        # Otherwise every sweep would try it again.
        _log.exception("no law can be fitted to the trainings of manner %s", manner)
        with suppress(Unavailable):
            refits.give_up(database, manner)


def move(database: Database, job_id: str) -> None:
    """Moves a job to another law; an unavailable database is left to the sweep."""
    try:
        law.carry_out(database, job_id)
    except Unavailable as error:
        _log.warning("the law of job %s: %s", job_id, error)
    except Exception as error:
        _log.exception("job %s cannot be moved to another law", job_id)
        with suppress(Unavailable):
            law.give_up(database, job_id, in_words(error))
