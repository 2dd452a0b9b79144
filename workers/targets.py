"""What is to be done for targets, in threads of a worker: owners in turn, each target once however often it was sent.

The tasks `advance` and `settle` only note their target here, which takes microseconds, so that however many messages
one owner causes, the queue is empty again at once. What a worker that dies had noted, the sweep finds in the rows.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from edgefront.core.errors import Unavailable
from edgefront.core.services.jobs.queries import jobs as rows
from edgefront.core.store.database import Database
from edgefront.workers.turns import Turns

AT_ONCE = 2
"""Owners for whom something is done at once: a step may wait for a row that a request of its owner has locked."""

_KNOWN = 10_000
"""Targets whose owners are remembered."""
_STOP_S = 10.0

_log = logging.getLogger(__name__)

Noted = str | None
"""The id of a target; None stands for deleted ones."""


class Targets:
    """The targets that wait for one kind of task. One instance per kind and worker process.

    Args:
        name: of the threads. do: one short step for a target; returns whether there is more to do for it. It then
        waits again for its owner's turn, behind the owner's other targets.
    """

    def __init__(self, name: str, database: Database, do: Callable[[Noted], bool]) -> None:
        self._name = name
        self._database = database
        self._do = do
        self._lock = threading.Lock()
        self._noted: set[Noted] = set()
        self._new: list[Noted] = []
        """Of these the owners are still to be looked up."""
        self._of: dict[str, dict[Noted, None]] = {}
        """Owner → targets that wait, in the order in which they came."""
        self._owners: dict[str, str] = {}
        self._busy: set[str] = set()
        self._turns = Turns()
        self._threads: set[threading.Thread] = set()
        self._stopping = False

    def add(self, target_id: Noted) -> None:
        """Notes a target, unless it waits already. One for which something is being done is done once more."""
        with self._lock:
            if self._stopping or target_id in self._noted:
                return
            self._noted.add(target_id)
            self._new.append(target_id)
            self._start()

    def stop(self) -> None:
        """Stops after the current steps, or abandons them; the sweep of another worker finds what waits."""
        with self._lock:
            self._stopping = True
            threads = list(self._threads)
        end = time.monotonic() + _STOP_S
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _start(self) -> None:
        if len(self._threads) < AT_ONCE:
            thread = threading.Thread(target=self._run, name=f"edgefront-{self._name}", daemon=True)
            self._threads.add(thread)
            thread.start()

    def _run(self) -> None:
        while (taken := self._next()) is not None:
            owner, target_id = taken
            more = False
            try:
                more = self._do(target_id)
            except Exception:
                _log.exception("%s target %s failed; the sweep sends it again", self._name, target_id)
            with self._lock:
                self._busy.discard(owner)
            if more:
                self.add(target_id)

    def _next(self) -> tuple[str, Noted] | None:
        """The next target of the owner whose turn it is. None if nothing waits but for owners for whom another thread
        does something, and this one ends.
        """
        while True:
            with self._lock:
                new, self._new = self._new, []
                if not new:
                    owners = self._turns.order(owner for owner in self._of if owner not in self._busy)
                    if not owners or self._stopping:
                        self._threads.discard(threading.current_thread())
                        return None
                    if len(owners) > 1:
                        self._start()
                    return self._take(owners[0])
            found = self._look_up(new)
            with self._lock:
                for target_id in new:
                    self._of.setdefault(found[target_id], {})[target_id] = None

    def _take(self, owner: str) -> tuple[str, Noted]:
        self._turns.take(owner)
        self._busy.add(owner)
        waiting = self._of[owner]
        target_id = next(iter(waiting))
        del waiting[target_id]
        if not waiting:
            del self._of[owner]
        self._noted.discard(target_id)
        return owner, target_id

    def _look_up(self, target_ids: list[Noted]) -> dict[Noted, str]:
        """Target → owner; of those that are deleted, and of all while the database is away, nobody."""
        unknown = [id_ for id_ in target_ids if id_ is not None and id_ not in self._owners]
        if unknown:
            try:
                with self._database.read() as session:
                    found = rows.owners_of(session, unknown)
            except Unavailable as error:
                _log.warning("owners of targets: %s", error)
            except Exception:
                _log.exception("owners of targets")
            else:
                kept = self._owners if len(self._owners) < _KNOWN else {}
                self._owners = kept | found
        return {id_: self._owners.get(id_ or "", "") for id_ in target_ids}
