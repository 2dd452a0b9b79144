"""Retention: deletes jobs and trainings that ended long ago, or the oldest trainings beyond a bound of bytes.

Workers do it every hour if a setting of the group `retention` is given. `python -m edgefront.workers.retention` does it
now, and with `--dry-run` only lists what it would delete.
"""

from __future__ import annotations

import argparse
import logging
import sys
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import load_only

from edgefront.core.common.errors import Conflict, NotFound
from edgefront.core.common.processes.program import run_program
from edgefront.core.common.states import KeyRole
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.jobs import lifecycle as jobs
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings import lifecycle as trainings
from edgefront.core.services.trainings.folder import remove_folder, stored_bytes
from edgefront.core.services.trainings.views import start_of
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Job, Training

INTERVAL_S = 3600.0
_ADMIN = Principal("retention", "retention", "retention", KeyRole.ADMIN)

_log = logging.getLogger("edgefront.audit")


class Expired(NamedTuple):
    """A job or training that is to be deleted."""

    kind: Literal["job", "training"]
    id: str
    owner: str
    ended_at: datetime

    def __str__(self) -> str:
        return f"{self.kind} {self.id} of {self.owner}, ended {self.ended_at:%Y-%m-%d %H:%M}"


def expired(database: Database, settings: Settings) -> list[Expired]:
    """Returns what the settings no longer keep, oldest first. A training from which another one starts is kept."""
    keep = settings.retention
    with database.read() as session:
        now = database.now(session)
        old = list[Expired]()
        if keep.jobs_days is not None:
            ended_before = Job.finished_at < now - timedelta(days=keep.jobs_days)
            jobs_of = select(Job.id, Job.owner, Job.finished_at).where(ended_before).order_by(Job.finished_at)
            old = [
                Expired("job", id_, owner, ended_at) for id_, owner, ended_at in session.execute(jobs_of) if ended_at
            ]
        read = load_only(Training.owner, Training.finished_at, Training.request)
        every = list(session.scalars(select(Training).options(read).order_by(Training.finished_at)))
        needed = {start_of(training) for training in every if training.finished_at is None}
        ended = [
            Expired("training", training.id, training.owner, training.finished_at)
            for training in every
            if training.finished_at is not None and training.id not in needed
        ]
    sizes = {training.id: 0 for training in every}
    if keep.trainings_bytes is not None:  # reads folders, so after the transaction
        sizes = {id_: stored_bytes(settings, [id_]) for id_ in sizes}
    total = sum(sizes.values())
    for training in ended:
        too_old = keep.trainings_days is not None and training.ended_at < now - timedelta(days=keep.trainings_days)
        if too_old or total > (keep.trainings_bytes or total):
            old.append(training)
            total -= sizes[training.id]
    return old


def delete_expired(database: Database, settings: Settings) -> int:
    """Deletes what the settings no longer keep, and returns the number. A running search keeps its supernet."""
    deleted = 0
    for item in expired(database, settings):
        try:
            with database.write() as session:
                if item.kind == "job":
                    jobs.delete_job(session, _ADMIN, item.id, database.now(session))
                else:
                    trainings.delete_training(session, _ADMIN, item.id)
        except (NotFound, Conflict):
            continue
        _log.info("retention deleted %s", item)
        deleted += 1
        if item.kind == "training":
            remove_folder(settings, item.id)
    return deleted


def main() -> None:
    description = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m edgefront.workers.retention", description=description)
    parser.add_argument("--dry-run", action="store_true", help="list what would be deleted, and delete nothing")
    dry_run, settings = parser.parse_args().dry_run, Settings()
    database = Database(settings.database_url, pool_size=1)
    try:
        if dry_run:
            sys.stdout.write("".join(f"{item}\n" for item in expired(database, settings)) or "nothing to delete\n")
        else:
            sys.stdout.write(f"{delete_expired(database, settings)} deleted\n")
    finally:
        database.dispose()


if __name__ == "__main__":
    run_program(lambda: main)
