"""Processes what devices have reported, so that one report that cannot be processed holds up no other."""

from __future__ import annotations

import logging
from functools import partial

from edgefront.core.errors import Unavailable
from edgefront.core.services.measuring import result_processing as reports
from edgefront.core.store.database import Database
from edgefront.workers.searching import committed, in_words

_log = logging.getLogger(__name__)


def process_some(database: Database, target_id: str | None, *, is_last: bool) -> bool:
    """Processes some reports of a target (None: of deleted ones); whether there may be more.

    Raises what prevents the processing of a report, after all others were processed. At the last attempt it raises
    nothing, and the launches of such reports fail.
    """
    try:
        return committed(database, lambda session: reports.process(session, target_id, database.now(session)))
    except Unavailable:
        raise
    except Exception:
        _log.exception("reports of target %s cannot be processed together; each is processed alone", target_id)
    with database.read() as session:
        reported = reports.waiting(session, target_id)
    faults = [(*row, fault) for row in reported.items() if (fault := _fault(database, *row)) is not None]
    if faults and not is_last:
        raise faults[0][-1]
    for launch_id, measurement_id, fault in faults:
        reason = f"its report cannot be processed: {in_words(fault)}"
        given_up = partial(reports.give_up, launch_id=launch_id, measurement_id=measurement_id, reason=reason)
        committed(database, lambda session: given_up(session, now=database.now(session)))  # noqa: B023
    return False  # the sweep requests the rest


def _fault(database: Database, launch_id: str, measurement_id: str) -> Exception | None:
    """The error that prevents processing this report, alone and without the targets that wait for it; None if it was
    processed.
    """
    for with_targets in (True, False):  # perhaps the fault is in a target, whose own `advance` reports it
        try:
            with database.write() as session:
                one = {launch_id: measurement_id}
                reports.process_launches(session, one, database.now(session), with_targets=with_targets)
        except Unavailable:
            raise
        except Exception as error:
            _log.exception("the report of launch %s cannot be processed, with its targets: %s", launch_id, with_targets)
            fault = error
        else:
            return None
    return fault
