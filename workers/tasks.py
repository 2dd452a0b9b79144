"""The tasks. Each is a loop of short transactions around one service call."""

from __future__ import annotations

import logging
from typing import Any

from edgefront.core.errors import Unavailable
from edgefront.core.services import tasks
from edgefront.core.services.measuring.settling import settle
from edgefront.core.services.settings import Settings
from edgefront.core.services.sweep import sweep
from edgefront.core.store.database import Database
from edgefront.workers.scoring.scoring import Scoring
from edgefront.workers.searching import ATTEMPTS, Searching
from edgefront.workers.training.pickup import start_waiting

_log = logging.getLogger(__name__)


def register(app: Any, database: Database, settings: Settings) -> None:
    """Adds the tasks to a Celery application."""
    app.edgefront_searching = searching = Searching(database, settings)

    @app.task(name=tasks.ADVANCE, shared=False)  # type: ignore[untyped-decorator]
    def advance(target_id: str) -> None:
        searching.advance(target_id)

    @app.task(name=tasks.SETTLE, shared=False)  # type: ignore[untyped-decorator]
    def settle_reports(target_id: str | None) -> None:
        settle_target(database, target_id)

    @app.task(name=tasks.SWEEP, shared=False)  # type: ignore[untyped-decorator]
    def sweep_all() -> None:
        sweep_once(database)

    app.edgefront_scoring = scoring = Scoring(database, settings)

    @app.task(name=tasks.SCORE, shared=False)  # type: ignore[untyped-decorator]
    def score(lane: int) -> None:  # noqa: ARG001
        scoring.start()

    @app.task(name=tasks.TRAIN, shared=False)  # type: ignore[untyped-decorator]
    def train(queue: str) -> None:
        start_waiting(database, settings, queue)


def settle_target(database: Database, target_id: str | None) -> None:
    """Settles all reports of a target; those that cannot be settled now are left to the sweep."""
    for _ in range(ATTEMPTS):
        try:
            while _settle_some(database, target_id):
                pass
            return
        except Unavailable as error:
            _log.warning("settling target %s: %s", target_id, error)


def _settle_some(database: Database, target_id: str | None) -> bool:
    with database.write() as session:
        return settle(session, target_id, database.now(session))


def sweep_once(database: Database) -> None:
    """One sweep; a database that is away is left to the next."""
    try:
        with database.write() as session:
            sweep(session, database.now(session))
    except Unavailable as error:
        _log.warning("sweep postponed: %s", error)
