"""The Celery application: `celery --app edgefront.workers.app worker`; `EmbeddedWorker` runs it in-process.

Tasks are idempotent and may run twice or never: the database rows are authoritative, and a sweep, which each worker
requests when it starts and every few seconds, finds unfinished work. Therefore Celery's late acknowledgement, retries,
results and beat are not used.

A worker serves all queues except those of trainings, unless `--queues` names queues. To run trainings too, `--queues`
must name a queue of trainings: `--queues edgefront,edgefront-train-gpu` (see `core.services.tasks.TRAIN_QUEUES`).
"""

from __future__ import annotations

import logging
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from celery import Celery, bootsteps, signals
from celery.concurrency.thread import TaskPool
from celery.exceptions import WorkerShutdown
from celery.worker import WorkController
from kombu import Exchange, Queue

from edgefront.core.common.errors import EdgefrontError, Unavailable
from edgefront.core.common.logs import log_to_stderr
from edgefront.core.common.processes.limits import usable_cores
from edgefront.core.common.processes.program import collect_seldom, open_closed_streams, switch_often
from edgefront.core.common.states import RunOutcome
from edgefront.core.common.validation import existing
from edgefront.core.services import tasks, work
from edgefront.core.services.dispatch import broker_app, queue_name, queue_of, sender, training_queue, work_queue
from edgefront.core.services.settings import Settings
from edgefront.core.services.tasks import TRAIN_QUEUES
from edgefront.core.services.trainings import claims as training_claims
from edgefront.core.services.trainings.claims import FinishedRun, RunReport, TrainingClaim
from edgefront.core.services.trainings.folder import deleted_trainings, remove_folder, training_folder
from edgefront.core.services.trainings.machine import cannot_train, machine_of, served_queues
from edgefront.core.store.database import Database
from edgefront.workers import retention
from edgefront.workers.sweep import sweep_once
from edgefront.workers.training.launch import is_held, launch, stop_all
from edgefront.workers.work import Worker


def register(app: Any, database: Database, settings: Settings) -> None:
    """Registers the task of the sweep and the task that starts trainings in a Celery application."""

    retained_at = -retention.INTERVAL_S

    @app.task(name=tasks.SWEEP, shared=False)  # type: ignore[untyped-decorator]
    def sweep_all() -> None:
        nonlocal retained_at
        sweep_once(database)
        if settings.retention.model_fields_set and time.monotonic() - retained_at > retention.INTERVAL_S:
            retained_at = time.monotonic()
            retention.delete_expired(database, settings)

    @app.task(name=tasks.TRAIN, shared=False)  # type: ignore[untyped-decorator]
    def train(queue: str) -> None:
        start_waiting(database, settings, queue)


def start_waiting(
    database: Database, settings: Settings, queue: str, start: Callable[[Settings, TrainingClaim], None] = launch
) -> int:
    """Claims waiting trainings for this worker's free slots and starts their supervisors. Returns the number started.

    Concurrent calls never start a training twice, because a database row can be claimed only once.
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
            _count(database, claimed, f"the training could not be started on {machine.worker}: {error}")
            return started
        started += 1


def _count(database: Database, claimed: TrainingClaim, reason: str) -> None:
    """Counts a failed attempt to start a training; otherwise the training would be claimed again and again."""
    outcome = FinishedRun(RunOutcome.FAILED, reason)
    try:
        with database.write() as session:
            now = database.now(session)
            training_claims.finish(session, claimed.training_id, claimed.fence, RunReport(), outcome, now)
    except EdgefrontError as error:  # its lease expires
        _log.warning("training %s could not be released: %s", claimed.training_id, error)


def remove_deleted(settings: Settings) -> None:
    """Removes files of trainings that were deleted on another machine or after the death of the supervisor."""
    for training_id in deleted_trainings(settings):
        if not is_held(training_folder(settings, training_id)):
            remove_folder(settings, training_id)


class Requests(bootsteps.StartStopStep):  # type: ignore[misc]
    """Requests sweeps, and starts of trainings from the queues that this worker serves.

    Sends messages when the broker is connected, so work continues at once after an outage, and then periodically. A
    message expires when the next message is due, so a busy worker sweeps once, not once per message.
    Messages are hints: lost, unread and duplicate messages do no harm.
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
        if served:
            reason = cannot_train(settings)
            if reason is not None:
                _log.warning("this worker serves training queues, but cannot train: %s", reason)
            remove_deleted(settings)
        interval_s = settings.leases.sweep_s
        self._ask(consumer.app, served)
        self._entry = consumer.timer.call_repeatedly(
            interval_s, self._ask, (consumer.app, served, max(1.0, interval_s))
        )

    def stop(self, consumer: Any) -> None:
        if self._entry is not None:
            self._entry.cancel()
            self._entry = None

    def _ask(self, app: Celery, served: list[str], expires_s: float | None = None) -> None:
        messages = [
            (tasks.SWEEP, {}),
            *((tasks.SERVED, {"queue": queue.name}) for queue in app.conf.edgefront_worker.queues),
            *((tasks.TRAIN, {"queue": queue}) for queue in served),
        ]
        try:
            for task, arguments in messages:
                queue = queue_of(app.conf.edgefront_settings, task, arguments)
                app.send_task(task, kwargs=arguments, queue=queue, expires=expires_s, retry=False, ignore_result=True)
            ALIVE.touch()
        except Exception as error:  # transports raise many types; Celery reconnects, and starts this again
            _log.warning("no sweep could be requested: %s", error)


