"""Fits quality laws to trainings, and moves jobs to other laws."""

from __future__ import annotations

import logging

from edgefront.core.errors import Unavailable
from edgefront.core.services.jobs import law, probes
from edgefront.core.services.quality import refits
from edgefront.core.store.database import Database
from edgefront.workers.searching import in_words

_log = logging.getLogger(__name__)


def refit(database: Database, key: str) -> None:
    """Fits the laws of a comparability key. Raises `Unavailable` if the database is away."""
    try:
        refits.refit(database, key)
    except Unavailable:
        raise
    except Exception:
        # Otherwise every sweep would try it again.
        _log.exception("no law can be fitted to the comparable trainings %s", key)
        refits.give_up(database, key)
    with database.write() as session:
        probes.move_learnt(session, database.now(session))


def move(database: Database, job_id: str) -> None:
    """Moves a job to the law that its owner asked for. Raises `Unavailable` if the database is away."""
    try:
        law.carry_out(database, job_id)
    except Unavailable:
        raise
    except Exception as error:
        _log.exception("job %s cannot be moved to another law", job_id)
        law.give_up(database, job_id, in_words(error))
