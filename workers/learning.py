"""Fits quality laws to trainings, and moves jobs to them: in a thread, one after the other, owners in turn.

Both take seconds of computing, during which reports are settled. What is left when the worker stops is in the rows,
and the sweep requests it again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from edgefront.core.errors import Unavailable
from edgefront.core.services.jobs import law
from edgefront.core.services.jobs.queries import jobs as job_rows
from edgefront.core.services.quality import refits
from edgefront.core.store.database import Database
from edgefront.workers.searching import in_words
from edgefront.workers.turns import Turns

_STOP_S = 10.0

_log = logging.getLogger(__name__)


@dataclass
class _Wanted:
    """What is to be done."""

    name: str
    do: Callable[[], None]
    job_id: str | None = None
    owner: str | None = None
    """Of the job; empty for what is nobody's. None: still to be looked up."""


class Learning:
    """One instance per worker process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._waiting: list[_Wanted] = []
        self._turns = Turns()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def refit(self, manner: str) -> None:
        """Fits the laws of a manner of training that are wanted."""
        self._add(_Wanted(f"refit {manner}", lambda: refit(self._database, manner)))

    def move(self, job_id: str) -> None:
        """Moves a job to the law that its owner asked for."""
        self._add(_Wanted(f"move {job_id}", lambda: move(self._database, job_id), job_id))

    def stop(self) -> None:
        """Stops after the current one, or abandons it."""
        with self._lock:
            self._stopping = True
            thread = self._thread
        if thread is not None:
            thread.join(_STOP_S)

    def _add(self, wanted: _Wanted) -> None:
        with self._lock:
            # One that is being done does not wait: it may have read its rows before.
            if self._stopping or wanted.name in [other.name for other in self._waiting]:
                return
            self._waiting.append(wanted)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="edgefront-learning", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while (wanted := self._next()) is not None:
            try:
                wanted.do()
            except Exception:
                _log.exception("%s has failed; the sweep requests it again", wanted.name)

    def _next(self) -> _Wanted | None:
        """What has waited longest of the owner whose turn it is."""
        with self._lock:
            waiting = list(self._waiting)
        for one in waiting:
            if one.owner is None:
                one.owner = self._owner(one.job_id)
        with self._lock:
            if self._stopping or not self._waiting:
                self._thread = None
                return None
            owner = self._turns.order(one.owner or "" for one in self._waiting)[0]
            self._turns.take(owner)
            taken = next(one for one in self._waiting if (one.owner or "") == owner)
            self._waiting.remove(taken)
            return taken

    def _owner(self, job_id: str | None) -> str:
        if job_id is None:
            return ""
        with suppress(Unavailable), self._database.read() as session:
            job = job_rows.find(session, job_id)
            return "" if job is None else job.owner
        return ""


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
