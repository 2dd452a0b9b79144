"""Periodic sweep, which repairs the effects of crashes, lost messages and silent devices."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.common.errors import Unavailable
from edgefront.core.services import work
from edgefront.core.services.access import keys
from edgefront.core.services.measuring import anchors, quarantine, stranded
from edgefront.core.services.search.stalled import resume_stalled
from edgefront.core.services.trainings import claims as training_claims
from edgefront.core.store.database import Database

_log = logging.getLogger(__name__)

PARTS: tuple[Callable[[Session, datetime], object], ...] = (
    stranded.end_leases,
    quarantine.hand_over,
    anchors.request,
    stranded.request_processing,
    resume_stalled,
    stranded.forget_ended_leases,
    training_claims.return_expired,
    work.resend,
    keys.purge_web_sessions,
)
"""Parts of a sweep: expired leases and unneeded launches, devices in quarantine, due anchors, reports and targets whose
task was lost, ended leases, lost trainings, unclaimed work, expired sessions.

Each part has its own transaction, so a failure does not undo the others. Several sweeps may run at once, beside claims
and reports, because a sweep skips locked rows and leaves them to the next sweep.
"""


def sweep_once(database: Database) -> None:
    """Runs the parts of a sweep, each in a transaction. If the database is unavailable, a later sweep does the rest."""
    for part in PARTS:
        try:
            with database.write() as session:
                part(session, database.now(session))
        except Unavailable as error:
            _log.warning("sweep postponed: %s", error)
            return
        except Exception:
            _log.exception("a part of the sweep failed: %s", part.__name__)
