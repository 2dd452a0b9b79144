"""Celery tasks: each requests the work that its message names, then does the work that waits (`workers.work`)."""

from __future__ import annotations

import logging
from typing import Any

from edgefront.core.errors import Unavailable
from edgefront.core.services import tasks, work
from edgefront.core.services.settings import Settings
from edgefront.core.services.sweep import PARTS
from edgefront.core.store.database import Database
from edgefront.workers.training.pickup import start_waiting
from edgefront.workers.work import Worker

_log = logging.getLogger(__name__)

_QUEUES = {queue.name: queue for queue in work.QUEUES}


def register(app: Any, worker: Worker, database: Database, settings: Settings) -> None:
    """Adds the tasks to a Celery application."""

    @app.task(name=tasks.ADVANCE, shared=False)  # type: ignore[untyped-decorator]
    def advance(target_id: str) -> None:
        worker.requested(work.REQUESTED_BY[tasks.ADVANCE], target_id)

    @app.task(name=tasks.PROCESS_RESULTS, shared=False)  # type: ignore[untyped-decorator]
    def process_results(target_id: str | None) -> None:
        worker.requested(work.REQUESTED_BY[tasks.PROCESS_RESULTS], target_id or "")

    @app.task(name=tasks.WORK, shared=False)  # type: ignore[untyped-decorator]
    def do_work(queue: str, number: int) -> None:  # noqa: ARG001
        worker.work(_QUEUES[queue])

    @app.task(name=tasks.SWEEP, shared=False)  # type: ignore[untyped-decorator]
    def sweep_all() -> None:
        sweep_once(database)

    @app.task(name=tasks.TRAIN, shared=False)  # type: ignore[untyped-decorator]
    def train(queue: str) -> None:
        start_waiting(database, settings, queue)


def sweep_once(database: Database) -> None:
    """One sweep, with one transaction per part; if the database is unavailable, the rest is left to the next sweep."""
    for part in PARTS:
        try:
            with database.write() as session:
                part(session, database.now(session))
        except Unavailable as error:
            _log.warning("sweep postponed: %s", error)
            return
        except Exception:
            _log.exception("a part of the sweep failed: %s", part.__name__)
