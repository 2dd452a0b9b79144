"""Detached supervisor of a claimed training: `python -m edgefront.workers.training.supervise TRAINING FENCE`.

On SIGTERM the supervisor stops the run, and the training waits in the queue for the next claim.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from typing import Any

_log = logging.getLogger("edgefront.supervise")


def supervise(training_id: str, fence: int) -> None:
    """Supervises a claimed training in this process, with the settings of the environment."""
    from edgefront.core.common.logs import log_facts, log_to_stderr
    from edgefront.core.services.settings import Settings
    from edgefront.core.services.trainings.claims import TrainingClaim
    from edgefront.core.store.database import Database
    from edgefront.workers.training.launch import present
    from edgefront.workers.training.supervisor import Supervisor

    settings = Settings()
    log_to_stderr(settings.log)

    def send(task: str, arguments: dict[str, Any]) -> None:
        # Messages of the memory transport do not leave this process; the embedded worker polls.
        if not settings.embedded:
            from edgefront.core.services.dispatch import sender

            sender(settings)(task, arguments)

    database = Database(settings.database_url, send=send, pool_size=1)
    supervisor = Supervisor(database, settings, training_id, fence)

    def end(*_: object) -> None:
        supervisor.end_requested = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    try:
        with present(settings.home, TrainingClaim(training_id, fence)), log_facts(training=training_id):
            supervisor.run()
    finally:
        database.dispose()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m edgefront.workers.training.supervise", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("training")
    parser.add_argument("fence", type=int)
    given = parser.parse_args()
    if os.fork():
        os._exit(0)  # before slow imports, because the parent waits for this exit
    try:
        supervise(given.training, given.fence)
    except Exception:
        _log.exception("the supervisor failed; its lease expires, and another takes over")
        sys.exit(1)


if __name__ == "__main__":
    main()
