"""Processes what devices have reported, so that one report that cannot be processed holds up no other."""

from __future__ import annotations

import logging

from edgefront.core.errors import Unavailable
from edgefront.core.services.measuring import result_processing as reports
from edgefront.core.services.measuring.queries.launches import UnprocessedLaunch
from edgefront.core.store.database import Database
from edgefront.workers.searching import ATTEMPTS, in_words

_log = logging.getLogger(__name__)


def process_results(database: Database, target_id: str | None) -> None:
    """Processes all reports of a target; those that cannot be processed now are left to the sweep."""
    while process_some(database, target_id):
        pass


def process_some(database: Database, target_id: str | None) -> bool:
    """Processes some reports of a target (None: of deleted ones); whether there may be more. If the database is away,
    the sweep requests them.
    """
    for _ in range(ATTEMPTS):
        try:
            return _process_together(database, target_id)
        except Unavailable as error:
            _log.warning("results of target %s: %s", target_id, error)
    return False


def _process_together(database: Database, target_id: str | None) -> bool:
    try:
        with database.write() as session:
            return reports.process(session, target_id, database.now(session))
    except Unavailable:
        raise
    except Exception:
        # Otherwise one of them would prevent the others from being processed, at every sweep.
        _log.exception("reports of target %s cannot be processed together; each is processed alone", target_id)
    _process_each(database, target_id)
    return False  # the sweep requests the rest


def _process_each(database: Database, target_id: str | None) -> None:
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
                reason = f"its report cannot be processed: {in_words(fault)}"
                reports.give_up(session, row, reason, database.now(session))
        except Unavailable:
            raise
        except Exception:
            _log.exception("launch %s cannot be given up", row.id)


def _fault(database: Database, row: UnprocessedLaunch, *, with_targets: bool) -> Exception | None:
    """The error that prevents processing this report; None if it was processed."""
    try:
        with database.write() as session:
            reports.process_launches(session, [row], database.now(session), with_targets=with_targets)
    except Unavailable:
        raise
    except Exception as error:
        _log.exception("the report of launch %s cannot be processed, with its targets: %s", row.id, with_targets)
        return error
    return None
