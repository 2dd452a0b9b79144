"""A Celery worker inside another process: what `edgefront up` runs beside the API."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from celery import Celery
from celery.concurrency.thread import TaskPool
from celery.exceptions import WorkerShutdown
from celery.worker import WorkController

from edgefront.core.services import work
from edgefront.core.services.dispatch import training_queue, work_queue
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.machine import served_queues
from edgefront.core.store.database import Database
from edgefront.workers.app import create_celery, open_database

WAKE = "edgefront.wake"
"""A task that does nothing: it wakes the worker, so that it stops at once."""

SLOTS = 4
"""Tasks at once. They share one core, and one slot is left to what takes milliseconds."""

_log = logging.getLogger(__name__)


class EmbeddedWorker:
    """A worker on threads, on the memory transport of this process (or any other broker).

    Like every worker it starts with a sweep: messages of the memory transport are lost with their process, and the
    sweep derives them from the rows. It serves the queues of trainings that this machine can run. Use as a context
    manager, or call `start` and `stop`.
    """

    def __init__(self, settings: Settings, database: Database | None = None) -> None:
        self._settings = settings
        self._own = None if database is not None else open_database(settings)
        self._app = create_celery(settings, database or self._own)
        self._worker: _Controller | None = None
        self._thread: threading.Thread | None = None

    def start(self, timeout_s: float = 30.0) -> None:
        """Returns once the worker takes messages. RuntimeError if it does not start in time."""
        self._app.task(_nothing, name=WAKE, shared=False)
        trains = [training_queue(self._settings, queue) for queue in served_queues(self._settings)]
        self._worker = _Controller(
            app=self._app,
            pool_cls=_Threads,
            concurrency=SLOTS,
            without_heartbeat=True,
            without_mingle=True,
            without_gossip=True,
            queues=[*(work_queue(self._settings, queue.name) for queue in work.QUEUES), *trains],
        )
        self._thread = threading.Thread(target=self._work, args=(self._worker,), name="edgefront-worker", daemon=True)
        self._thread.start()
        if not self._worker.ready.wait(timeout_s):
            raise RuntimeError(f"the embedded worker did not start within {timeout_s:g} s; see the log")

    def stop(self, timeout_s: float = 30.0) -> None:
        """Stops after the current task. Queued tasks are found by the sweep of the next start."""
        worker, thread = self._worker, self._thread
        self._worker = self._thread = None
        if worker is None or thread is None:
            return
        self._app.conf.edgefront_worker.stop()
        worker.end_soon()
        try:
            self._app.send_task(WAKE, queue=self._app.conf.task_default_queue, retry=False)
        except Exception as error:  # the broker is unavailable: the worker stops when its wait times out
            _log.debug("the worker could not be woken: %s", error)
        thread.join(timeout_s)
        if thread.is_alive():
            _log.warning("the embedded worker is still busy after %g s and is abandoned", timeout_s)
        worker.timer.stop()
        if self._own is not None:
            self._own.dispose()

    def __enter__(self) -> EmbeddedWorker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _work(self, worker: _Controller) -> None:
        # Celery looks tasks up in the thread's current application, and several services may run in one process.
        self._app.set_current()
        worker.start()


class _Threads(TaskPool):  # type: ignore[misc]
    """Celery's pool of threads, for one of several applications in a process: its threads look tasks up in theirs."""

    def __init__(self, *args: Any, app: Celery, **options: Any) -> None:
        super().__init__(*args, app=app, **options)
        self.executor = ThreadPoolExecutor(self.limit, "edgefront-task", initializer=app.set_current)


class _Controller(WorkController):  # type: ignore[misc]
    """Celery's worker without its command line: it installs no signal handlers."""

    def __init__(self, *, app: Celery, **options: Any) -> None:
        self.ready = threading.Event()
        super().__init__(app=app, **options)

    def on_consumer_ready(self, consumer: Any) -> None:
        self.ready.set()

    def end_soon(self) -> None:
        # Celery stops by a flag of the whole process; this stops only this worker.
        self.consumer.call_soon(_shut_down)


def _nothing() -> None:
    """See `WAKE`."""


def _shut_down() -> None:
    raise WorkerShutdown(0)