def create_celery(settings: Settings, database: Database | None = None) -> Celery:
    """Creates a Celery application with all tasks. Opens the settings' database unless `database` is given."""
    app = broker_app(settings)
    database = database or open_database(settings)
    worker = Worker(database, settings)
    app.conf.update(
        task_default_queue=queue_name(settings),
        task_queues=[_queue(work_queue(settings, queue.name)) for queue in work.QUEUES],
        task_create_missing_queues=True,
        worker_concurrency=usable_cores(),
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=not settings.embedded,  # a prefetched message would wait for a busy worker
        worker_hijack_root_logger=False,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        edgefront_settings=settings,
        edgefront_worker=worker,
        timezone="UTC",
    )
    worker.register(app)
    register(app, database, settings)
    app.steps["consumer"].add(Requests)
    app.steps["worker"].add(Slots)
    return app


class Slots(bootsteps.StartStopStep):  # type: ignore[misc]
    """Tells the application's `Worker` the number of concurrent tasks, the served queues, and that the process stops.

    `Worker.stop` is called before Celery waits for running tasks; with `training.end_with_worker`, trainings stop too.
    """

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        conf = worker.app.conf
        served = worker.app.amqp.queues.consume_from
        known = [work_queue(conf.edgefront_settings, queue.name) for queue in work.QUEUES]
        known += [training_queue(conf.edgefront_settings, queue) for queue in TRAIN_QUEUES]
        for name in set(served).difference(known):
            raise SystemExit(f"--queues {name}: nothing is sent to this queue; {existing(name, known)}")
        conf.edgefront_worker.slots = worker.concurrency
        conf.edgefront_worker.queues = tuple(
            queue for queue in work.QUEUES if work_queue(conf.edgefront_settings, queue.name) in served
        )

    def stop(self, worker: Any) -> None:
        conf = worker.app.conf
        conf.edgefront_worker.stop()
        settings: Settings = conf.edgefront_settings
        if settings.training.end_with_worker:
            stop_all(settings.home, settings.training.grace_s)

    terminate = stop


def _queue(name: str) -> Queue:
    """Returns a queue with the exchange and routing key that Celery gives a queue of this name."""
    return Queue(name, Exchange(name), routing_key=name)


def open_database(settings: Settings) -> Database:
    """Opens the settings' database; tasks requested in transactions are sent to the settings' broker."""
    return Database(settings.database_url, send=sender(settings), pool_size=settings.database.pool_size)


def __getattr__(name: str) -> Any:
    # Created when Celery's command needs it, so that importing this module reads no settings.
    if name == "app":
        open_closed_streams()
        switch_often()
        try:
            settings = Settings()
            settings.check_artifacts()
            database = open_database(settings)
            database.refuse_other_release()
        except (EdgefrontError, OSError) as error:
            raise SystemExit(str(error)) from None
        signals.setup_logging.connect(partial(_set_up_logging, settings), weak=False)
        app = create_celery(settings, database)
        collect_seldom()
        globals()["app"] = app
        return app
    raise AttributeError(name)


def _set_up_logging(settings: Settings, *, loglevel: int, **_options: Any) -> None:
    log_to_stderr(settings.log, level=loglevel)


ALIVE = Path(tempfile.gettempdir()) / "edgefront-worker"
"""File whose time is that of the latest sweep that a worker of this machine or container has requested."""

WAKE = "edgefront.wake"
"""Name of a task that does nothing, but wakes a stopping worker, so that the worker stops at once."""

SLOTS = 4
"""Number of concurrent tasks. The tasks share one core; one slot is reserved for work that takes milliseconds."""

_log = logging.getLogger(__name__)


class EmbeddedWorker:
    """A worker on threads of this process, with this process's in-memory transport or any other broker.

    Messages in memory are lost when the process ends. Like every worker, an embedded worker therefore starts with a
    sweep, which finds unfinished work in the database. The worker serves the queues of trainings that this machine can
    run. Use as a context manager, or call `start` and `stop`.
    """

    def __init__(self, settings: Settings, database: Database | None = None) -> None:
        self._settings = settings
        self._own = None if database is not None else open_database(settings)
        self._app = create_celery(settings, database or self._own)
        self._worker: _Controller | None = None
        self._thread: threading.Thread | None = None

    def start(self, timeout_s: float = 30.0) -> None:
        """Starts the worker and waits until it takes messages. Raises RuntimeError after `timeout_s`."""
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
        """Stops the worker after its current tasks. The sweep of the next start finds the tasks still in the queue."""
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
    """Celery's thread pool; each thread uses this worker's application if a process has several applications."""

    def __init__(self, *args: Any, app: Celery, **options: Any) -> None:
        super().__init__(*args, app=app, **options)
        self.executor = ThreadPoolExecutor(self.limit, "edgefront-task", initializer=app.set_current)


class _Controller(WorkController):  # type: ignore[misc]
    """Celery's worker for use without the command line: installs no signal handlers."""

    def __init__(self, *, app: Celery, **options: Any) -> None:
        self.ready = threading.Event()
        super().__init__(app=app, **options)

    def on_consumer_ready(self, consumer: Any) -> None:
        self.ready.set()

    def end_soon(self) -> None:
        # Celery's own stop is a flag of the whole process; a call in this consumer's loop stops only this worker.
        self.consumer.call_soon(_shut_down)


def _nothing() -> None:
    """The task `WAKE`, which does nothing."""


def _shut_down() -> None:
    raise WorkerShutdown(0)
