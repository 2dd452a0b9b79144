"""A worker that notes what it does."""

from __future__ import annotations

import threading
from collections.abc import Callable

from simulated_service import Service
from sqlalchemy import select

from edgefront.core.common.states import WorkKind
from edgefront.core.services import work
from edgefront.core.services.settings import Settings
from edgefront.core.services.work import Claim
from edgefront.core.store.tables import WorkItem
from edgefront.workers.work import Worker


def items(service: Service) -> dict[str, WorkItem]:
    with service.database.read() as session:
        return {item.subject: item for item in session.scalars(select(WorkItem))}


class Recorder(Worker):
    """A worker that notes what it does, and finds more to do for a subject as often as `parts` says."""

    def __init__(self, service: Service, slots: int = 2) -> None:
        super().__init__(service.database, Settings(), slots=slots)
        self.order: list[str] = []
        self.parts: dict[str, int] = {}
        self.blocked: dict[str, threading.Event] = {}
        """Owner → event that lets what is done for the owner end."""
        self.begun = threading.Semaphore(0)
        self.do(self._record)

    def do(self, what: Callable[[Claim], bool | None]) -> None:
        self._kinds = {kind: known._replace(do=what) for kind, known in self._kinds.items()}

    def _record(self, held: Claim) -> bool:
        self.order.append(held.subject)
        self.begun.release()
        if held.owner in self.blocked:
            assert self.blocked[held.owner].wait(60)
        left = self.parts.get(held.subject, 0)
        self.parts[held.subject] = left - 1
        return left > 0

    def request(self, kind: WorkKind, subject: str, owner: str) -> None:
        with self.database.write() as session:
            work.request(session, kind, {subject: owner}, self.database.now(session))
