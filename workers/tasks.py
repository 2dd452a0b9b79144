"""The tasks. They take milliseconds: the sweep is a few short transactions, the others note what threads are to do."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from edgefront.core.errors import Unavailable
from edgefront.core.services import tasks
from edgefront.core.services.measuring import settling as reports
from edgefront.core.services.settings import Settings
from edgefront.core.services.sweep import PARTS
from edgefront.core.store.database import Database
from edgefront.workers.learning import Learning
from edgefront.workers.scoring.scoring import Scoring
from edgefront.workers.searching import ATTEMPTS, Searching, in_words
from edgefront.workers.targets import Targets
from edgefront.workers.training.pickup import start_waiting

_log = logging.getLogger(__name__)


def register(app: Any, database: Database, settings: Settings) -> None:
    """Adds the tasks to a Celery application."""
    app.edgefront_searching = searching = Searching(database, settings)
    app.edgefront_advancing = advancing = Targets(
        "advancing", database, lambda id_: id_ is not None and searching.step(id_)
    )

    @app.task(name=tasks.ADVANCE, shared=False)  # type: ignore[untyped-decorator]
    def advance(target_id: str) -> None:
        advancing.add(target_id)

    app.edgefront_settling = settling = Targets("settling", database, partial(settle_part, database))

    @app.task(name=tasks.SETTLE, shared=False)  # type: ignore[untyped-decorator]
    def settle_reports(target_id: str | None) -> None:
        settling.add(target_id)

    @app.task(name=tasks.SWEEP, shared=False)  # type: ignore[untyped-decorator]
    def sweep_all() -> None:
        sweep_once(database)

    app.edgefront_scoring = scoring = Scoring(database, settings)

    @app.task(name=tasks.SCORE, shared=False)  # type: ignore[untyped-decorator]
    def score(lane: int) -> None:  # noqa: ARG001
        scoring.start()

    app.edgefront_learning = learning = Learning(database)

    @app.task(name=tasks.REFIT, shared=False)  # type: ignore[untyped-decorator]
    def refit(manner: str) -> None:
        learning.refit(manner)

    @app.task(name=tasks.MOVE_LAW, shared=False)  # type: ignore[untyped-decorator]
    def move_law(job_id: str) -> None:
        learning.move(job_id)

    @app.task(name=tasks.TRAIN, shared=False)  # type: ignore[untyped-decorator]
    def train(queue: str) -> None:
        start_waiting(database, settings, queue)


def settle_target(database: Database, target_id: str | None) -> None:
    """Settles all reports of a target; those that cannot be settled now are left to the sweep."""
    while settle_part(database, target_id):
        pass


def settle_part(database: Database, target_id: str | None) -> bool:
    """Settles some reports of a target; whether there may be more. If the database is away, the sweep requests them."""
    for _ in range(ATTEMPTS):
        try:
            return _settle_some(database, target_id)
        except Unavailable as error:
            _log.warning("settling target %s: %s", target_id, error)
    return False


def _settle_some(database: Database, target_id: str | None) -> bool:
    try:
        with database.write() as session:
            return reports.settle(session, target_id, database.now(session))
    except Unavailable:
        raise
    except Exception:
        # Otherwise one of them would prevent the others from being settled, at every sweep.
        _log.exception("reports of target %s cannot be settled together; each is settled alone", target_id)
    _settle_each(database, target_id)
    return False  # the sweep requests the rest


def _settle_each(database: Database, target_id: str | None) -> None:
    """One transaction per report: with the targets that wait for it; if that fails, without them; if that fails too,
    the launch fails.
    """
    with database.read() as session:
        reported = reports.waiting(session, target_id)
    for row in reported:
        fault = _fault(database, row, with_targets=True)
        if fault is not None:  # perhaps the fault is in a target, whose own `advance` reports it
            fault = _fault(database, row, with_targets=False)
        if fault is None:
            continue
        try:
            with database.write() as session:
                reason = f"its report cannot be settled: {in_words(fault)}"
                reports.give_up(session, row, reason, database.now(session))
        except Unavailable:
            raise
        except Exception:
            _log.exception("launch %s cannot be given up", row.id)


def _fault(database: Database, row: Any, *, with_targets: bool) -> Exception | None:
    """The error that prevents settling this report; None if it was settled."""
    try:
        with database.write() as session:
            reports.settle_these(session, [row], database.now(session), with_targets=with_targets)
    except Unavailable:
        raise
    except Exception as error:
        _log.exception("the report of launch %s cannot be settled, with its targets: %s", row.id, with_targets)
        return error
    return None


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
