"""A part of the worker that starts trainings: a short task, and a bootstep that requests it periodically."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable
from typing import Any

from celery import bootsteps

from edgefront.core.errors import EdgefrontError, Unavailable
from edgefront.core.services.dispatch import training_queue
from edgefront.core.services.settings import Settings
from edgefront.core.services.tasks import TRAIN, TRAIN_QUEUES
from edgefront.core.services.trainings import claims as training_claims
from edgefront.core.services.trainings.claims import Outcome, Report, TrainingClaim
from edgefront.core.services.trainings.files.folder import deleted_trainings, remove_folder, training_folder
from edgefront.core.services.trainings.machine import cannot_train, machine_of
from edgefront.core.states import TrainingEnding
from edgefront.core.store.database import Database
from edgefront.workers.training.launch import launch, stop_all
from edgefront.workers.training.run_process import is_held

_log = logging.getLogger(__name__)


def start_waiting(
    database: Database, settings: Settings, queue: str, start: Callable[[Settings, TrainingClaim], None] = launch
) -> int:
    """Claims waiting trainings of the queue, as many as this worker has free slots for, and starts a supervisor for
    each. Returns how many. Concurrent calls start nothing twice, because a row is claimed once.
    """
    if queue not in TRAIN_QUEUES or cannot_train(settings) is not None:
        return 0
    machine, started = machine_of(settings), 0
    while True:
        try:
            with database.write() as session:
                now = database.now(session)
                claimed = training_claims.claim(session, machine, queue, now, settings.training.ttl_s)
        except Unavailable as error:
            _log.warning("no training could be claimed: %s", error)
            return started
        if claimed is None:
            return started
        try:
            start(settings, claimed)
        except (OSError, subprocess.CalledProcessError) as error:
            _log.error("training %s could not be started: %s", claimed.training_id, error)
            _count(database, claimed, f"it could not be started on {machine.worker}: {error}")
            return started
        started += 1


def _count(database: Database, claimed: TrainingClaim, reason: str) -> None:
    """Counts an attempt. Otherwise the released training would be claimed again at once, and forever."""
    outcome = Outcome(TrainingEnding.FAILED, reason)
    try:
        with database.write() as session:
            now = database.now(session)
            training_claims.finish(session, claimed.training_id, claimed.fence, Report(), outcome, now)
    except EdgefrontError as error:  # its lease expires
        _log.warning("training %s could not be released: %s", claimed.training_id, error)


def remove_deleted(settings: Settings) -> None:
    """Removes the files of trainings that were deleted elsewhere, or whose supervisors were lost before they removed
    them.
    """
    for training_id in deleted_trainings(settings):
        if not is_held(training_folder(settings, training_id)):
            remove_folder(settings, training_id)


class Trainings(bootsteps.StartStopStep):  # type: ignore[misc]
    """Requests checks of the queues that this worker serves, when it has connected to the broker and periodically after
    that.

    A message is only a hint to check: a lost one, or one in a queue without workers, does no harm.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._entry: Any = None

    def start(self, consumer: Any) -> None:
        settings: Settings = consumer.app.conf.edgefront_settings
        served = [
            queue for queue in TRAIN_QUEUES if training_queue(settings, queue) in consumer.app.amqp.queues.consume_from
        ]
        if not served:
            return
        reason = cannot_train(settings)
        if reason is not None:
            _log.warning("this worker serves training queues, but cannot train: %s", reason)
        remove_deleted(settings)
        interval_s = settings.leases.sweep_s
        self._ask(consumer, served)
        self._entry = consumer.timer.call_repeatedly(interval_s, self._ask, (consumer, served, interval_s))

    def stop(self, consumer: Any) -> None:
        if self._entry is not None:
            self._entry.cancel()
            self._entry = None

    def _ask(self, consumer: Any, served: list[str], interval_s: float | None = None) -> None:
        app = consumer.app
        try:
            for queue in served:
                app.send_task(
                    TRAIN,
                    kwargs={"queue": queue},
                    queue=training_queue(app.conf.edgefront_settings, queue),
                    expires=None if interval_s is None else max(1.0, interval_s),
                    retry=False,
                    ignore_result=True,
                )
        except Exception as error:  # transports raise many types; Celery reconnects, and starts this again
            _log.warning("no check for waiting trainings could be requested: %s", error)


class EndTrainings(bootsteps.StartStopStep):  # type: ignore[misc]
    """Stops the trainings when the worker stops, if `training.end_with_worker` is set."""

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)

    def stop(self, worker: Any) -> None:
        settings: Settings = worker.app.conf.edgefront_settings
        if settings.training.end_with_worker:
            stop_all(settings.home, settings.training.grace_s)

    terminate = stop
